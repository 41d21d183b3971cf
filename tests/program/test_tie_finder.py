import itertools
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flumina as fl
from flumina.errors import OrderError
from flumina.input.tie_checks import check_ties
from flumina.program.base import define
from flumina.spec import read


class Counter(fl.Program):
    inc = fl.Tag(key="k long")
    read = fl.Tag(key="k long")
    reset = fl.Tag()
    depends = fl.depends((read, read), (read, inc), (reset, reset), (reset, read), (reset, inc))
    counts = fl.PerKey(fl.Count())

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.inc:
            state.counts[event.key] += 1
        elif event.tag is self.read:
            state.counts[event.key] = 0
        else:
            state.counts.clear()


TAGS = {"i": Counter.inc, "r": Counter.read, "x": Counter.reset}
DEFINITION = define(Counter)
Row = tuple[int, str, int, int]
"""(timestamp, tag, key, seq)"""


def stream(parts: Sequence[Sequence[Row]], *, seq: bool = False) -> fl.Stream:
    tables = [
        pa.table(
            {
                "ts": pa.array([row[0] for row in part], pa.int64()),
                "kind": pa.array([row[1] for row in part], pa.string()),
                "k": pa.array([row[2] for row in part], pa.int64()),
                "n": pa.array([row[3] for row in part], pa.int64()),
            }
        )
        for part in parts
    ]
    return fl.Stream("events", TAGS, tables, tag_column="kind", seq="n" if seq else None, sorted=False)


def check(parts: Sequence[Sequence[Row]], *, seq: bool = False) -> None:
    check_ties(DEFINITION, read(DEFINITION, [stream(parts, seq=seq)]))


def depend(a: Row, b: Row) -> bool:
    keys = [None if row[1] == "x" else row[2] for row in (a, b)]
    return DEFINITION.depends(TAGS[a[1]].name, keys[0], TAGS[b[1]].name, keys[1])


class TestAcrossParts:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ((5, "r", 1, 0), (5, "r", 1, 0)),
            ((5, "i", 1, 0), (5, "r", 1, 0)),
            ((5, "r", 1, 0), (5, "i", 1, 0)),
            ((5, "x", 0, 0), (5, "i", 7, 0)),
            ((5, "x", 0, 0), (5, "x", 0, 0)),
        ],
    )
    def test_dependent_events_that_tie_are_refused(self, one: Row, other: Row) -> None:
        with pytest.raises(OrderError) as caught:
            check([[(1, "i", 1, 0), one], [(2, "i", 1, 0), other], []])
        error = caught.value
        assert error.condition == "AMBIGUOUS_ORDER"
        assert "stream 'events'" in str(error)
        assert "timestamp 5 without a seq column" in str(error)
        assert "in part 0 and " in str(error)
        assert "in part 1" in str(error)
        assert "seq=" in str(error.hint)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ((5, "i", 1, 0), (5, "i", 1, 0)),
            ((5, "r", 1, 0), (5, "r", 2, 0)),
            ((5, "i", 1, 0), (5, "r", 2, 0)),
            ((5, "r", 1, 0), (6, "r", 1, 0)),
        ],
    )
    def test_independent_events_may_tie(self, one: Row, other: Row) -> None:
        check([[one], [other]])

    def test_within_a_part_the_position_decides(self) -> None:
        check([[(5, "r", 1, 0), (5, "r", 1, 0), (5, "i", 1, 0)], [(6, "r", 1, 0)]])

    def test_a_seq_column_decides(self) -> None:
        check([[(5, "r", 1, 0)], [(5, "r", 1, 1)]], seq=True)

    def test_events_of_different_streams_are_ordered_by_rank(self) -> None:
        streams = [fl.Stream(name, Counter.reset, {"ts": [5, 5]}) for name in ("a", "b")]
        check_ties(DEFINITION, read(DEFINITION, streams))

    def test_each_stream_is_looked_at(self) -> None:
        fine = fl.Stream("a", Counter.reset, {"ts": [5]})
        tied = fl.Stream("b", Counter.reset, [pa.table({"ts": [5]}), pa.table({"ts": [5]})])
        with pytest.raises(OrderError, match="stream 'b'"):
            check_ties(DEFINITION, read(DEFINITION, [fine, tied]))


class TestEqualSeq:
    def test_within_one_part(self) -> None:
        with pytest.raises(OrderError, match="timestamp 5 with the same seq"):
            check([[(5, "r", 1, 3), (5, "r", 1, 3)]], seq=True)

    def test_across_parts(self) -> None:
        with pytest.raises(OrderError, match="with the same seq"):
            check([[(5, "i", 1, 3)], [(5, "i", 2, 4), (5, "r", 1, 3)]], seq=True)

    def test_independent_events_may_have_the_same(self) -> None:
        check([[(5, "i", 1, 3), (5, "i", 1, 3)], [(5, "i", 1, 3), (5, "r", 2, 3)]], seq=True)

    def test_other_timestamps_may_have_the_same(self) -> None:
        check([[(5, "r", 1, 3), (6, "r", 1, 3)]], seq=True)


rows = st.tuples(st.integers(0, 2), st.sampled_from("irx"), st.integers(0, 2), st.integers(0, 2))


@given(st.lists(st.lists(rows, max_size=5), min_size=1, max_size=3), st.booleans())
def test_exactly_the_dependent_ties_are_refused(parts: list[list[Row]], with_seq: bool) -> None:  # noqa: FBT001
    placed = [(part, row) for part, rows_ in enumerate(parts) for row in rows_]
    ambiguous = any(
        depend(a, b) and a[0] == b[0] and (a[3] == b[3] if with_seq else part != other)
        for (part, a), (other, b) in itertools.combinations(placed, 2)
    )
    if ambiguous:
        with pytest.raises(OrderError):
            check(parts, seq=with_seq)
    else:
        check(parts, seq=with_seq)


@pytest.mark.parametrize("seq", [False, True])
def test_many_independent_events_at_one_time_are_no_trouble(*, seq: bool) -> None:
    """All pairs of them would be three hundred million."""
    keys = list(range(12_000))
    parts = [[(5, "r", key, part) for key in keys[part::2]] for part in (0, 1)]
    check(parts, seq=seq)
    with pytest.raises(OrderError):
        check([*parts, [(5, "i", 7, 1), (5, "i", 8, 0)]], seq=seq)
