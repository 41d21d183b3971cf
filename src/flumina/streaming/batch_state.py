"""What a batch leaves behind for the next one, and what a snapshot tells of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from flumina.checkpoint.state_partitions import PartitionedState
from flumina.checkpoint.store.manifest import BatchProgress, BufferedRows, SeenTimestamps
from flumina.checkpoint.store.snapshot import Snapshot
from flumina.input.watermarks import Seen
from flumina.streaming.batch_watermark import BatchWatermark


@dataclass
class BatchState:
    """What is left of everything before a batch.

    ``lineage`` is equal for two queries if all batches up to here were made by the same program, held the same rows,
    were cut alike and had as many outputs. ``shown`` has the last batch with rows of each output,
    ``last_dead_letters`` is the last one with dead letters.
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
    last_dead_letters: int | None = None

    @property
    def size(self) -> int:
        """Bytes of the state."""
        return 0 if self.state is None else self.state.size


def progress_of(
    left: BatchState,
    outputs: Mapping[str, int],
    sink: str | None,
    dead_letters: str | None,
    buffered: Sequence[BufferedRows] = (),
) -> BatchProgress:
    """Return what a snapshot says besides its state; ``outputs`` has the rows of this batch, by output.

    ``sink`` and ``dead_letters`` are the folders of outputs and dead letters, if there are such.
    """
    return BatchProgress(
        done=left.done,
        seen={name: SeenTimestamps(seen.newest, seen.heard) for name, seen in left.seen.items()},
        buffered=tuple(buffered),
        totals=left.totals,
        outputs=dict(outputs),
        last_batches=left.shown,
        last_dead_letters=left.last_dead_letters,
        lineage=left.lineage,
        sink=sink,
        dead_letters=dead_letters,
        foreign_state=left.state is not None and left.state.foreign,
        closed=left.closed,
    )


def following(before: str, watermark: BatchWatermark, outputs: Mapping[str, int], program: Mapping[str, Any]) -> str:
    """The lineage after one more batch that a program has made, with so many rows of each output."""
    told = json.dumps([before, asdict(watermark), dict(outputs), dict(program)], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()


def batch_progress(snapshot: Snapshot) -> BatchProgress:
    """Return what the snapshot of a streaming query says besides its state."""
    progress = snapshot.manifest.batch_progress
    assert progress is not None, "the snapshot of a streaming query"
    return progress


def was_written(batch: int, snapshot: Snapshot) -> bool:
    """Whether any driver has written the snapshot behind a batch: before that nothing of the batch is seen."""
    return any(found.number > batch for found in snapshot.seen.snapshot_ids)
