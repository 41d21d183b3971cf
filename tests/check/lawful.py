"""Programs that keep all laws in ways that a careless checker would not see."""

from __future__ import annotations

from typing import Any

import flumina as fl


class TwoStateTypes(fl.Program):
    """A pair at the root, single numbers below: Definition 2.1 with two state types."""

    value = fl.Tag("v long NOT NULL")
    barrier = fl.Tag()
    depends = fl.depends((barrier, barrier), (barrier, value))
    output = "window long, total long"
    whole = fl.StateType()
    part = fl.StateType(value)

    def init(self) -> Any:
        return (0, 0)

    @fl.update(whole)
    def on_whole(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        window, total = state
        if event.tag is self.value:
            return window + event.v, total
        emit(window, total + window)
        return 0, total + window

    @fl.update(part)
    def on_part(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        return (*state[:-1], state[-1] + event.v)

    @fl.update_batch(part)
    def batch_on_part(self, state: Any, batch: fl.Batch, emit: fl.Emit) -> Any:
        return (*state[:-1], state[-1] + int(batch["v"].sum()))

    @fl.fork(whole, (part, part))
    def split(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> Any:
        window, total = state
        return (total, window), (0,)

    @fl.join((part, part), whole)
    def merge(self, left: Any, right: Any) -> Any:
        total, window = left
        return window + right[0], total

    @fl.fork(part, (part, part))
    def split_part(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> Any:
        return state, (0,)

    @fl.join((part, part), part)
    def merge_part(self, left: Any, right: Any) -> Any:
        return (*left[:-1], left[-1] + right[0])


class SetUnion(fl.Program):
    """Distinct users, read by anybody at any time between resets: readers need not depend on each other."""

    seen = fl.Tag("user long NOT NULL")
    reset = fl.Tag()
    get = fl.Tag()
    depends = fl.depends((reset, reset), (reset, seen), (reset, get), (get, seen))
    output = "n long"
    users = fl.Set("long")

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.seen:
            state.users.add(event.user)
        elif event.tag is self.get:
            emit(len(state.users))
        else:
            state.users = set()


class TopTwo(fl.Program):
    """The two best items by (score, id): a total order, so that arrival does not matter."""

    item = fl.Tag("id long NOT NULL, score long NOT NULL")
    get = fl.Tag()
    depends = fl.depends((get, get), (get, item))
    output = "ids array<long>"

    def init(self) -> Any:
        return []

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        if event.tag is self.item:
            return sorted({*state, (event.score, event.id)}, reverse=True)[:2]
        emit([id_ for _, id_ in state])
        return []

    def fork(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> Any:
        return ([], state) if right.has(self.get) else (state, [])

    def join(self, left: Any, right: Any) -> Any:
        return sorted({*left, *right}, reverse=True)[:2]


class Extremes(fl.Program):
    """Every kind of declared field at once, two of them in independent halves of the program."""

    sample = fl.Tag("v long NOT NULL", key="sensor string")
    report = fl.Tag(key="sensor string")
    note = fl.Tag("text string")
    notes = fl.Tag()
    depends = fl.depends((report, report), (report, sample), (notes, notes), (notes, note))
    output = {"range": "sensor string, low long, high long, n long, mean double", "texts": "n long"}
    low = fl.PerKey(fl.Min("long"))
    high = fl.PerKey(fl.Max("long"))
    both = fl.PerKey(fl.Tuple(fl.Sum("long"), fl.Count()), added_by=[sample], read_by=[report], set_by=[report])
    texts = fl.PerKey(fl.Count(), added_by=[note], read_by=[notes], set_by=[notes])

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.sample:
            state.low[event.key] = fl.least(state.low[event.key], event.v)
            state.high[event.key] = fl.greatest(state.high[event.key], event.v)
            total, count = state.both[event.key]
            state.both[event.key] = (total + event.v, count + 1)
        elif event.tag is self.report:
            total, count = state.both[event.key]
            low, high = state.low[event.key], state.high[event.key]
            emit.range(event.sensor, low, high, count, total / count if count else None)
            state.both[event.key] = (0, 0)
            state.low[event.key] = None
            state.high[event.key] = None
        elif event.tag is self.note:
            state.texts[event.text] += 1
        else:
            emit.texts(sum(state.texts.values()))
            state.texts.clear()


class Houses(fl.KeyedProgram):
    """A keyed program with an event that sees all keys."""

    load = fl.Tag("watts long NOT NULL", key="house int")
    slice_end = fl.Tag()
    depends = fl.depends((slice_end, slice_end), (slice_end, load))
    output = "house int, watts long"
    watts = fl.Sum("long")

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        state.watts += event.watts

    def update_all(self, states: Any, event: fl.Event, emit: fl.Emit) -> None:
        for house, state in states.items():
            if state.watts:
                emit(house, state.watts)
                state.watts = 0


class FloatsWithTolerance(fl.Program):
    """A sum of floats that says how equal is equal enough."""

    value = fl.Tag("v double NOT NULL")
    barrier = fl.Tag()
    depends = fl.depends((barrier, barrier), (barrier, value))
    output = "total double"
    tolerance = 1e-6
    examples = {"v": [0.1, 0.2, 0.3, 1.5]}
    total = fl.Sum("double")

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.value:
            state.total += event.v
        else:
            emit(state.total)
            state.total = 0.0


class RegionalDependence(fl.Program):
    """Dependence by a function on finitely many keys: a region's audit depends on its own shops only."""

    sale = fl.Tag("v long NOT NULL", key="shop long", keys=[10, 11, 20])
    audit = fl.Tag(key="region long", keys=[1, 2])
    output = "region long, total long"

    @staticmethod
    def depends(a: fl.Atom, b: fl.Atom) -> bool:
        if a.tag is b.tag:
            return a.tag is RegionalDependence.audit and a.key == b.key
        region, shop = (a.key, b.key) if a.tag is RegionalDependence.audit else (b.key, a.key)
        assert isinstance(shop, int)
        return shop // 10 == region

    def init(self) -> Any:
        return {}

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.sale:
            state[event.shop // 10] = state.get(event.shop // 10, 0) + event.v
        else:
            emit(event.region, state.pop(event.region, 0))

    def fork(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> Any:
        halves: Any = ({}, {})
        for region, total in state.items():
            halves[1 if right.has(self.audit, region) else 0][region] = total
        return halves

    def join(self, left: Any, right: Any) -> Any:
        return {r: t for r in {*left, *right} if (t := left.get(r, 0) + right.get(r, 0)) or r in left or r in right}


class Winner(fl.Program):
    """Iterating over declared maps and sets gives an order of their own, however the state was divided."""

    sale = fl.Tag("cents long NOT NULL", key="customer string")
    close = fl.Tag()
    depends = fl.depends((close, close), (close, sale))
    output = "customer string, first long"
    total = fl.PerKey(fl.Sum("long"))
    amounts = fl.Set("long")

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.sale:
            state.total[event.key] += event.cents
            state.amounts.add(event.cents)
        elif state.amounts:
            best = max(state.total, key=state.total.get, default=None)
            emit(best, next(iter(state.amounts)))


LAWFUL = (
    Winner,
    TwoStateTypes,
    SetUnion,
    TopTwo,
    Extremes,
    Houses,
    FloatsWithTolerance,
    RegionalDependence,
)
