"""Rules for the input of a query: watermark policies, late and bad rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from flumina.errors import UsageError
from flumina.input.dead_letters import BadRows
from flumina.input.watermark_policy import ClosedBatches, WatermarkPolicy

LateRows = Literal["error", "dead-letter", "drop"]
"""What happens to rows at or before the watermark of their stream."""

MAX_BUFFERED_ROWS = 20_000_000
"""The default of the number of buffered rows above which a batch fails."""


@dataclass(frozen=True)
class Rules:
    """Watermark policy of each stream, and the handling of late, bad and buffered rows."""

    policies: Mapping[str, WatermarkPolicy]
    late: LateRows = "error"
    bad_rows: BadRows = "error"
    max_buffered_rows: int = MAX_BUFFERED_ROWS

    def __post_init__(self) -> None:
        """Raise UsageError where some streams, but not all, are ordered by batch."""
        closed = [name for name, policy in self.policies.items() if isinstance(policy, ClosedBatches)]
        others = [name for name in self.policies if name not in closed]
        if closed and others:
            raise UsageError(
                "WATERMARKS",
                f"stream {closed[0]!r} has fl.ClosedBatches(), and stream {others[0]!r} has "
                f"{self.policies[others[0]]!r}: expected fl.ClosedBatches() for all streams, or for none",
                hint="give all streams fl.ClosedBatches() (watermarks=fl.ClosedBatches()), or another policy each",
            )
