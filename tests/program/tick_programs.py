"""Programs with ticks, ends and a time to live, on whole-number timestamps."""

from datetime import timedelta
from typing import Any

import flumina as fl

GAP = 15


class Tumbling(fl.KeyedProgram):
    load = fl.Tag("watts long NOT NULL", key="house int")
    hour = fl.Every(10, key="house int")
    depends = fl.depends((hour, hour), (hour, load))
    output = "house int, start long, watts long"
    watts, loads = fl.Sum("long"), fl.Count()

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.load:
            state.watts += event.watts
            state.loads += 1
        else:
            emit(event.house, event.window.start, state.watts)
            fl.reset(state)


class After(fl.Program):
    """Windows (start, end], of the whole state."""

    sale, day = fl.Tag("cents long NOT NULL"), fl.Every(7, offset=3, ties="after")
    depends = fl.depends((day, day), (day, sale))
    output = "end long, cents long"
    cents, sales = fl.Sum("long"), fl.Count()

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.sale:
            state.cents += event.cents
            state.sales += 1
        else:
            emit(event.ts, state.cents)
            fl.reset(state)


class Dense(fl.Program):
    """A row for every tick from the first event on: the count is never reset."""

    sale, day = fl.Tag("cents long NOT NULL"), fl.Every(50)
    depends = fl.depends((day, day), (day, sale))
    output = "end long, sales long"
    sales = fl.Count()

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.sale:
            state.sales += 1
        else:
            emit(event.ts, state.sales)


class Sessions(fl.KeyedProgram):
    click, end = fl.Tag(key="user string"), fl.AtEnd(key="user string")
    quiet = fl.Every(4, key="user string", due="until")
    depends = fl.depends((click, click), (quiet, quiet), (quiet, click), (end, end), (end, click), (end, quiet))
    output = "user string, first long, last long, clicks long"
    first, until, clicks = fl.Min("long"), fl.Max("long"), fl.Count()

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        over = state.until is not None and state.until <= event.ts
        if state.clicks and (over or event.tag is self.end):
            emit(event.key, state.first, state.until - GAP, state.clicks)
            fl.reset(state)
        if event.tag is self.click:
            state.first = fl.least(state.first, event.ts)
            state.until = fl.greatest(state.until, event.ts + GAP)
            state.clicks += 1


class Expiring(fl.KeyedProgram):
    view = fl.Tag("user long", key="page string")
    change = fl.Tag("info string", key="page string")
    depends = fl.depends((change, change), (change, view))
    output = "page string, user long, info string"
    info = fl.Replicated("string")
    ttl = fl.TTL(30, every=4)

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.view:
            emit(event.page, event.user, state.info)
        else:
            state.info = event.info

    def on_expire(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        emit(event.page, None, f"expired {state.info}")


class Everything(fl.KeyedProgram):
    """Two ticks at one time, one of all keys, an end without a key, and a ttl."""

    add = fl.Tag("v long NOT NULL", key="k long")
    own = fl.Every(6, key="k long")
    whole = fl.Every(12)
    last = fl.AtEnd()
    depends = fl.depends(
        (own, own), (own, add), (whole, whole), (whole, add), (whole, own), (last, last), (last, add), (last, own),
        (last, whole),
    )  # fmt: skip
    output = "what string, k long, total long"
    total, seen = fl.Sum("long"), fl.Count()
    ttl = 40

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.add:
            state.total += event.v
            state.seen += 1
        else:
            emit("own", event.k, state.total)
            state.total = 0

    def update_all(self, states: dict[Any, Any], event: fl.Event, emit: fl.Emit) -> None:
        for key, state in states.items():
            emit(event.tag.name, key, state.seen)


class Batched(Tumbling):
    """The same with a batch update and a ttl that is a timedelta's worth of units."""

    ttl = fl.TTL(35, every=5)

    def update_batch(self, state: fl.State, batch: fl.Batch, emit: fl.Emit) -> None:
        state.watts += fl.total(batch["watts"])
        state.loads += len(batch)


class OwnState(fl.Program[list[int]]):
    """A state of its own is compared with init as a whole."""

    add, tick = fl.Tag("v long NOT NULL"), fl.Every(9)
    depends = fl.depends((tick, tick), (tick, add))
    output = "end long, total long"

    def init(self) -> Any:
        return [0, 0]

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        if event.tag is self.add:
            return [state[0] + event.v, state[1] + 1]
        emit(event.ts, state[0])
        return [0, 0]

    def fork(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> tuple[Any, Any]:
        return (list(state), [0, 0]) if left.has_any("tick") or not right.has_any("tick") else ([0, 0], list(state))

    def join(self, left: Any, right: Any) -> Any:
        return [left[0] + right[0], left[1] + right[1]]


class Chained(fl.KeyedProgram):
    """A tick gives the next one something to do, long after the last event of a key."""

    add = fl.Tag("v long NOT NULL", key="k long")
    close, report = fl.Every(6, key="k long"), fl.Every(16, key="k long")
    depends = fl.depends((close, close), (close, add), (close, report), (report, report))
    output = "k long, total long"
    total, closed = fl.Sum("long"), fl.Replicated("long")

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.add:
            state.total += event.v
        elif event.tag is self.close:
            state.closed = state.total
            state.total = 0
        else:
            emit(event.k, state.closed)
            state.closed = None


class Hourly(Tumbling):
    """The same with times."""

    hour = fl.Every(timedelta(hours=1), key="house int")
    depends = fl.depends((hour, hour), (hour, Tumbling.load))


PROGRAMS = [Tumbling, After, Dense, Sessions, Expiring, Everything, Batched, OwnState, Chained]
