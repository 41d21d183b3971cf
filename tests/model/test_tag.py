import copy
import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from flumina.errors import UsageError
from flumina.model.event import Event, point
from flumina.model.order import Point
from flumina.model.tag import Tag, user_line
from flumina.model.tag_set import UNKEYED, KeySet


class Tags:
    view = Tag("user long, `class` string", key="page string")
    tick = Tag()
    total = Tag("count long, index long", key="key long")


VIEW = Tags.view.event(ts=3, stream="views", seq=7, page="a", user=1, **{"class": "x"})


class TestTag:
    def test_name_columns_and_key(self) -> None:
        assert Tags.view.name == "view"
        assert Tags.view.columns.names == ("user", "class")
        assert Tags.view.schema.names == ["page", "user", "class"]
        assert not Tags.view.schema.field("page").nullable
        assert Tags.view.mistakes == []
        assert repr(Tags.view) == "<Tag view: 'user long, class string', key='page string'>"
        assert repr(Tags.tick) == "<Tag tick: ''>"

    def test_where_it_was_made(self) -> None:
        tag, here = Tag(), user_line(0)
        assert tag.where == here
        assert here.endswith(f"test_tag.py:{int(here.rpartition(':')[2])}")

    def test_universe(self) -> None:
        assert Tags.view.universe == KeySet.everything()
        assert Tags.tick.universe == UNKEYED
        assert Tag(key="k long", keys=[1, 2]).universe == KeySet.of(1, 2)

    @pytest.mark.parametrize("key", ["k int", "k long", "k string", "k binary", "key long"])
    def test_key_types(self, key: str) -> None:
        assert Tag("v long", key=key).mistakes == []

    @pytest.mark.parametrize(
        ("tag", "conditions"),
        [
            (Tag("user lng"), ["BAD_SCHEMA"]),
            (Tag(5), ["BAD_SCHEMA"]),
            (Tag(key="page"), ["BAD_SCHEMA"]),
            (Tag(key="page double"), ["BAD_KEY"]),
            (Tag(key="a long, b long"), ["BAD_KEY"]),
            (Tag(key=""), ["BAD_KEY"]),
            (Tag("user lng", key="page double"), ["BAD_SCHEMA", "BAD_KEY"]),
            (Tag(keys=[1]), ["KEYS_WITHOUT_KEY"]),
            (Tag("ts long, tag long"), ["RESERVED_COLUMN", "RESERVED_COLUMN"]),
            (Tag(key="ts long"), ["RESERVED_COLUMN"]),
            (Tag("page long", key="page string"), ["DUPLICATE_COLUMN"]),
            (Tag(key="k long", keys=[1, "a"]), ["BAD_KEY"]),
            (Tag(key="k int", keys=[2**31]), ["BAD_KEY"]),
            (Tag(key="k string", keys=[None]), ["BAD_KEY"]),
        ],
    )
    def test_mistakes_are_kept_for_the_class(self, tag: Tag, conditions: list[str]) -> None:
        assert [condition for condition, *_ in tag.mistakes] == conditions

    def test_pickles_without_its_class_of_events(self) -> None:
        assert VIEW.page == "a"  # the class has been made
        again = pickle.loads(pickle.dumps(Tags.view))  # noqa: S301 -- our own bytes
        assert again.schema == Tags.view.schema
        assert again.event(page="a", user=1, **{"class": "x"}).page == "a"


class TestEvent:
    def test_columns_by_attribute_and_by_name(self) -> None:
        assert (VIEW.ts, VIEW.stream, VIEW.seq, VIEW.key, VIEW.page, VIEW.user) == (3, "views", 7, "a", "a", 1)
        assert [VIEW[name] for name in ("ts", "key", "page", "user", "class")] == [3, "a", "a", 1, "x"]
        assert VIEW.tag is Tags.view
        assert repr(VIEW) == "view(page='a', user=1, class='x')@3 views#7"

    def test_columns_that_are_called_like_methods_of_tuples(self) -> None:
        event = Tags.total.event(key=5, count=1, index=2)
        columns: list[Any] = [event.key, event.count, event.index, event["count"]]
        assert columns == [5, 1, 2, 1]

    def test_unkeyed(self) -> None:
        event = Tags.tick.event(ts=1)
        assert event.key is None
        assert repr(event) == "tick()@1"

    def test_no_such_column(self) -> None:
        reads: list[Callable[[], Any]] = [lambda: VIEW.pagee, lambda: VIEW["pagee"]]
        for read in reads:
            with pytest.raises(
                AttributeError, match=r"'view' has no column 'pagee'; it has \['page', 'user', 'class'\]"
            ):
                read()

    def test_equality(self) -> None:
        assert Tags.view.event(ts=3, stream="views", seq=7, page="a", user=1, **{"class": "x"}) == VIEW
        assert Tags.view.event(ts=3, stream="views", seq=8, page="a", user=1, **{"class": "x"}) != VIEW
        assert Tags.tick.event() != Tag().event()
        assert tuple(VIEW) != VIEW
        assert len({VIEW, VIEW, Tags.tick.event()}) == 2

    def test_crosses_process_boundaries(self) -> None:
        again = pickle.loads(pickle.dumps(VIEW))  # noqa: S301 -- our own bytes
        assert again == VIEW
        assert again.user == 1
        assert isinstance(again, Event)

    def test_point(self) -> None:
        assert point(VIEW, 2) == Point(3, 2, 7)

    def test_made_wrongly(self) -> None:
        with pytest.raises(UsageError, match=r"NULL_KEY.*'page'"):
            Tags.view.event(user=1)
        with pytest.raises(UsageError, match=r"COLUMNS.*\['user', 'class'\], got \['user'\]"):
            Tags.view.event(page="a", user=1)


def test_schema_types() -> None:
    assert Tags.view.schema.types == [pa.string(), pa.int64(), pa.string()]


def test_a_column_may_be_called_self() -> None:
    assert Tag("self long").event(self=3)["self"] == 3


def test_copies_of_events_have_the_same_tag() -> None:
    copied = copy.deepcopy([VIEW])
    assert copied == [VIEW]
    assert copied[0].tag is Tags.view
