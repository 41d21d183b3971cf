"""Compare the outputs of a run with those of the oracle."""

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
    """Result of the comparison: the oracle's number of rows, and both sides' differing rows as text, if any."""

    rows: int
    mismatch: str | None = None

    @property
    def right(self) -> bool:
        """Return whether no row is missing or surplus."""
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
    """Run the sequential program on the same streams, and compare the outputs as multisets."""
    expected = spec(program, [_readable(stream) for stream in streams], bad_rows=bad_rows).outputs
    actual = {name: result.table() for name, result in committed.items()}
    rows = sum(table.num_rows for table in expected.values())
    try:
        assert_same_outputs(actual, expected, tolerance=define(program).tolerance)
    except AssertionError as error:
        return Verification(rows, str(error))
    return Verification(rows)


def _readable(stream: Stream) -> Stream:
    """Return the stream with the rows of a DataFrame as an Arrow table, which the oracle can read."""
    return replace(stream, data=stream.data.toArrow()) if hasattr(stream.data, "toArrow") else stream
