"""Define the laws of consistency (Definition 2.3 of the paper) and try them.

The form here is neither too weak nor too strong. As printed, C1 misses ``fork = (s, s), join = left`` on a counter,
and over arbitrary pairs of states it rejects the paper's own figure 1. Here a pair (s1, s2)
always comes from *one* ``fork(s, p1, p2)`` of a reachable s, with p1 and p2 non-empty and independent, each half then
evolving by its own predicate only; and both halves may take the event.

A law is a function of a reachable wire: it returns None if it does not apply, True if it holds there, and raises
:class:`Broken` with the counterexample if not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flumina.check.report import Counterexample
from flumina.check.scenario import REST, Scenario, Wire
from flumina.errors import FluminaError
from flumina.model.batch import Batch
from flumina.model.emit import Emit, Row, rows, table
from flumina.model.event import Event
from flumina.model.tick import Tick
from flumina.program.definition import RAISED, fold, within_update
from flumina.state.compare import copied, rearranged, same

_BETWEEN = 2
"""Other events that may come between two tries of one."""

Sides = list[tuple[str, Any, Any]]
"""(what is compared, the value on the left of the equation, the value on the right)."""


class Broken(Exception):  # noqa: N818 -- it is caught by the runner and becomes a finding
    """A law does not hold."""

    def __init__(self, counterexample: Counterexample) -> None:
        super().__init__(counterexample.law)
        self.counterexample = counterexample


@dataclass(frozen=True)
class Law:
    """A law: name, equation, meaning, and the function that tries it on a scenario."""

    name: str
    equation: str
    meaning: str
    holds: Callable[[Scenario, Law, Wire], bool | None]

    def compare(self, scenario: Scenario, wire: Wire, bindings: Sequence[tuple[str, Any]], sides: Sides) -> bool:
        """Raise :class:`Broken` unless both sides of everything compared are the same."""
        tolerance = scenario.definition.tolerance
        if all(same(left, right, tolerance) for _, left, right in sides):
            return True
        hint = None
        if not tolerance and all(same(left, right, 1e-6) for _, left, right in sides):
            hint = "the sides differ by rounding only; if that is acceptable, set tolerance = 1e-9 in the program"
        raise Broken(
            Counterexample(
                law=self.name,
                equation=self.equation,
                meaning=self.meaning,
                trace=tuple(map(str, wire.trace)),
                bindings=tuple((name, str(value)) for name, value in bindings),
                sides=tuple((name, repr(left), repr(right)) for name, left, right in sides),
                hint=hint,
            )
        )


def _outputs(emitted: Sequence[Row]) -> list[tuple[str, Any]]:
    """Return the outputs of one event as a multiset."""
    return sorted(((row.output, row.values) for row in emitted), key=repr)


def _c1(scenario: Scenario, law: Law, wire: Wire) -> bool | None:
    choice = scenario.fork_of(wire)
    if choice is None:
        return None
    fork, of_left, of_right = choice
    left, right = scenario.divide(wire, fork, of_left, of_right)
    left, right = scenario.evolve(left, 2), scenario.evolve(right, 2)
    scenario.choices.step()
    on_left = not scenario.choices.chance(2)
    mine = left if on_left else right
    event = scenario.event(mine.atoms)
    if event is None:
        return None
    after, alone = scenario.update(mine, event)
    pair = (after, right) if on_left else (left, after)
    joined = replace(wire, state=scenario.merge(fork, left, right))
    whole, together = scenario.update(joined, event)
    bindings = [
        ("p1", scenario.universe.tag_set(of_left)),
        ("p2", scenario.universe.tag_set(of_right)),
        ("s1", left.state),
        ("s2", right.state),
        ("e", event),
    ]
    sides: Sides = [
        ("state", scenario.merge(fork, *pair), whole.state),
        ("outputs", _outputs(alone), _outputs(together)),
    ]
    shown = law if on_left else replace(law, equation="join(s1, update(s2, e)) = update(join(s1, s2), e)  for e in p2")
    return shown.compare(scenario, wire, bindings, sides)


def _c2(scenario: Scenario, law: Law, wire: Wire) -> bool | None:
    choice = scenario.fork_of(wire)
    if choice is None:
        return None
    fork, of_left, of_right = choice
    left, right = scenario.divide(wire, fork, of_left, of_right)
    bindings = [
        ("s", wire.state),
        ("p1", scenario.universe.tag_set(of_left)),
        ("p2", scenario.universe.tag_set(of_right)),
        ("fork", (left.state, right.state)),
    ]
    return law.compare(scenario, wire, bindings, [("state", scenario.merge(fork, left, right), wire.state)])


def _c3(scenario: Scenario, law: Law, wire: Wire) -> bool | None:
    dependent = scenario.universe.dependent
    free = {a: [b for b in wire.atoms if not dependent[a, b] and b[1] is not REST] for a in wire.atoms}
    first = scenario.event([atom for atom, partners in free.items() if partners])
    if first is None:
        return None
    second = scenario.event(free[first.tag.name, first.key])
    if second is None:
        return None
    a, out_1 = scenario.update(wire, first)
    b, out_2 = scenario.update(a, second)
    c, out_4 = scenario.update(wire, second)
    d, out_3 = scenario.update(c, first)
    bindings = [("s", wire.state), ("e1", first), ("e2", second)]
    sides: Sides = [
        ("state", b.state, d.state),
        ("outputs of e1", _outputs(out_1), _outputs(out_3)),
        ("outputs of e2", _outputs(out_2), _outputs(out_4)),
    ]
    return law.compare(scenario, wire, bindings, sides)


def _batch(scenario: Scenario, law: Law, wire: Wire) -> bool | None:
    update_batch = wire.kind.update_batch
    tags = scenario.definition.tags  # ticks never come in batches
    names = sorted({name for name, key in wire.atoms if key is not REST and not isinstance(tags[name], Tick)})
    if update_batch is None or not names:
        return None
    name = scenario.choices.pick(names)
    atoms = [atom for atom in wire.atoms if atom[0] == name]
    events = [e for e in (scenario.event(atoms) for _ in range(scenario.choices.below(5))) if e is not None]
    tag = scenario.definition.tags[name]
    batch = Batch.of_events(events) if events else Batch.empty(tag)
    emit = Emit(scenario.definition.outputs)
    folded = fold(wire.kind, copied(wire.state), events, emit)
    one_by_one = rows(emit.drain())
    emit.batch = batch
    before = copied(wire.state)
    result: Any = None
    try:
        with within_update(wire.kind):
            result = update_batch(before, batch, emit)
        at_once = rows(emit.drain())
    except FluminaError as error:
        result, at_once = f"raised {error}", []
    except RAISED as error:  # any exception of the user's code is a finding
        result, at_once = f"raised {type(error).__name__}: {error}", []
    sides: Sides = [
        ("state", before if result is None else result, folded),
        ("outputs", _by_event(at_once), _by_event(one_by_one)),
    ]
    return law.compare(scenario, wire, [("s", wire.state), ("batch", f"{name}: {events!r}")], sides)


def _by_event(emitted: Sequence[Row]) -> list[tuple[str, str, Any]]:
    return sorted(((repr(row.event), row.output, row.values) for row in emitted), key=repr)


def _aliasing(scenario: Scenario, law: Law, wire: Wire) -> bool | None:
    choice = scenario.fork_of(wire)
    if choice is None:
        return None
    halves = scenario.divide(wire, *choice)
    which = scenario.choices.below(2)
    mine, other = halves[which], halves[1 - which]
    before = copied(other.state)
    for _ in range(1 + scenario.choices.below(3)):
        scenario.choices.step()
        event = scenario.event(mine.atoms)
        if event is None:
            return None
        # On the half itself, not on a copy, so that shared mutable parts show in the other half.
        state = fold(mine.kind, mine.state, [event], Emit(scenario.definition.outputs))
        mine = replace(mine, state=state, trace=(*mine.trace, event))
    sides: Sides = [("the other half", other.state, before)]
    return law.compare(scenario, mine, [("s", wire.state)], sides)


def _fresh(scenario: Scenario, law: Law, _wire: Wire) -> bool | None:
    kind = scenario.definition.kinds[scenario.definition.initial]
    used = scenario.definition.init()
    before = copied(used)
    trace: list[object] = ["init"]
    for _ in range(1 + scenario.choices.below(3)):
        event = scenario.event(scenario.universe.atoms)
        if event is not None:
            used = fold(kind, used, [event], Emit(scenario.definition.outputs))
            trace.append(event)
    wire = Wire(kind, (), used, tuple(trace))
    return law.compare(scenario, wire, [], [("init", scenario.definition.init(), before)])


def _deterministic(scenario: Scenario, law: Law, wire: Wire) -> bool | None:
    event = scenario.event(wire.atoms)
    if event is None:
        return None
    a, out_1 = scenario.update(wire, event)
    start, between = scenario.choices.start, list[Event]()
    for _ in range(_BETWEEN):  # side effects outside the state would show
        scenario.choices.step()
        other = scenario.event(wire.atoms) if scenario.choices.chance(2) else None
        if other is not None:
            scenario.update(wire, other)
            between.append(other)
    scenario.choices.rewind(start)
    b, out_2 = scenario.update(wire, event)
    for name, schema in scenario.definition.outputs.items():
        table(schema, [row for row in out_1 if row.output == name])  # raises if a value does not fit its column
    sides: Sides = [("state", a.state, b.state), ("outputs", _outputs(out_1), _outputs(out_2))]
    bindings = [("s", wire.state), ("e", event)]
    return law.compare(scenario, wire, [*bindings, ("in between", between)] if between else bindings, sides)


def _order(scenario: Scenario, law: Law, wire: Wire) -> bool | None:
    event = scenario.event(wire.atoms)
    if event is None:
        return None
    after, out_1 = scenario.update(wire, event)
    other, out_2 = scenario.update(replace(wire, state=rearranged(copied(wire.state))), event)
    sides: Sides = [("state", other.state, after.state), ("outputs", _outputs(out_2), _outputs(out_1))]
    return law.compare(scenario, wire, [("s", wire.state), ("e", event)], sides)


LAWS: tuple[Law, ...] = (
    Law(
        "determinism",
        "update(s, e) = update(s, e)",
        "the same event in the same state does the same, whatever came in between",
        _deterministic,
    ),
    Law(
        "order",
        "update(s with its dicts and sets in another order, e) = update(s, e)",
        "what a dict or a set gives first depends on how the state was divided",
        _order,
    ),
    Law("fresh-init", "init() = init(), whatever was done to the first", "every initial state is a new one", _fresh),
    Law("C3", "update(update(s, e1), e2) = update(update(s, e2), e1)", "independent events commute", _c3),
    Law("C2", "join(fork(s, p1, p2)) = s", "a fork that is joined at once changes nothing", _c2),
    Law(
        "C1",
        "join(update(s1, e), s2) = update(join(s1, s2), e)  for e in p1",
        "an event may be seen by one half before the join, or by the whole after it",
        _c1,
    ),
    Law("aliasing", "update(s1, e) leaves s2 as it is", "the halves of a fork share nothing mutable", _aliasing),
    Law("batch", "update_batch(s, [e1, ..., en]) = update(...update(s, e1)..., en)", "a batch is its events", _batch),
)
"""All laws that are tried on random situations; ``symmetry`` and ``defined`` are checked beside them."""
