"""What a batch leaves behind for the next one, and what a snapshot tells of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from flumina.checkpoint.state_partitions import PartitionedState
from flumina.checkpoint.store.batches import LETTERS, SHOWN
from flumina.input.watermarks import Seen
from flumina.streaming.batch_watermark import BatchWatermark


@dataclass
class BatchState:
    """What is left of everything before a batch.

    ``lineage`` is equal for two queries if all batches up to here were made by the same program, held the same rows,
    were cut alike and had as many outputs. ``shown`` has the last batch with rows of each output.
    """

    state: PartitionedState | None
    buffered: dict[str, pa.Table]
    seen: dict[str, Seen]
    done: int
    totals: dict[str, int]
    plan: str | None
    closed: bool
    lineage: str
    shown: dict[str, int]

    @property
    def size(self) -> int:
        """Bytes of the state."""
        return 0 if self.state is None else self.state.size


def batch_facts(left: BatchState, outputs: Mapping[str, int], sink: str | None, letters: str | None) -> dict[str, Any]:
    """What a snapshot has to tell besides its state and the rows that are buffered.

    ``sink`` and ``letters`` are the folders of outputs and dead letters, if there are such.
    """
    return {
        "foreign": left.state is not None and left.state.foreign,
        "buffered": [],
        "seen": {name: [seen.newest, seen.heard] for name, seen in left.seen.items()},
        "done": left.done,
        "totals": left.totals,
        "closed": left.closed,
        "lineage": left.lineage,
        "outputs": dict(outputs),
        "sink": {"folder": sink},
        LETTERS: letters,
        SHOWN: left.shown,
    }


def following(before: str, cut: BatchWatermark, outputs: Mapping[str, int], program: Mapping[str, Any]) -> str:
    """The lineage after one more batch that a program has made, with so many rows of each output."""
    told = json.dumps([before, asdict(cut), dict(outputs), dict(program)], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()
