"""What the user has said about the input of a query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flumina.errors import UsageError
from flumina.input.watermarks import ClosedBatches, WatermarkPolicy

MAX_BUFFERED_ROWS = 20_000_000
"""How many rows may be carried before that is an error."""


@dataclass(frozen=True)
class Rules:
    """How far each stream has come, and what becomes of rows that don't fit.

    ``late`` is error, dead-letter or drop; ``bad_rows`` is error or dead-letter.
    """

    policies: Mapping[str, WatermarkPolicy]
    late: str = "error"
    bad_rows: str = "error"
    max_buffered_rows: int = MAX_BUFFERED_ROWS

    def __post_init__(self) -> None:
        """Refuse what has no order: batches lead it for all streams, or for none."""
        closed = [name for name, policy in self.policies.items() if isinstance(policy, ClosedBatches)]
        others = [name for name in self.policies if name not in closed]
        if closed and others:
            raise UsageError(
                "FRONTIERS",
                f"stream {closed[0]!r} has fl.ClosedBatches(), and stream {others[0]!r} has "
                f"{self.policies[others[0]]!r}: either the batch leads the order of all events, or none",
                hint="give fl.ClosedBatches() to all streams (frontiers=fl.ClosedBatches()), or another policy to each",
            )
