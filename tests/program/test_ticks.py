"""Ticks as part of update: they fire, or do nothing."""

import pickle
from datetime import UTC, datetime

import pytest

import flumina as fl
from flumina.check import check
from flumina.errors import UsageError
from flumina.model.emit import Emit
from flumina.program import pickling
from flumina.program.base import define
from flumina.program.definition import fold
from flumina.program.ticks import ALWAYS_DUE, due_timestamp
from tests.program.tick_programs import PROGRAMS, Batched, Everything, Expiring, Sessions, Tumbling


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_laws_hold(program: type[fl.Program]) -> None:
    assert check(program, examples=150).ok


def test_a_tick_fires_if_a_field_that_it_touches_is_off_its_identity() -> None:
    ticking = define(Tumbling).ticking
    assert ticking is not None
    rule, state = ticking.rules["hour"], ticking.rules["hour"].init()
    assert rule.due(state) is None
    state.loads = 1
    assert rule.due(state) == ALWAYS_DUE


def test_a_tick_with_due_fires_when_its_time_has_come() -> None:
    ticking = define(Sessions).ticking
    assert ticking is not None
    rule, state = ticking.rules["quiet"], ticking.rules["quiet"].init()
    state.clicks = 1
    assert rule.due(state) is None
    state.until = 12
    assert rule.due(state) == 12


def test_a_tick_that_does_not_fire_leaves_no_key_behind() -> None:
    definition = define(Tumbling)
    kind = definition.kinds[definition.initial]
    emit = Emit(definition.outputs)
    states = fold(kind, definition.init(), [Tumbling.hour.tick(10, 1)], emit)
    assert dict.__len__(states) == 0
    assert not emit.drain()


def test_due_fields_hold_numbers_or_times() -> None:
    assert due_timestamp(5) == 5
    assert due_timestamp(None) is None
    assert due_timestamp(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) == 1_000_000
    assert due_timestamp(datetime(1970, 1, 1, 0, 0, 1)) == 1_000_000  # noqa: DTZ001 -- without a zone


def test_a_ttl_depends_on_all_tags_that_touch_a_field() -> None:
    depends = define(Expiring).depends
    assert all(depends.covers("ttl", other, same_key=True) for other in ("view", "change", "ttl"))
    assert not depends.covers("view", "view", same_key=True)
    assert define(Everything).depends.covers("ttl", "whole", same_key=False)


def test_only_tags_that_change_a_field_prolong_a_life() -> None:
    definition = define(Expiring)
    kind = definition.kinds[definition.initial]
    change = Expiring.change.event(ts=1, page="a", info="x")
    view = Expiring.view.event(ts=20, page="a", user=1)
    states = fold(kind, definition.init(), [change, view], Emit(definition.outputs))
    assert states["a"].ttl == 32


def test_a_batch_touches_a_key_once() -> None:
    definition = define(Batched)
    rows = [{"ts": ts, "house": 1, "watts": ts} for ts in range(3)]
    result = fl.spec(Batched, [fl.Stream("loads", Batched.load, rows)], horizon=2)
    assert result.state[1].ttl == 40
    assert check(definition, examples=60, laws=["batch"]).ok


def test_programs_with_ticks_travel() -> None:
    definition = pickling.loads(pickling.dumps(Expiring))
    assert define(definition).ticking is not None
    tick = Tumbling.hour.tick(10, 3)
    assert pickle.loads(pickle.dumps(tick)).window == tick.window  # noqa: S301 -- our own


def test_reset_needs_the_state_of_an_update() -> None:
    with pytest.raises(UsageError, match="RESET"):
        fl.reset(fl.State({"a": 1}))
