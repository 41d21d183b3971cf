"""State of a query between two batches: the last epoch, and what of it is in memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from flumina.checkpoint.state_partitions import PartitionedState
from flumina.checkpoint.store.manifest import BATCHES, Epoch, EpochOutputs, Inputs, SeenTimestamps
from flumina.input.watermark_policy import NOTHING, Seen
from flumina.streaming.batch_watermark import BatchWatermark
from flumina.streaming.buffered_rows import BufferedRows


@dataclass
class EpochState:
    """The last epoch of a query, with its state and the rows that it has buffered."""

    epoch: Epoch
    state: PartitionedState | None
    buffered: dict[str, list[BufferedRows]]

    @property
    def end(self) -> int:
        """The timestamp up to which everything is processed."""
        return NOTHING if self.epoch.end is None else self.epoch.end

    @property
    def seen(self) -> dict[str, Seen]:
        """The timestamps that each stream has shown so far."""
        return {name: Seen(*numbers) for name, numbers in self.epoch.inputs.seen.items()}

    @property
    def totals(self) -> dict[str, int]:
        """Counts of rows since the query began, by what became of them."""
        return {**self.epoch.inputs.totals, "processed": self.epoch.events}

    @property
    def size(self) -> int:
        """The size of the program's state in bytes."""
        return 0 if self.state is None else self.state.size


def first_epoch(streams: Mapping[str, Seen], sink: str | None, dead_letters: str | None) -> Epoch:
    """Return the epoch before the first batch; ``sink`` and ``dead_letters`` are the folders of both, or None."""
    return Epoch(
        number=0,
        inputs=inputs(streams, {}),
        outputs=EpochOutputs(sink),
        dead_letters=EpochOutputs(dead_letters),
    )


def inputs(seen: Mapping[str, Seen], totals: Mapping[str, int]) -> Inputs:
    """Return where the input of a query continues."""
    return Inputs(BATCHES, {name: SeenTimestamps(one.newest, one.heard) for name, one in seen.items()}, totals)


def following(before: str, watermark: BatchWatermark, outputs: Mapping[str, int], program: Mapping[str, Any]) -> str:
    """Return the lineage after one more batch; ``outputs`` has the number of rows of each output."""
    content = json.dumps([before, asdict(watermark), dict(outputs), dict(program)], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()
