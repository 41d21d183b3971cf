import logging
from decimal import Context
from typing import Any, ClassVar

import pytest

import flumina as fl
from flumina.program.analysis.side_effects import find_side_effects

OUTER: list[int] = [0]
COUNT = 0


class Cases:
    last = 0
    cache: Any = None

    def self_attribute(self, state: Any, event: Any, emit: Any) -> Any:
        self.last = event.v

    def self_item(self, state: Any, event: Any, emit: Any) -> Any:
        self.cache[event.v] = 1

    def global_item(self, state: Any, event: Any, emit: Any) -> Any:
        OUTER[0] = event.v

    def global_name(self, state: Any, event: Any, emit: Any) -> Any:
        global COUNT  # noqa: PLW0603
        COUNT += 1

    def class_attribute(self, state: Any, event: Any, emit: Any) -> Any:
        Cases.last = event.v

    def deletes(self, state: Any, event: Any, emit: Any) -> Any:
        del self.last

    def loops_over_self(self, state: Any, event: Any, emit: Any) -> Any:
        for self.last in event.v:
            pass

    def lost(self, state: Any, event: Any, emit: Any) -> Any:
        state += event.v

    def lost_again(self, state: Any, event: Any, emit: Any) -> Any:
        state = state + 1
        if event.v:
            return
        emit(state)

    def fine(self, state: Any, event: Any, emit: Any) -> Any:
        total = state["total"]
        state["total"] = total + event.v
        state.field = {}
        local: Any = {}
        local[event.v] = 1
        for key, local.item in event.v:
            emit(key)
        [x for x in local]  # noqa: C416
        with event.v as opened:
            opened.position = 3

        def inner(other: Any) -> None:
            other.value = 4

        inner(local)

    def returned(self, state: Any, event: Any, emit: Any) -> Any:
        state = state + event.v
        return state  # noqa: RET504

    def in_place(self, state: Any, event: Any, emit: Any) -> Any:
        state |= {event.v}


class Calls:
    """What is no assignment, and changes something all the same."""

    values: ClassVar[list[int]] = []
    table: ClassVar[dict[str, list[int]]] = {"a": [1]}
    start = 5

    def __init__(self) -> None:
        self.made: dict[int, int] = {}
        self.context = Context()

    def own_list(self, state: Any, event: Any, emit: Any) -> Any:
        self.values.append(event.v)

    def made_in_init(self, state: Any, event: Any, emit: Any) -> Any:
        self.made.update({event.v: 1})

    def unknown(self, state: Any, event: Any, emit: Any) -> Any:
        self.other.append(event.v)  # type: ignore[attr-defined]

    def of_a_global(self, state: Any, event: Any, emit: Any) -> Any:
        OUTER.append(event.v)

    def alias(self, state: Any, event: Any, emit: Any) -> Any:
        values = self.values
        values += [event.v]

    def item_of_an_alias(self, state: Any, event: Any, emit: Any) -> Any:
        outer = OUTER
        outer[0] = event.v

    def within(self, state: Any, event: Any, emit: Any) -> Any:
        self.table["a"].append(event.v)

    def by_name(self, state: Any, event: Any, emit: Any) -> Any:
        setattr(self, event.name, 1)

    def underhand(self, state: Any, event: Any, emit: Any) -> Any:
        object.__setattr__(self, "start", 1)

    def of_the_type(self, state: Any, event: Any, emit: Any) -> Any:
        type(self).values.append(event.v)

    def in_the_type(self, state: Any, event: Any, emit: Any) -> Any:
        type(self).start = 1

    def of_the_class(self, state: Any, event: Any, emit: Any) -> Any:
        Calls.values.clear()

    def default(self, state: Any, event: Any, emit: Any, cache: Any = []) -> Any:  # noqa: B006
        cache.append(event.v)

    def helped(self, state: Any, event: Any, emit: Any) -> Any:
        self._first(event.v)

    def _first(self, value: int) -> None:
        self._second(value)

    def _second(self, value: int) -> None:
        self.start = value

    def reads(self, state: Any, event: Any, emit: Any) -> Any:
        emit(self.values[0] + OUTER[0] + self.table["a"][0])
        start = self.start
        start += event.v
        mine = list(self.values)
        mine.append(start)
        values = self.values
        values = [*values, 1]
        values += mine
        state.add(self.context.add(1, start))
        state["seen"].append(mine)
        longer = self.other.append(event.v)  # type: ignore[attr-defined]
        logging.getLogger("x").info("%s", longer)
        emit(self._pure(start))

    def _pure(self, value: int) -> int:
        values = []
        values.append(value)
        return values.pop() + (self._pure(value - 1) if value else 0)


CALLS = [
    "own_list",
    "made_in_init",
    "unknown",
    "of_a_global",
    "alias",
    "item_of_an_alias",
    "within",
    "by_name",
    "underhand",
    "of_the_type",
    "in_the_type",
    "of_the_class",
    "default",
    "helped",
]


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_change_what_outlives_them_are_found(name: str) -> None:
    (problem,) = find_side_effects("update", getattr(Calls, name), vars(Calls))
    assert problem.condition == "HIDDEN_STATE"
    assert "test_side_effects.py:" in problem.where


def test_the_way_to_a_helper_is_told() -> None:
    (problem,) = find_side_effects("update", Calls.helped, vars(Calls))
    assert problem.message == "update calls _first, which calls _second, which stores something in self.start"


def test_reading_and_changing_copies_is_fine() -> None:
    assert list(find_side_effects("update", Calls.reads, vars(Calls))) == []


@pytest.mark.parametrize(
    "name",
    ["self_attribute", "self_item", "global_item", "global_name", "class_attribute", "deletes", "loops_over_self"],
)
def test_stores_outside_the_state_are_found(name: str) -> None:
    (problem,) = find_side_effects("update", getattr(Cases, name))
    assert problem.condition == "HIDDEN_STATE"
    assert "test_side_effects.py:" in problem.where


@pytest.mark.parametrize("name", ["lost", "lost_again"])
def test_a_state_that_is_rebound_must_be_returned(name: str) -> None:
    (problem,) = find_side_effects("update", getattr(Cases, name))
    assert problem.condition == "NO_RETURN"
    assert problem.hint == "end it with: return state"


@pytest.mark.parametrize("name", ["fine", "returned", "in_place"])
def test_what_stays_inside_is_fine(name: str) -> None:
    assert list(find_side_effects("update", getattr(Cases, name))) == []


def test_a_function_without_source_is_left_alone() -> None:
    scope: dict[str, object] = {}
    exec("def update(self, state, event, emit):\n    self.x = 1\n", scope)  # noqa: S102
    assert list(find_side_effects("update", scope["update"])) == []  # type: ignore[arg-type]


def test_the_class_is_refused() -> None:
    with pytest.raises(fl.DefinitionError, match=r"(?s)HIDDEN_STATE.*self\.last.*functools\.cache"):

        class Remembers(fl.Program):
            add = fl.Tag("v long NOT NULL")
            depends = fl.depends((add, add))
            output = "v long"
            total = fl.Sum("long")

            def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
                self.last = event.v
                state.total += event.v
