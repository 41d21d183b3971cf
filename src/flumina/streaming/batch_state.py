"""State of a query between two batches, and its record in a snapshot."""

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
    """State of a query between two batches.

    ``lineage`` is equal for two queries if all batches so far were processed by the same program, and had the same
    rows, batch watermarks and numbers of outputs. ``last_batches`` has the last batch with rows of each output,
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
    last_batches: dict[str, int]
    last_dead_letters: int | None = None

    @property
    def size(self) -> int:
        """Return the size of the program's state in bytes."""
        return 0 if self.state is None else self.state.size


def progress_of(
    batch_state: BatchState,
    outputs: Mapping[str, int],
    sink: str | None,
    dead_letters: str | None,
    buffered: Sequence[BufferedRows] = (),
) -> BatchProgress:
    """Return the progress that a snapshot records besides the program's state.

    ``outputs`` has the number of rows of this batch, by output; ``sink`` and ``dead_letters`` are the folders of
    outputs and dead letters, or None.
    """
    return BatchProgress(
        done=batch_state.done,
        seen={name: SeenTimestamps(seen.newest, seen.heard) for name, seen in batch_state.seen.items()},
        buffered=tuple(buffered),
        totals=batch_state.totals,
        outputs=dict(outputs),
        last_batches=batch_state.last_batches,
        last_dead_letters=batch_state.last_dead_letters,
        lineage=batch_state.lineage,
        sink=sink,
        dead_letters=dead_letters,
        foreign_state=batch_state.state is not None and batch_state.state.foreign,
        closed=batch_state.closed,
    )


def following(before: str, watermark: BatchWatermark, outputs: Mapping[str, int], program: Mapping[str, Any]) -> str:
    """Return the lineage after one more batch; ``outputs`` has the number of rows of each output."""
    content = json.dumps([before, asdict(watermark), dict(outputs), dict(program)], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def batch_progress(snapshot: Snapshot) -> BatchProgress:
    """Return the progress that the snapshot of a streaming query records besides its state."""
    progress = snapshot.manifest.batch_progress
    assert progress is not None, "the snapshot of a streaming query"
    return progress


def was_written(batch: int, snapshot: Snapshot) -> bool:
    """Return whether any driver has written the snapshot after a batch: until then no reader sees its outputs."""
    return any(found.number > batch for found in snapshot.seen.snapshot_ids)
