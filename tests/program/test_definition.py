import re
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import flumina as fl
from flumina.errors import UserCodeError
from flumina.model.batch import Batch
from flumina.model.emit import Emit, rows
from flumina.model.tag_set import UNKEYED
from flumina.program.base import define
from flumina.program.definition import Definition, fold, fold_batch, initial_state


class Steps(fl.Program):
    """An integer as state, with outputs that tell the ways apart."""

    add = fl.Tag("v long NOT NULL")
    show = fl.Tag()
    depends = fl.depends((add, show), (show, show))
    output = "n long"

    def init(self) -> int:
        return 0

    def update(self, state: int, event: fl.Event, emit: fl.Emit) -> int | None:
        if event.tag is self.add:
            return state + int(10 / event.v) if event.v < 100 else helper(event.v)
        emit(state)
        return None

    def update_batch(self, state: int, batch: fl.Batch, emit: fl.Emit) -> int | None:
        if batch.tag is self.add:
            return state + sum(int(10 / int(v)) for v in batch["v"])
        emit.columns([state] * len(batch))
        return None

    def fork(self, state: int, left: fl.TagSet, right: fl.TagSet) -> tuple[int, int]:
        return (0, state) if right.has(self.show) else (state, 0)

    def join(self, left: int, right: int) -> int:
        return left + right


class Leaving(Steps):
    """Ends the process wherever it can."""

    def init(self) -> int:
        sys.exit("init")

    def update(self, state: int, event: fl.Event, emit: fl.Emit) -> int | None:
        sys.exit(3)  #: update leaves

    def update_batch(self, state: int, batch: fl.Batch, emit: fl.Emit) -> int | None:
        sys.exit()

    def fork(self, state: int, left: fl.TagSet, right: fl.TagSet) -> tuple[int, int]:
        sys.exit("fork")

    def join(self, left: int, right: int) -> int:
        sys.exit("join")


def helper(value: int) -> int:
    raise KeyError(value)  #: where it is raised


def events(*values: int | None) -> list[fl.Event]:
    return [
        Steps.show.event(ts=t, stream="s", seq=t) if v is None else Steps.add.event(ts=t, stream="s", seq=t, v=v)
        for t, v in enumerate(values)
    ]


def emitter(definition: Definition) -> Emit:
    return Emit(definition.outputs)


def line_of(text: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line and "line_of" not in line)


def test_fold_keeps_what_update_returns_and_the_state_where_it_returns_none() -> None:
    definition = define(Steps)
    emit = emitter(definition)
    kind = definition.kinds["State"]
    assert fold(kind, 0, events(5, None, 2, None), emit) == 7
    out = rows(emit.drain())
    assert [(row.values, row.event.ts) for row in out] == [((2,), 1), ((7,), 3)]
    assert emit.event is None


def test_fold_batch_is_the_same_in_runs() -> None:
    definition = define(Steps)
    kind = definition.kinds["State"]
    inputs = events(5, 5, None, None, 2, None)
    one, other = emitter(definition), emitter(definition)
    assert fold(kind, 0, inputs, one) == fold_batch(kind, 0, Batch.of_events(inputs), other)
    assert rows(one.drain()) == rows(other.drain())
    assert other.batch is None


def test_fold_batch_without_update_batch() -> None:
    class Plain(Steps):
        update_batch = None  # type: ignore[assignment]

    definition = define(Plain)
    emit = emitter(definition)
    assert definition.kinds["State"].update_batch is None
    assert fold_batch(definition.kinds["State"], 0, Batch.of_events(events(5, None)), emit) == 2
    assert [row.values for row in rows(emit.drain())] == [(2,)]


def test_the_user_s_exception_has_the_user_s_line_and_the_event() -> None:
    definition = define(Steps)
    emit = emitter(definition)
    with pytest.raises(UserCodeError) as caught:
        fold(definition.kinds["State"], 0, events(5, 0), emit)
    error = caught.value
    assert error.function == "Steps.update"
    assert re.fullmatch(rf"tests/program/test_definition\.py:{line_of('int(10 / event.v)')}", error.where)
    assert error.event == "add(v=0)@1 s#1"
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert emit.event is None


def test_where_is_the_innermost_line_of_the_user() -> None:
    definition = define(Steps)
    with pytest.raises(UserCodeError) as caught:
        fold(definition.kinds["State"], 0, events(100), emitter(definition))
    assert caught.value.where.endswith(f":{line_of('#: where it is raised')}")
    assert caught.value.function == "Steps.update"


def test_an_exception_in_update_batch() -> None:
    definition = define(Steps)
    emit = emitter(definition)
    with pytest.raises(
        UserCodeError, match=r"Steps\.update_batch raised ZeroDivisionError.* on a batch of 2 add events"
    ):
        fold_batch(definition.kinds["State"], 0, Batch.of_events(events(5, 0)), emit)
    assert emit.batch is None


def test_an_error_of_ours_is_not_wrapped_and_says_on_which_event() -> None:
    class Wrong(fl.Program):
        a = fl.Tag()
        depends = fl.depends()
        output = "n long, m long"
        total = fl.Sum()

        def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
            emit(*[1])  # so that it is not found before

    definition = define(Wrong)
    with pytest.raises(fl.OutputError, match="takes 2 values") as caught:
        fold(definition.kinds["State"], initial_state(definition), [Wrong.a.event(ts=7)], emitter(definition))
    assert caught.value.__notes__ == ["while processing a()@7"]


def test_an_exception_in_init() -> None:
    class Wrong(Steps):
        def init(self) -> int:
            raise LookupError("no start")

    with pytest.raises(UserCodeError, match=r"Wrong\.init raised LookupError: no start") as caught:
        initial_state(define(Wrong))
    assert caught.value.event is None
    assert "test_definition.py" in caught.value.where


def test_everything_and_the_join_of_a_fork() -> None:
    definition = define(Steps)
    assert definition.everything == fl.TagSet.all_of([Steps.add, Steps.show])
    assert definition.join_of(definition.forks[0]) is definition.joins[0]


def test_interrupts_are_not_caught() -> None:
    class Interrupted(Steps):
        def update(self, state: int, event: fl.Event, emit: fl.Emit) -> Any:
            raise KeyboardInterrupt

    definition = define(Interrupted)
    with pytest.raises(KeyboardInterrupt):
        fold(definition.kinds["State"], 0, events(1), emitter(definition))


def test_sys_exit_is_an_exception_of_the_user() -> None:
    definition = define(Leaving)
    kind, everything = definition.kinds["State"], definition.everything
    with pytest.raises(UserCodeError, match=r"Leaving\.update raised SystemExit: 3 on add") as caught:
        fold(kind, 0, events(5), emitter(definition))
    assert caught.value.where.endswith(f"test_definition.py:{line_of('#: update leaves')}")
    with pytest.raises(UserCodeError, match=r"update_batch raised SystemExit"):
        fold_batch(kind, 0, Batch.of_events(events(5)), emitter(definition))
    with pytest.raises(UserCodeError, match="init raised SystemExit: init"):
        initial_state(definition)
    with pytest.raises(UserCodeError, match="fork raised SystemExit: fork"):
        definition.forks[0].split(0, everything, everything)
    with pytest.raises(UserCodeError, match="join raised SystemExit: join"):
        definition.joins[0].unite(0, 0)


def test_an_interrupt_is_none() -> None:
    class Interrupted(Steps):
        def update(self, state: int, event: fl.Event, emit: fl.Emit) -> int | None:
            raise KeyboardInterrupt

    definition = define(Interrupted)
    with pytest.raises(KeyboardInterrupt):
        fold(definition.kinds["State"], 0, events(5), emitter(definition))


@pytest.mark.parametrize(
    ("returned", "told"), [(7, "7"), ((1, 2, 3), r"\(1, 2, 3\)"), (None, "None"), ([0] * 1000, r"\[0, .*\.\.\.\]")]
)
def test_a_fork_that_returns_no_two_states(returned: object, told: str) -> None:
    class Odd(Steps):
        def fork(self, state: int, left: fl.TagSet, right: fl.TagSet) -> Any:  #: the odd fork
            return returned

    definition = define(Odd)
    with pytest.raises(UserCodeError, match=rf"Odd\.fork returned {told}: a fork has to return two states") as caught:
        definition.forks[0].split(0, definition.everything, definition.everything)
    assert caught.value.where == f"tests/program/test_definition.py:{line_of('#: the odd fork')}"
    assert len(str(caught.value)) < 400


class Exact(fl.Program):
    """Sums of decimals with a fork and a join of its own."""

    add = fl.Tag("v decimal(38,10) NOT NULL")
    show = fl.Tag()
    depends = fl.depends((add, show), (show, show))
    output = "v decimal(38,10)"

    def init(self) -> Decimal:
        return Decimal(0)

    def update(self, state: Decimal, event: fl.Event, emit: fl.Emit) -> Decimal:
        if event.tag is self.add:
            return state + Decimal(event.v)
        emit(state)
        return state

    def fork(self, state: Decimal, left: fl.TagSet, right: fl.TagSet) -> tuple[Decimal, Decimal]:
        return (state + 0, Decimal(0)) if not right.has_any(self.show) else (Decimal(0), state + 0)

    def join(self, left: Decimal, right: Decimal) -> Decimal:
        return left + right


def test_decimals_are_exact_in_forks_and_joins_too() -> None:
    definition, large = define(Exact), Decimal("1234567890123456789012345.1234567892")
    left, right = definition.forks[0].split(large, fl.TagSet({"show": UNKEYED}), fl.TagSet({"add": UNKEYED}))
    assert (left, right) == (large, 0)
    assert definition.joins[0].unite(left, Decimal("1e-10")) == Decimal("1234567890123456789012345.1234567893")
