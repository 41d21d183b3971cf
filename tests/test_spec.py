from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import flumina as fl
from flumina.apps import Fraud, KeyCounter, PageViews, ValueBarrier
from flumina.errors import OrderError
from flumina.model.order import END, START, Point, heartbeat

VIEWS = {"ts": [1, 2, 4, 5], "page": ["a", "a", "b", "a"], "user": [1, 2, 3, 4]}
CHANGES = {"ts": [2, 3, 4], "page": ["a", "b", "a"], "info": ["A", "B", "AA"]}


def page_views(*, changes_first: bool = True) -> list[fl.Stream]:
    changes = fl.Stream("changes", PageViews.change, CHANGES)
    views = fl.Stream("views", PageViews.view, VIEWS)
    return [changes, views] if changes_first else [views, changes]


class TestKnownAnswers:
    """By hand, each output with the event that caused it."""

    def test_key_counter(self) -> None:
        """The stream of section 2.1: i(1), i(2), r(1), i(2), r(1)."""
        data = {"ts": [1, 2, 3, 4, 5], "kind": list("iirir"), "k": [1, 2, 1, 2, 1]}
        tags = {"i": KeyCounter.inc, "r": KeyCounter.read}
        result = fl.spec(KeyCounter, [fl.Stream("s", tags, data, tag_column="kind")])
        assert result.output.to_pylist() == [
            {"k": 1, "n": 1, "event_ts": 3, "event_stream": "s"},
            {"k": 1, "n": 0, "event_ts": 5, "event_stream": "s"},
        ]
        assert {key: state.count for key, state in result.state.items()} == {2: 2}
        assert result.events == 5

    def test_value_barrier(self) -> None:
        values = fl.Stream("values", ValueBarrier.value, {"ts": [1, 2, 4, 6], "v": [1, 2, 4, 8]})
        barriers = fl.Stream("barriers", ValueBarrier.barrier, {"ts": [2, 5, 5]})
        assert fl.spec(ValueBarrier, [values, barriers]).output["total"].to_pylist() == [3, 4, 0]
        result = fl.spec(ValueBarrier, [barriers, values])
        assert result.output["total"].to_pylist() == [1, 6, 0]
        assert result.output["event_stream"].to_pylist() == ["barriers"] * 3
        assert result.state.total == 8

    def test_page_views_depend_on_the_rank_of_the_streams(self) -> None:
        result = fl.spec(PageViews, page_views())
        assert [tuple(row.values()) for row in result.output.to_pylist()] == [
            ("a", 1, None, 1, "views"),
            ("a", None, None, 2, "changes"),
            ("a", 2, "A", 2, "views"),
            ("b", None, None, 3, "changes"),
            ("a", None, "A", 4, "changes"),
            ("b", 3, "B", 4, "views"),
            ("a", 4, "AA", 5, "views"),
        ]
        views_first = fl.spec(PageViews, page_views(changes_first=False))
        assert views_first.output["info"].to_pylist() == [None, None, None, None, "B", "A", "AA"]

    def test_fraud(self) -> None:
        transactions = fl.Stream("t", Fraud.transaction, {"ts": [1, 2, 4, 5, 7], "v": [600, 450, 1050, 7, 57]})
        rules = fl.Stream("r", Fraud.rule, {"ts": [3, 6], "r": [0, 0]})
        result = fl.spec(Fraud, [transactions, rules])
        # 600 + 450 = 1050, so the model is 50, which flags 1050; 1050 + 7 = 1057, so then it is 57.
        assert result.outputs["aggregate"]["total"].to_pylist() == [1050, 1057]
        flagged = result.outputs["flagged"]
        assert flagged["v"].to_pylist() == [1050, 57]
        assert flagged["event_ts"].to_pylist() == [4, 7]
        assert (result.state.total, result.state.model) == (57, 57)

    def test_a_model_of_none_flags_nothing(self) -> None:
        transactions = fl.Stream("t", Fraud.transaction, {"ts": [1], "v": [0]})
        assert fl.spec(Fraud, [transactions]).outputs["flagged"].num_rows == 0


class TestUntil:
    @pytest.mark.parametrize(
        ("until", "events", "infos"),
        [
            (START, 0, {}),
            (Point(1, 0, 99), 0, {}),
            (Point(1, 1, 0), 1, {}),
            (heartbeat(2, 0), 2, {"a": "A"}),
            (heartbeat(2, 1), 3, {"a": "A"}),
            (Point(3, 0, 1), 4, {"a": "A", "b": "B"}),
            (Point(4, 0, 2), 5, {"a": "AA", "b": "B"}),
            (Point(4, 1, 1), 5, {"a": "AA", "b": "B"}),
            (Point(4, 1, 2), 6, {"a": "AA", "b": "B"}),
            (END, 7, {"a": "AA", "b": "B"}),
        ],
    )
    def test_all_events_up_to_a_point(self, until: Point, events: int, infos: dict[str, str]) -> None:
        result = fl.spec(PageViews, page_views(), until=until)
        assert result.events == events
        assert result.output.equals(fl.spec(PageViews, page_views()).output.slice(0, events))
        assert {page: state.info for page, state in result.state.items()} == infos


class TestResult:
    def test_outputs_by_name(self) -> None:
        result = fl.spec(Fraud, [fl.Stream("t", Fraud.transaction, [])])
        assert list(result.outputs) == ["flagged", "aggregate"]
        assert result.outputs["flagged"].schema.names == ["v", "event_ts", "event_stream"]
        with pytest.raises(fl.UsageError, match=r"NAMED_OUTPUTS.*\['flagged', 'aggregate'\]"):
            _ = result.output

    def test_rows_have_the_causing_event(self) -> None:
        result = fl.spec(PageViews, page_views())
        assert [(row.event.ts, row.event.stream, row.event.seq) for row in result.rows[:3]] == [
            (1, "views", 0),
            (2, "changes", 0),
            (2, "views", 1),
        ]

    def test_timestamps_are_of_the_kind_that_the_input_had(self) -> None:
        moment = datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)
        for ts in (pa.array([moment]), pa.array([moment], pa.timestamp("s", tz="Asia/Tokyo"))):
            result = fl.spec(ValueBarrier, [fl.Stream("b", ValueBarrier.barrier, pa.table({"ts": ts}))])
            assert result.output["event_ts"].to_pylist() == [moment]
            assert result.output.schema.field("event_ts").type == pa.timestamp("us", tz="UTC")

    def test_no_events(self) -> None:
        result = fl.spec(ValueBarrier, [fl.Stream("b", ValueBarrier.barrier, [])])
        assert (result.events, result.output.num_rows, result.state.total) == (0, 0, 0)


class TestOrder:
    class Log(fl.Program):
        """Gives out every event as it comes: nothing is independent."""

        a = fl.Tag("v long")
        b = fl.Tag("v long")
        depends = fl.depends((a, a), (a, b), (b, b))
        output = "v long"
        last = fl.Replicated("long")

        def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
            state.last = event.v
            emit(event.v)

    def log(self, *streams: fl.Stream) -> list[int]:
        values: list[int] = fl.spec(self.Log, list(streams)).output["v"].to_pylist()
        return values

    def test_timestamp_then_rank_then_seq(self) -> None:
        first = fl.Stream("x", self.Log.a, {"ts": [1, 5, 5], "v": [1, 4, 5]})
        second = fl.Stream("y", self.Log.b, {"ts": [1, 1, 5], "v": [2, 3, 6]})
        assert self.log(first, second) == [1, 2, 3, 4, 5, 6]

    def test_parts_are_one_stream(self) -> None:
        parts = [
            pa.table({"ts": [2, 4], "v": [2, 4], "n": [0, 0]}),
            pa.table({"ts": [1, 4], "v": [1, 3], "n": [7, -1]}),
        ]
        assert self.log(fl.Stream("x", self.Log.a, parts, seq="n")) == [1, 2, 3, 4]
        with pytest.raises(OrderError, match="AMBIGUOUS_ORDER"):
            self.log(fl.Stream("x", self.Log.a, parts))

    def test_how_independent_input_is_cut_makes_no_difference(self) -> None:
        table = pa.table(VIEWS)
        changes = fl.Stream("changes", PageViews.change, CHANGES)
        whole = fl.spec(PageViews, [changes, fl.Stream("views", PageViews.view, table)])
        cut = fl.spec(
            PageViews,
            [changes, fl.Stream("views", PageViews.view, [table.take([0, 2]), table.take([1, 3]), table[:0]])],
        )
        assert sorted(map(str, cut.output.to_pylist())) == sorted(map(str, whole.output.to_pylist()))
        assert cut.state == whole.state


class TestRefused:
    @pytest.mark.parametrize("streams", [[], None, fl.Stream("s", ValueBarrier.barrier, []), {}])
    def test_no_streams(self, streams: Any) -> None:
        with pytest.raises(fl.UsageError, match="NO_STREAMS"):
            fl.spec(ValueBarrier, streams)

    def test_two_streams_of_one_name(self) -> None:
        with pytest.raises(fl.UsageError, match=r"STREAM_NAME.*'s'"):
            fl.spec(ValueBarrier, [fl.Stream("s", ValueBarrier.barrier, []), fl.Stream("s", ValueBarrier.value, [])])

    def test_a_tag_of_another_program(self) -> None:
        with pytest.raises(
            fl.UsageError, match=r"UNKNOWN_TAG.*'view' made at .*, which is not a tag of ValueBarrier"
        ) as caught:
            fl.spec(ValueBarrier, [fl.Stream("s", PageViews.view, [])])
        assert "['value', 'barrier']" in str(caught.value.hint)

    def test_timestamps_of_two_kinds(self) -> None:
        moments = pa.table({"ts": pa.array([0], pa.timestamp("us"))})
        streams = [
            fl.Stream("v", ValueBarrier.value, {"ts": [1], "v": [1]}),
            fl.Stream("b", ValueBarrier.barrier, moments),
        ]
        with pytest.raises(fl.InputError, match=r"TIMESTAMP_TYPES.*stream 'b', column 'ts'.*stream 'v'"):
            fl.spec(ValueBarrier, streams)
        streams[0] = fl.Stream("v", ValueBarrier.value, [])
        assert fl.spec(ValueBarrier, streams).events == 1

    def test_bad_input(self) -> None:
        with pytest.raises(fl.InputError, match=r"NULL_TIMESTAMP.*stream 'b', part 0, row 1, column 'ts'"):
            fl.spec(ValueBarrier, [fl.Stream("b", ValueBarrier.barrier, {"ts": [1, None]})])


def test_the_user_s_exception_says_where_and_on_what() -> None:
    class Wrong(ValueBarrier):
        update_batch = None  # type: ignore[assignment]

        def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
            state.total += 100 // event.v  # here

    with pytest.raises(fl.UserCodeError) as caught:
        fl.spec(Wrong, [fl.Stream("v", ValueBarrier.value, {"ts": [1, 2], "v": [1, 0]})])
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    line = next(number for number, text in enumerate(lines, 1) if text.endswith("# here"))
    assert caught.value.where.endswith(f"tests/test_spec.py:{line}")
    assert "Wrong.update raised ZeroDivisionError" in str(caught.value)
    assert "value(v=0)@2 v#1" in str(caught.value)


def test_a_wrong_output_says_what_and_on_which_event() -> None:
    class Wrong(ValueBarrier):
        update_batch = None  # type: ignore[assignment]

        def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
            emit("x")

    with pytest.raises(fl.OutputError, match=r"column 'total': expected long, got 'x', emitted by barrier\(\)@1 b#0"):
        fl.spec(Wrong, [fl.Stream("b", ValueBarrier.barrier, {"ts": [1]})])


def test_calls_that_cannot_be_meant() -> None:
    with pytest.raises(fl.UsageError, match=r"needs a list of fl.Stream, got 3"):
        fl.spec(PageViews, [3])  # type: ignore[list-item]
    with pytest.raises(fl.UsageError, match="until= is a point"):
        fl.spec(PageViews, page_views(), until=5)  # type: ignore[arg-type]


def test_a_tag_of_another_program_with_the_same_name() -> None:
    class Other(fl.Program):
        view = fl.Tag()
        depends = fl.depends()
        count = fl.Count()

        def update(self, state: Any, event: Any, emit: Any) -> None:
            state.count += 1

    with pytest.raises(fl.UsageError, match=r"made at .*test_spec.py.*the 'view' of PageViews is another one"):
        fl.spec(PageViews, [fl.Stream("s", Other.view, {"ts": [1]})])
