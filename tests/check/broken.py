"""Programs that look right and are not, each with the law it breaks first and foremost."""

from __future__ import annotations

import itertools
from typing import Any

import flumina as fl

BROKEN: dict[type[fl.Program], str] = {}
"""Program class to the law that must be named."""


def breaks(law: str) -> Any:
    def note(cls: type[fl.Program]) -> type[fl.Program]:
        BROKEN[cls] = law
        return cls

    return note


class Barrier(fl.Program, abstract=True):
    """Values summed up to barriers; subclasses get something wrong."""

    value = fl.Tag("v long NOT NULL")
    barrier = fl.Tag()
    depends = fl.depends((barrier, barrier), (barrier, value))
    output = "total long"

    def init(self) -> Any:
        return 0

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        if event.tag is self.value:
            return state + event.v
        emit(state)
        return 0

    def fork(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> Any:
        return (0, state) if right.has(self.barrier) else (state, 0)

    def join(self, left: Any, right: Any) -> Any:
        return left + right


@breaks("C1")
class CounterCopiedOnFork(Barrier):
    """The printed C1 and C2 both pass this one: only the right half loses its values."""

    def fork(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> Any:
        return state, state

    def join(self, left: Any, right: Any) -> Any:
        return left


@breaks("C1")
class BarrierAsPrinted(Barrier):
    """The paper's listing: no reset, and barriers do not depend on each other."""

    depends = fl.depends((Barrier.barrier, Barrier.value))

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        if event.tag is self.value:
            return state + event.v
        emit(state)
        return state

    def fork(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> Any:
        return state, 0


@breaks("C3")
class BarrierWithoutSelfDependence(Barrier):
    depends = fl.depends((Barrier.barrier, Barrier.value))


@breaks("C1")
class CountToTheWrongSide(fl.Program):
    """All counts go to the left, also those that the right reads."""

    inc = fl.Tag(key="k long")
    read = fl.Tag(key="k long")
    depends = fl.depends((read, read), (read, inc))
    output = "k long, n long"

    def init(self) -> Any:
        return {}

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.inc:
            state[event.k] = state.get(event.k, 0) + 1
        else:
            emit(event.k, state.pop(event.k, 0))

    def fork(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> Any:
        return state, {}

    def join(self, left: Any, right: Any) -> Any:
        return {k: left.get(k, 0) + right.get(k, 0) for k in {*left, *right}}


@breaks("C2")
class CountDuplicated(Barrier):
    def fork(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> Any:
        return state, state


@breaks("C2")
class JoinKeepsTheRight(Barrier):
    def join(self, left: Any, right: Any) -> Any:
        return right


@breaks("C1")
class FloatSum(fl.Program):
    """Exactly equal sums of floats depend on the order of addition."""

    value = fl.Tag("v double NOT NULL")
    barrier = fl.Tag()
    depends = fl.depends((barrier, barrier), (barrier, value))
    output = "total double"
    total = fl.Sum("double")

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.value:
            state.total += event.v
        else:
            emit(state.total)
            state.total = 0.0


@breaks("determinism")
class CountsItsOwnCalls(Barrier):
    def __init__(self) -> None:
        self.calls = itertools.count()

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        if event.tag is self.value:
            return state + event.v
        emit(next(self.calls))
        return 0


@breaks("C3")
class FraudAsPrinted(fl.Program):
    """The paper's appendix: the sum is never reset, and rules do not depend on rules."""

    transaction = fl.Tag("v long NOT NULL")
    rule = fl.Tag("r long NOT NULL")
    depends = fl.depends((rule, transaction))
    output = {"flagged": "v long", "aggregate": "total long"}

    def init(self) -> Any:
        return (0, 0)

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        total, model = state
        if event.tag is self.transaction:
            if event.v % 1000 == model:
                emit.flagged(event.v)
            return total + event.v, model
        emit.aggregate(total)
        return total, (event.r + 1) % 1000

    def fork(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> Any:
        return state, (0, state[1])

    def join(self, left: Any, right: Any) -> Any:
        return left[0] + right[0], left[1]


class Pages(fl.Program, abstract=True):
    """Page views over one map; subclasses get something wrong."""

    view = fl.Tag("user long", key="page string")
    change = fl.Tag("info string", key="page string")
    depends = fl.depends((change, change), (change, view))
    output = "page string, user long, info string"

    def init(self) -> Any:
        return {}

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        if event.tag is self.view:
            emit(event.page, event.user, state.get(event.page))
        else:
            emit(event.page, None, state.get(event.page))
            state[event.page] = event.info

    def wants(self, side: fl.TagSet, page: str) -> bool:
        return side.has(self.view, page) or side.has(self.change, page)

    def join(self, left: Any, right: Any) -> Any:
        return {**right, **left}


@breaks("C2")
class PagesOfNeitherSideDropped(Pages):
    """The paper's listing filters by both predicates, so pages that neither has are gone."""

    def fork(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> Any:
        return (
            {page: info for page, info in state.items() if self.wants(left, page)},
            {page: info for page, info in state.items() if self.wants(right, page)},
        )


@breaks("C2")
class ForkLosesAKey(Pages):
    def fork(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> Any:
        kept = dict(list(state.items())[1:])
        return dict(kept), dict(kept)


@breaks("C1")
class StaleInfoWins(Pages):
    """Every page is copied to the left, whose stale information then beats the right's change."""

    def fork(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> Any:
        return dict(state), {page: info for page, info in state.items() if self.wants(right, page)}


@breaks("C3")
class ReadIndependentOfWrites(fl.Program):
    add = fl.Tag("v long NOT NULL")
    read = fl.Tag()
    depends = fl.depends((read, read))
    output = "total long"

    def init(self) -> Any:
        return 0

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        if event.tag is self.add:
            return state + event.v
        emit(state)
        return state

    def fork(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> Any:
        return (0, state) if right.has(self.read) else (state, 0)

    def join(self, left: Any, right: Any) -> Any:
        return left + right


@breaks("symmetry")
class OneSidedDependence(fl.Program):
    add = fl.Tag("v long NOT NULL")
    read = fl.Tag()
    output = "total long"

    @staticmethod
    def depends(a: fl.Atom, b: fl.Atom) -> bool:
        return a.tag is OneSidedDependence.read

    def init(self) -> Any:
        return 0

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        if event.tag is self.add:
            return state + event.v
        emit(state)
        return 0

    def fork(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> Any:
        return (0, state) if right.has(self.read) else (state, 0)

    def join(self, left: Any, right: Any) -> Any:
        return left + right


class Items(fl.Program, abstract=True):
    """A collection of items that `get` gives out; subclasses collect in a way that depends on the order."""

    item = fl.Tag("id long NOT NULL, score long NOT NULL")
    get = fl.Tag()
    depends = fl.depends((get, get), (get, item))
    output = "ids array<long>"

    def init(self) -> Any:
        return []

    def fork(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> Any:
        return ([], state) if right.has(self.get) else (state, [])

    def join(self, left: Any, right: Any) -> Any:
        return left + right


@breaks("C3")
class ConcatenationAsReducer(Items):
    """Appending is not commutative."""

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        if event.tag is self.item:
            return [*state, event.id]
        emit(state)
        return []


@breaks("C3")
class KeepTheLast(Items):
    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        if event.tag is self.item:
            return [event.id]
        emit(state)
        return state

    def join(self, left: Any, right: Any) -> Any:
        return right or left


@breaks("C3")
class FirstTwoItems(Items):
    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        if event.tag is self.item:
            return [*state, event.id][:2]
        emit(state)
        return []

    def join(self, left: Any, right: Any) -> Any:
        return (left + right)[:2]


@breaks("C3")
class TopByScoreAlone(Items):
    """Items with equal scores are kept by arrival."""

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        if event.tag is self.item:
            return sorted([*state, (event.score, event.id)], key=lambda pair: -pair[0])[:2]
        emit([id_ for _, id_ in state])
        return []

    def join(self, left: Any, right: Any) -> Any:
        return sorted([*left, *right], key=lambda pair: -pair[0])[:2]


@breaks("C3")
class FirstSightOnly(Items):
    """Giving out an item when it is seen for the first time makes items depend on each other."""

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        if event.tag is self.item:
            if event.id not in state:
                emit([event.id])
            return sorted({*state, event.id})
        return []

    def join(self, left: Any, right: Any) -> Any:
        return sorted({*left, *right})


@breaks("C3")
class ReloadedByRunningModel(fl.Program):
    """Outlier detection that flags by the running local model rather than the last global one."""

    point = fl.Tag("x long NOT NULL")
    query = fl.Tag()
    depends = fl.depends((query, query), (query, point))
    output = {"outlier": "x long", "model": "n long, total long"}

    def init(self) -> Any:
        return (0, 0)

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        count, total = state
        if event.tag is self.query:
            emit.model(count, total)
            return state
        if count and event.x * count > 2 * total:
            emit.outlier(event.x)
        return count + 1, total + event.x

    def fork(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> Any:
        return ((0, 0), state) if right.has(self.query) else (state, (0, 0))

    def join(self, left: Any, right: Any) -> Any:
        return left[0] + right[0], left[1] + right[1]


@breaks("C2")
class AverageOfAverages(Barrier):
    output = "average double"
    tolerance = 1e-9

    def init(self) -> Any:
        return 0.0

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        if event.tag is self.value:
            return state + event.v
        emit(state)
        return 0.0

    def join(self, left: Any, right: Any) -> Any:
        return (left + right) / 2


@breaks("aliasing")
class HalvesShareOneSet(fl.Program):
    """Everything else about this program is lawful."""

    item = fl.Tag("id long NOT NULL")
    get = fl.Tag()
    depends = fl.depends((get, get), (get, item))
    output = "ids array<long>"

    def init(self) -> Any:
        return set()

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.item:
            state.add(event.id)
        else:
            emit(sorted(state))

    def fork(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> Any:
        return state, state

    def join(self, left: Any, right: Any) -> Any:
        return left | right


_SHARED: list[int] = []


@breaks("fresh-init")
class InitialStateShared(Items):
    def init(self) -> Any:
        return _SHARED

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.item:
            state.append(event.id)
            state.sort()
        else:
            emit(state)
            state.clear()

    def join(self, left: Any, right: Any) -> Any:
        return sorted(left + right)


@breaks("batch")
class BatchWrongWhenEmpty(Barrier):
    """An empty run of barriers resets the sum."""

    def update_batch(self, state: Any, batch: fl.Batch, emit: fl.Emit) -> Any:
        if batch.tag is self.value:
            return state + int(batch["v"].sum())
        emit.columns([state, *[0] * (len(batch) - 1)][: len(batch)])
        return 0


@breaks("batch")
class BatchBlamesTheWrongEvent(Barrier):
    """The outputs are right, but caused by other events."""

    def update_batch(self, state: Any, batch: fl.Batch, emit: fl.Emit) -> Any:
        if batch.tag is self.value:
            return state + int(batch["v"].sum())
        if not len(batch):
            return state
        last_first = list(range(len(batch)))[::-1]
        emit.columns([state, *[0] * (len(batch) - 1)], at=last_first)
        return 0


@breaks("defined")
class MissingAfterFork(Pages):
    """A half is asked for a page that the fork did not give it."""

    def init(self) -> Any:
        return dict.fromkeys("abc", "")

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        if event.tag is self.view:
            emit(event.page, event.user, state[event.page])
        else:
            state[event.page] = event.info

    def fork(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> Any:
        return dict(state), {}


@breaks("defined")
class TypesWiredWrongly(fl.Program):
    """The fork hands a pair to a state type that is a number."""

    value = fl.Tag("v long NOT NULL")
    barrier = fl.Tag()
    depends = fl.depends((barrier, barrier), (barrier, value))
    output = "total long, n long"
    whole = fl.StateType()
    part = fl.StateType(value)

    def init(self) -> Any:
        return (0, 0)

    @fl.update(whole)
    def on_whole(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        total, count = state
        if event.tag is self.value:
            return total + event.v, count + 1
        emit(total, count)
        return 0, 0

    @fl.update(part)
    def on_part(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        return {"total": state["total"] + event.v, "count": state["count"] + 1}

    @fl.fork(whole, (part, part))
    def split(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> Any:
        return state, (0, 0)

    @fl.join((part, part), whole)
    def merge(self, left: Any, right: Any) -> Any:
        return tuple(a + b for a, b in zip(left, right, strict=True))


@breaks("C1")
class KeyStartsFromFive(fl.KeyedProgram):
    """Each side of a fork that meets a new key starts from five: join(init, init) is not init."""

    inc = fl.Tag(key="k long")
    read = fl.Tag(key="k long")
    depends = fl.depends((read, read), (read, inc))
    output = "k long, n long"

    def init(self) -> Any:
        return 5

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        if event.tag is self.inc:
            return state + 1
        emit(event.k, state)
        return 5

    def fork(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> Any:
        return (0, state) if right.has(self.read) else (state, 0)

    def join(self, left: Any, right: Any) -> Any:
        return left + right


@breaks("order")
class FirstOfADict(fl.Program):
    """Of two customers with the same total, the one that was seen first wins: but first where?"""

    sale = fl.Tag("cents long NOT NULL", key="customer string")
    close = fl.Tag()
    depends = fl.depends((close, close), (close, sale))
    output = "customer string, cents long"

    def init(self) -> Any:
        return {}

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.sale:
            state[event.key] = state.get(event.key, 0) + event.cents
        elif state:
            best = max(state, key=state.get)
            emit(best, state[best])

    def fork(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> Any:
        return ({}, state) if right.has(self.close) else (state, {})

    def join(self, left: Any, right: Any) -> Any:
        return {k: left.get(k, 0) + right.get(k, 0) for k in [*left, *(k for k in right if k not in left)]}


@breaks("defined")
class EmitsTextAsNumber(Barrier):
    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        emit("ten")
        return state


@breaks("C3")
class ChangesItsMindAtAWord(fl.Program):
    """Only a word that stands in the program itself shows what is wrong with it."""

    move = fl.Tag("kind string, cents long NOT NULL")
    depends = fl.depends()
    output = "balance long"

    def init(self) -> Any:
        return 0

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        if event.kind == "refund":
            emit(state)
        return state + event.cents

    def fork(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> Any:
        return state, 0

    def join(self, left: Any, right: Any) -> Any:
        return left + right


@breaks("C3")
class EveryMinute(Barrier):
    """The first value of a minute closes the last one, so that values depend on each other."""

    output = "minute long, total long"

    def init(self) -> Any:
        return (0, 0)

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        minute, total = state
        if event.tag is self.barrier:
            emit(minute, total)
            return state
        now = event.ts // 60
        if now == minute:
            return minute, total + event.v
        emit(minute, total)
        return now, event.v

    def fork(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> Any:
        return ((state[0], 0), state) if right.has(self.barrier) else (state, (state[0], 0))

    def join(self, left: Any, right: Any) -> Any:
        return max(left[0], right[0]), left[1] + right[1]


_LIMIT = 10_000_000


def _much(cents: int) -> bool:
    return cents > _LIMIT


@breaks("C3")
class StartsAnewAboveALimit(Barrier):
    """The number that matters has a name, and is looked at by a function that update calls."""

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        if event.tag is self.barrier:
            emit(state)
            return 0
        return 0 if _much(event.v) else state + event.v


@breaks("C3")
class OneKeyForAll(fl.Program):
    """The key that matters is none of the usual ones."""

    add = fl.Tag("v long NOT NULL", key="user string")
    show = fl.Tag()
    depends = fl.depends((show, show), (show, add))
    output = "user string, n long"

    def init(self) -> Any:
        return {}

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.show:
            for user in sorted(state):
                emit(user, state[user])
        elif event.user == "admin":
            state.clear()
        else:
            state[event.user] = state.get(event.user, 0) + event.v

    def fork(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> Any:
        return ({}, state) if right.has(self.show) else (state, {})

    def join(self, left: Any, right: Any) -> Any:
        return {k: left.get(k, 0) + right.get(k, 0) for k in {*left, *right}}


@breaks("C3")
class GreatestWithNan(Barrier):
    """max() keeps NaN if that came first, and drops it otherwise."""

    value = fl.Tag("v double NOT NULL")
    depends = fl.depends((Barrier.barrier, Barrier.barrier), (Barrier.barrier, value))
    output = "high double"

    def init(self) -> Any:
        return None

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        if event.tag is self.value:
            return event.v if state is None else max(state, event.v)
        emit(state)
        return None

    def fork(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> Any:
        return (None, state) if right.has(self.barrier) else (state, None)

    def join(self, left: Any, right: Any) -> Any:
        return left if right is None else right if left is None else max(left, right)


_NOTES: list[int] = []


def _note(value: int) -> None:
    _NOTES.append(value)


@breaks("determinism")
class KeepsNotesElsewhere(Barrier):
    """What it remembers is kept by a function outside the class; a barrier itself changes nothing there."""

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        if event.tag is self.value:
            _note(event.v)
        else:
            emit(len(_NOTES))
        return state
