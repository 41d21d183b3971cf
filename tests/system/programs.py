"""Programs of the system tests besides the apps: own state in an array, several state types, a report over all keys."""

from typing import Any

import numpy as np
import numpy.typing as npt

import flumina as fl

Array = npt.NDArray[np.int64]

CELLS = 1000


class Cells(fl.Program):
    """Own state of one type: an array large enough that it travels beside the message rather than in it."""

    add = fl.Tag("cell long NOT NULL, v long NOT NULL")
    top = fl.Tag()
    depends = fl.depends((top, top), (top, add))
    output = "cell long, v long"

    def init(self) -> Array:
        return np.zeros(CELLS, np.int64)

    def update(self, state: Array, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.add:
            state[event.cell % CELLS] += event.v
        else:
            at = int(state.argmax())
            emit(at, int(state[at]))
            state[at] = 0

    def fork(self, state: Array, left: fl.TagSet, right: fl.TagSet) -> tuple[Array, Array]:
        return state, np.zeros(CELLS, np.int64)

    def join(self, left: Array, right: Array) -> Array:
        return left + right


class TwoCounters(fl.Program):
    """Two state types: a wire for increments of the first counter needs that one only."""

    a = fl.Tag("v long NOT NULL")
    b = fl.Tag("v long NOT NULL")
    show = fl.Tag()
    depends = fl.depends((show, show), (show, a), (show, b))
    output = "a long, b long"
    Both = fl.StateType()
    First = fl.StateType(a)

    def init(self) -> tuple[int, int]:
        return (0, 0)

    @fl.update(Both)
    def step(self, state: tuple[int, int], event: fl.Event, emit: fl.Emit) -> tuple[int, int]:
        if event.tag is self.show:
            emit(*state)
            return (0, 0)
        return (state[0] + event.v, state[1]) if event.tag is self.a else (state[0], state[1] + event.v)

    @fl.update(First)
    def add(self, state: int, event: fl.Event, emit: fl.Emit) -> int:
        return state + int(event.v)

    @fl.fork(Both, (Both, First))
    def spare(self, state: tuple[int, int], left: fl.TagSet, right: fl.TagSet) -> tuple[tuple[int, int], int]:
        return state, 0

    @fl.join((Both, First), Both)
    def gather(self, left: tuple[int, int], right: int) -> tuple[int, int]:
        return (left[0] + right, left[1])

    @fl.fork(First, (First, First))
    def halve(self, state: int, left: fl.TagSet, right: fl.TagSet) -> tuple[int, int]:
        return 0, state

    @fl.join((First, First), First)
    def sum(self, left: int, right: int) -> int:
        return left + right


class Stock(fl.KeyedProgram):
    """One key at a time, and a report now and then that sees all of them."""

    move = fl.Tag("v long NOT NULL", key="item string")
    ask = fl.Tag(key="item string")
    report = fl.Tag()
    depends = fl.depends((ask, ask), (ask, move), (report, move), (report, ask), (report, report))
    output = {"answers": "item string, n long", "reports": "items long, n long"}
    total = fl.Sum()

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.move:
            state.total += event.v
        else:
            emit.answers(event.item, state.total)
            state.total = 0

    def update_all(self, states: Any, event: fl.Event, emit: fl.Emit) -> None:
        emit.reports(len([state for state in states.values() if state.total]), sum(s.total for s in states.values()))
