from typing import Any

import pytest

import flumina as fl
from flumina.hidden import hidden_state

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


@pytest.mark.parametrize(
    "name",
    ["self_attribute", "self_item", "global_item", "global_name", "class_attribute", "deletes", "loops_over_self"],
)
def test_stores_outside_the_state_are_found(name: str) -> None:
    (problem,) = hidden_state("update", getattr(Cases, name))
    assert problem.condition == "HIDDEN_STATE"
    assert "test_hidden.py:" in problem.where


@pytest.mark.parametrize("name", ["lost", "lost_again"])
def test_a_state_that_is_rebound_must_be_returned(name: str) -> None:
    (problem,) = hidden_state("update", getattr(Cases, name))
    assert problem.condition == "NO_RETURN"
    assert problem.hint == "end it with: return state"


@pytest.mark.parametrize("name", ["fine", "returned", "in_place"])
def test_what_stays_inside_is_fine(name: str) -> None:
    assert list(hidden_state("update", getattr(Cases, name))) == []


def test_a_function_without_source_is_left_alone() -> None:
    scope: dict[str, object] = {}
    exec("def update(self, state, event, emit):\n    self.x = 1\n", scope)  # noqa: S102
    assert list(hidden_state("update", scope["update"])) == []  # type: ignore[arg-type]


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
