"""Folding events and ticks: skipping what does nothing gives the same as trying every tick."""

from random import Random
from typing import Any

import pytest

import flumina as fl
from flumina.model.batch import Batch
from flumina.model.emit import Emit, rows
from flumina.model.event import Event
from flumina.model.order import END, Point
from flumina.model.tick import AtEnd, Every, Horizon, Tick, end_of, seq_of, tick_ranks
from flumina.program.base import define
from flumina.program.definition import Definition, fold
from flumina.program.tick_fold import TickFold
from tests.program.tick_programs import PROGRAMS, Dense, Everything, Expiring, Sessions, Tumbling


def some_events(random: Random, definition: Definition, count: int) -> list[tuple[Point, Event]]:
    """Events of all tags with streams, with silences, many of them on ticks."""
    tags = [tag for tag in definition.tags.values() if not isinstance(tag, Tick)]
    found, clock = [], random.randint(-40, 40)
    for seq in range(count):
        clock += random.choice((0, 0, 1, 2, 5, 9, 60))
        rank = random.randrange(len(tags))
        tag = tags[rank]
        columns: dict[str, Any] = {
            f.name: "i" if f.type == "string" else random.randint(-2, 5) for f in tag.columns.fields
        }
        if tag.key is not None:
            columns[tag.key.name] = random.choice(["a", "b", "c"] if tag.key.type == "string" else [1, 2, 3])
        found.append((Point(clock, rank, seq), tag.event(ts=clock, stream=tag.name, seq=seq, **columns)))
    return sorted(found, key=lambda entry: entry[0])


def naive(definition: Definition, events: list[tuple[Point, Event]], horizon: Horizon | None) -> tuple[Any, list[str]]:
    """Every tick of every key that ever occurs, one by one, as plain events in O."""
    streams = sum(not isinstance(tag, Tick) for tag in definition.tags.values())
    ranks = tick_ranks(definition.tags, streams)
    keys = sorted({event.key for _, event in events}, key=repr)
    entries = list(events)
    for name, rank in ranks.items():
        tag = definition.tags[name]
        times: list[int] = []
        if isinstance(tag, Every) and horizon is not None:
            ts = tag.schedule.after(events[0][0].ts - 100)
            while ts is not None and ts <= horizon.last(tag):
                times.append(ts)
                ts = tag.schedule.after(ts)
        elif isinstance(tag, AtEnd) and horizon is not None and horizon.closed:
            times = [end_of(definition.tags.values(), horizon.ts)]
        assert isinstance(tag, Tick)
        entries += [
            (Point(ts, rank, seq_of(key)), tag.tick(ts, key))
            for ts in times
            for key in (keys if tag.key is not None else (None,))
        ]
    emit = Emit(definition.outputs)
    entries.sort(key=lambda entry: entry[0])
    kind = definition.kinds[definition.initial]
    state = fold(kind, definition.init(), [event for _, event in entries], emit)
    return state, sorted(map(repr, rows(emit.drain())))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_skipping_is_trying_every_tick(program: type[fl.Program]) -> None:
    definition = define(program)
    names = [name for name, tag in definition.tags.items() if not isinstance(tag, Tick)]
    for seed in range(60):
        random = Random(seed)
        events = some_events(random, definition, random.randint(1, 25))
        last = events[-1][0].ts
        horizon = random.choice((Horizon(last, closed=True), Horizon(last), Horizon(last + random.randint(0, 80))))
        emit = Emit(definition.outputs)
        folded = TickFold(definition, definition.init(), len(names), emit, END)
        folded.run(Batch.of_events([event for _, event in events], names), horizon)
        expected = naive(definition, events, horizon)
        assert sorted(map(repr, rows(emit.drain()))) == expected[1]
        assert folded.state == expected[0]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_going_on_from_a_point_is_the_same_as_never_stopping(program: type[fl.Program]) -> None:
    definition = define(program)
    names = [name for name, tag in definition.tags.items() if not isinstance(tag, Tick)]
    for seed in range(40):
        random = Random(seed)
        events = some_events(random, definition, random.randint(2, 20))
        whole = Batch.of_events([event for _, event in events], names)
        horizon = Horizon(events[-1][0].ts, closed=True)
        middle = random.randint(events[0][0].ts, events[-1][0].ts)
        found: list[str] = []
        emit = Emit(definition.outputs)
        folded = TickFold(definition, definition.init(), len(names), emit, Point(middle, 2**62, 2**62))
        cut = sum(point.ts <= middle for point, _ in events)
        folded.run(whole.slice(0, cut) if cut else None, Horizon(middle))
        rest = TickFold(definition, folded.state, len(names), emit, END, Point(middle, 2**62, 2**62))
        rest.run(whole.slice(cut, len(whole)) if cut < len(whole) else None, horizon)
        found += sorted(map(repr, rows(emit.drain())))
        expected = naive(definition, events, horizon)
        assert found == expected[1]
        assert rest.state == expected[0]


def test_a_year_of_silence_is_one_step() -> None:
    rows_ = [{"ts": 0, "house": 1, "watts": 5}, {"ts": 10**15, "house": 1, "watts": 7}]
    result = fl.spec(Tumbling, [fl.Stream("loads", Tumbling.load, rows_)])
    assert result.output.select(["start", "watts"]).to_pylist() == [
        {"start": 0, "watts": 5},
        {"start": 10**15, "watts": 7},
    ]
    assert result.ticks == 2
    assert dict.__len__(result.state) == 0


def test_an_event_on_a_tick_is_in_the_next_window() -> None:
    rows_ = [{"ts": 9, "house": 1, "watts": 1}, {"ts": 10, "house": 1, "watts": 2}]
    result = fl.spec(Tumbling, [fl.Stream("loads", Tumbling.load, rows_)])
    assert result.output.column("watts").to_pylist() == [1, 2]


def test_open_input_has_no_end() -> None:
    clicks = [{"ts": 1, "user": "a"}, {"ts": 40, "user": "b"}]
    streams = [fl.Stream("clicks", Sessions.click, clicks)]
    assert fl.spec(Sessions, streams).output.num_rows == 2
    assert fl.spec(Sessions, streams, horizon=40).output.num_rows == 1
    assert fl.spec(Sessions, streams, horizon=60).output.num_rows == 2


def test_no_input_has_no_ticks() -> None:
    empty = fl.Stream("sales", Dense.sale, {"ts": [], "cents": []})
    assert fl.spec(Dense, [empty]).output.num_rows == 0


def test_a_key_expires_at_a_tick_and_leaves_nothing() -> None:
    changes = [{"ts": 1, "page": "a", "info": "x"}]
    views = [{"ts": ts, "page": "a", "user": ts} for ts in (31, 32, 33)]
    result = fl.spec(Expiring, [fl.Stream("c", Expiring.change, changes), fl.Stream("v", Expiring.view, views)])
    assert result.output.select(["user", "info"]).to_pylist() == [
        {"user": 31, "info": "x"},
        {"user": None, "info": "expired x"},
        {"user": 32, "info": None},
        {"user": 33, "info": None},
    ]
    assert not result.state


def test_everything_ends_with_its_end() -> None:
    result = fl.spec(Everything, [fl.Stream("adds", Everything.add, [{"ts": 5, "k": 1, "v": 2}])])
    assert [row["what"] for row in result.output.to_pylist()] == ["own", "whole", "last"]
    assert result.output.column("event_ts").to_pylist() == [6, 12, 12]
