"""Mistakes in ticks and in a time to live, all at once."""

from typing import Any

import pytest

import flumina as fl
from flumina.errors import DefinitionError


def conditions(error: pytest.ExceptionInfo[DefinitionError]) -> list[str]:
    return sorted(problem.condition for problem in error.value.problems)


def test_all_mistakes_at_once() -> None:
    with pytest.raises(DefinitionError) as error:

        class _Bad(fl.Program):
            a = fl.Tag()
            month = fl.Every("1 month")
            zero = fl.Every(0)
            keyed = fl.Every(5, key="k int")
            depends = fl.depends()
            ttl = "1 h"
            n = fl.Count()

            def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
                state.n += 1

    assert conditions(error) == ["TICK_KEY", "TICK_KEY", "TICK_PERIOD", "TICK_PERIOD"]
    assert all("test_tick_declarations.py:" in problem.where for problem in error.value.problems)
    assert "needs a zone" in str(error.value) or "need a zone" in str(error.value)


def test_a_tick_counts_as_reading_what_it_touches() -> None:
    with pytest.raises(DefinitionError) as error:

        class _Bad(fl.KeyedProgram):
            load = fl.Tag("v long NOT NULL", key="k int")
            hour = fl.Every(10, key="k int")
            depends = fl.depends((hour, hour))
            n = fl.Max("long")

            def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
                if event.tag is self.load:
                    state.n = fl.greatest(state.n, event.v)
                else:
                    state.n = fl.greatest(state.n, 1)

    assert conditions(error) == ["UNSAFE_FIELD"]
    assert "add (hour, load) to depends" in str(error.value)


def test_with_the_pair_it_is_safe() -> None:
    class _Good(fl.KeyedProgram):
        load = fl.Tag("v long NOT NULL", key="k int")
        hour = fl.Every(10, key="k int")
        depends = fl.depends((hour, hour), (hour, load))
        n = fl.Max("long")

        def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
            if event.tag is self.load:
                state.n = fl.greatest(state.n, event.v)
            else:
                state.n = fl.greatest(state.n, 1)

    assert fl.check(_Good, examples=50).ok


def test_a_tick_that_touches_nothing() -> None:
    with pytest.raises(DefinitionError) as error:

        class _Bad(fl.Program):
            a, tick, end = fl.Tag(), fl.Every(5), fl.AtEnd()
            depends = fl.depends()
            output = "ts long"
            n = fl.Count()

            def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
                if event.tag is self.a:
                    state.n += 1
                else:
                    emit(event.ts)

    assert conditions(error) == ["TICK_NEVER", "TICK_NEVER"]


def test_keys_of_another_type() -> None:
    with pytest.raises(DefinitionError) as error:

        class _Bad(fl.KeyedProgram):
            a, tick = fl.Tag(key="k int"), fl.Every(5, key="k string")
            depends = fl.depends((tick, tick))
            n = fl.Count()

            def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
                state.n += 1

    assert conditions(error) == ["TICK_KEY"]
    assert "expected a key of type int" in str(error.value)


@pytest.mark.parametrize(("field", "found"), [(fl.Count(), "is a Count"), (fl.Max("string"), "is a Max")])
def test_a_due_field_holds_times(field: fl.Field, found: str) -> None:
    with pytest.raises(DefinitionError, match=found) as error:

        class _Bad(fl.KeyedProgram):
            a, tick = fl.Tag(key="k int"), fl.Every(5, key="k int", due="n")
            depends = fl.depends((tick, tick), (tick, a))
            n = field

            def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
                emit(state.n)

    assert "DUE_FIELD" in conditions(error)


def test_on_expire_only_reads() -> None:
    with pytest.raises(DefinitionError) as error:

        class _Bad(fl.KeyedProgram):
            a = fl.Tag(key="k int")
            depends = fl.depends()
            n = fl.Count()
            ttl = 10

            def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
                state.n += 1

            def on_expire(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
                state.n = 5

    assert conditions(error) == ["EXPIRE_SETS"]


def test_on_expire_without_a_ttl_is_never_called() -> None:
    with pytest.raises(DefinitionError) as error:

        class _Bad(fl.KeyedProgram):
            a = fl.Tag(key="k int")
            depends = fl.depends()
            n = fl.Count()

            def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
                state.n += 1

            def on_expire(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
                emit(state.n)

    assert conditions(error) == ["NO_TTL"]


@pytest.mark.parametrize(
    ("given", "condition"),
    [(0, "TICK_PERIOD"), ("1 month", "TICK_PERIOD"), (1.5, "TICK_PERIOD"), (fl.TTL(10, every="1 s"), "TICK_UNIT")],
)
def test_a_ttl_that_is_none(given: object, condition: str) -> None:
    with pytest.raises(DefinitionError) as error:

        class _Bad(fl.KeyedProgram):
            a = fl.Tag(key="k int")
            depends = fl.depends()
            n = fl.Count()
            ttl = given

            def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
                state.n += 1

    assert conditions(error) == [condition]


def test_ticks_need_one_state_type_and_a_ttl_fields() -> None:
    with pytest.raises(DefinitionError) as error:

        class _Bad(fl.KeyedProgram):
            a = fl.Tag(key="k int")
            depends = fl.depends()
            ttl = 5

            def init(self) -> Any:
                return 0

            def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
                return state + 1

            def fork(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> tuple[Any, Any]:
                return state, 0

            def join(self, left: Any, right: Any) -> Any:
                return left + right

    assert conditions(error) == ["TICK_STATE"]


def test_ttl_is_a_reserved_name() -> None:
    with pytest.raises(DefinitionError, match="a Count can't be called 'ttl'"):

        class _Bad(fl.KeyedProgram):
            a = fl.Tag(key="k int")
            depends = fl.depends()
            ttl = fl.Count()

            def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
                state.ttl += 1
