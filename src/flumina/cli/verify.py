"""What the oracle says about the outputs of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from flumina.input.dead_letters import BadRows
from flumina.input.stream import Stream
from flumina.output.commit import CommittedOutput
from flumina.program.base import AnyProgram, define
from flumina.spec import spec
from flumina.testing import assert_same_outputs


@dataclass(frozen=True)
class Verification:
    """Whether the oracle gave the same rows; ``rows`` of it, and if not, both side by side."""

    rows: int
    mismatch: str | None = None

    @property
    def right(self) -> bool:
        """Whether nothing is missing and nothing surplus."""
        return self.mismatch is None

    def __str__(self) -> str:
        if self.mismatch is None:
            return f"verified: the sequential program gives the same {self.rows:,} rows"
        return f"WRONG: the sequential program gives other rows\n{self.mismatch}"


def judge(
    program: AnyProgram,
    streams: Sequence[Stream],
    committed: Mapping[str, CommittedOutput],
    bad_rows: BadRows = "error",
) -> Verification:
    """Run the sequential program on the same streams, and compare in both directions."""
    expected = spec(program, [_readable(stream) for stream in streams], bad_rows=bad_rows).outputs
    actual = {name: result.table() for name, result in committed.items()}
    rows = sum(table.num_rows for table in expected.values())
    try:
        assert_same_outputs(actual, expected, tolerance=define(program).tolerance)
    except AssertionError as error:
        return Verification(rows, str(error))
    return Verification(rows)


def _readable(stream: Stream) -> Stream:
    """A stream whose rows the oracle can read: it knows nothing of Spark."""
    return replace(stream, data=stream.data.toArrow()) if hasattr(stream.data, "toArrow") else stream
