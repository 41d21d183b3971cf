"""Generate random reachable situations of a program, to try its laws on.

A *wire* (Definition 2.2) is a state type, a predicate and a state. Wires are reached as a real run reaches them: from
``init`` by updates, by descending into one half of a fork, and by nested forks that were joined again. So a law is
never tried on a pair of states that no run can produce.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from flumina.check.choices import Choices
from flumina.check.constants import constants
from flumina.check.keys import Pool, keys_of, pools
from flumina.check.values import KEYS, jumps, value
from flumina.errors import UserCodeError
from flumina.model.decimals import exact_decimals
from flumina.model.depends import FunctionDependence
from flumina.model.emit import Emit, Row, rows
from flumina.model.event import Event
from flumina.model.tag_set import Key, KeySet, TagSet
from flumina.model.tick import Every, Expiry
from flumina.program.definition import RAISED, Definition, Fork, StateKind, fold
from flumina.state.compare import copied

State = Any
Constants = Mapping[type, Sequence[Any]]


_NESTED = 2
"""Steps on each side of a fork within a fork."""

SCENARIO_BLOCKS = 52
"""Blocks of choices that a scenario and a law together can use."""


class Rest:
    """A stand-in for all keys without events in a scenario."""

    def __repr__(self) -> str:
        return "any other key"


REST = Rest()
Atom = tuple[str, Key]
"""A tag and a key that scenarios use; the key may be :data:`REST`."""


@dataclass(frozen=True)
class Wire:
    """A state with its type and the atoms of its predicate; ``trace`` records how it was reached."""

    kind: StateKind
    atoms: tuple[Atom, ...]
    state: State
    trace: tuple[object, ...]
    """How the state was reached: texts, and the events it was updated with."""


@dataclass(frozen=True)
class ForkStep:
    """A fork as a step of a trace."""

    left: TagSet
    right: TagSet

    def __str__(self) -> str:
        return f"fork {{{self.left}}} | {{{self.right}}}"


@dataclass(frozen=True)
class Nested:
    """A fork that was joined again, with the steps of each half."""

    fork: object
    left: tuple[object, ...]
    right: tuple[object, ...]

    def __str__(self) -> str:
        left, right = (", ".join(map(str, steps)) or "nothing" for steps in (self.left, self.right))
        return f"{self.fork}, then join; on the left: {left}; on the right: {right}"


class Undefined(Exception):  # noqa: N818 -- it is caught here and becomes a finding
    """A function of the program raised, or returned something of the wrong shape, in a reachable situation."""

    def __init__(self, what: str, trace: tuple[object, ...]) -> None:
        super().__init__(what)
        self.what, self.trace = what, trace


class Universe:
    """The atoms of one program's scenarios, and which of them are independent."""

    @classmethod
    def all_of(cls, definition: Definition) -> Sequence[Universe]:
        """Return one universe for each choice of keys, the usual one first."""
        named = constants(definition)
        return [cls(definition, named, pool) for pool in pools(definition, named)]

    def __init__(self, definition: Definition, named: Constants | None = None, pool: Pool = KEYS) -> None:
        self.definition = definition
        self.constants = constants(definition) if named is None else named
        self.jumps = jumps([*periods(definition), *self.constants[int]])
        self.keys = {name: keys_of(tag, pool) for name, tag in definition.tags.items()}
        finite = isinstance(definition.depends, FunctionDependence)
        self.atoms: tuple[Atom, ...] = tuple(
            (name, key)
            for name, tag in definition.tags.items()
            for key in (*self.keys[name], *(() if tag.key is None or tag.finite_keys or finite else (REST,)))
        )
        self.tag_sets: dict[tuple[Atom, ...], TagSet] = {}
        self.dependent = {(a, b): definition.depends(*a, *b) for a, b in product(self.atoms, self.atoms)}

    def tag_set(self, atoms: tuple[Atom, ...]) -> TagSet:
        """Return the predicate that holds exactly these atoms."""
        if atoms not in self.tag_sets:
            self.tag_sets[atoms] = self._tag_set(atoms)
        return self.tag_sets[atoms]

    def _tag_set(self, atoms: tuple[Atom, ...]) -> TagSet:
        members: dict[str, KeySet] = {}
        for name, key in atoms:
            keys = KeySet.everything() - KeySet.of(*self.keys[name]) if key is REST else KeySet.of(key)
            members[name] = members.get(name, KeySet()) | keys
        return TagSet(members)

    def independent(self, atom: Atom, others: Sequence[Atom]) -> bool:
        """Return whether an atom is independent of all these atoms."""
        return not any(self.dependent[atom, other] for other in others)


def periods(definition: Definition) -> list[int]:
    """Return steps in time that cross the ticks of a program: periods, times to live, and one unit less or more."""
    found = []
    for tag in definition.tags.values():
        if isinstance(tag, Every):
            first = tag.schedule.after(0)
            second = None if first is None else tag.schedule.after(first)
            lengths = [] if first is None or second is None else [second - first]
            lengths += [tag.length] if isinstance(tag, Expiry) else []
            found += [step for length in lengths for step in (length - 1, length, length + 1)]
    return found


class Scenario:
    """A generator of one situation from choices; every event has its own place in O."""

    def __init__(self, universe: Universe, choices: Choices) -> None:
        self.universe, self.choices, self.definition = universe, choices, universe.definition
        self.clock, self.count = 0, 0

    # -- events and predicates --------------------------------------------------------------------------------

    def event(self, atoms: Sequence[Atom]) -> Event | None:
        """Return a new event of one of these atoms, later than all before it; None where there is none."""
        concrete = [atom for atom in atoms if atom[1] is not REST]
        if not concrete:
            return None
        name, key = self.choices.pick(concrete)
        tag = self.definition.tags[name]
        self.clock += self._tick()
        if isinstance(tag, Every):  # at a time of its schedule
            ts = tag.schedule.after(self.clock - 1)
            if ts is None:
                return None
            self.clock = ts
        self.count += 1
        given = self.definition.examples
        named = self.universe.constants
        columns = {f.name: value(self.choices, f, given.get(f.name), named) for f in tag.columns.fields}
        if tag.key is not None:
            columns[tag.key.name] = key
        return tag.event(ts=self.clock, stream=name, seq=self.count, **columns)

    def _tick(self) -> int:
        """Return the time from the event before: mostly 0 or 1; larger steps cross windows of any size."""
        step = self.choices.below(8)
        return self.choices.pick(self.universe.jumps) if step == 7 else step % 2

    def fork_of(self, wire: Wire) -> tuple[Fork, tuple[Atom, ...], tuple[Atom, ...]] | None:
        """Return a fork of the wire's type with two non-empty independent predicates, or None."""
        kinds, dependent = self.definition.kinds, self.universe.dependent
        forks = [fork for fork in self.definition.forks if fork.source == wire.kind.name]
        if not forks:
            return None
        fork = self.choices.pick(forks)
        left_atoms = [a for a in wire.atoms if self.allows(kinds[fork.left], a)]
        right_atoms = [a for a in wire.atoms if self.allows(kinds[fork.right], a)]
        pairs = [(a, b) for a in left_atoms for b in right_atoms if not dependent[a, b]]
        if not pairs:
            return None
        concrete = [pair for pair in pairs if pair[0][1] is not REST and pair[1][1] is not REST]
        first, second = self.choices.pick(concrete or pairs)
        left, right = [first], [second]
        sides = 0
        for number, atom in enumerate(wire.atoms):
            sides = sides >> 2 if number % 4 else self.choices.below(256)  # two bits an atom
            side = sides & 3
            to_left = side & 1 and atom not in left and atom in left_atoms
            if to_left and self.universe.independent(atom, right):
                left.append(atom)
            to_right = side & 2 and atom not in right and atom in right_atoms
            if to_right and self.universe.independent(atom, left):
                right.append(atom)
        return fork, tuple(left), tuple(right)

    def allows(self, kind: StateKind, atom: Atom) -> bool:
        """Return whether a state type takes the events of an atom."""
        name, key = atom
        return kind.predicate.has_any(name) if key is REST else kind.predicate.has(name, key)

    # -- running the program ----------------------------------------------------------------------------------

    def update(self, wire: Wire, event: Event) -> tuple[Wire, list[Row]]:
        """Return the wire after one event, and its outputs; the argument's state is not changed."""
        emit = Emit(self.definition.outputs)
        trace = (*wire.trace, event)
        try:
            state = fold(wire.kind, copied(wire.state), [event], emit)
        except UserCodeError as error:
            raise Undefined(f"{error.message}", trace) from error
        return replace(wire, state=state, trace=trace), rows(emit.drain())

    def divide(self, wire: Wire, fork: Fork, left: tuple[Atom, ...], right: tuple[Atom, ...]) -> tuple[Wire, Wire]:
        """Return the two halves of a wire; the argument's state is not changed."""
        sets = self.universe.tag_set(left), self.universe.tag_set(right)
        trace = (*wire.trace, ForkStep(*sets))
        halves = self._call("fork", trace, fork.function, copied(wire.state), *sets)
        if not (isinstance(halves, tuple | list) and len(halves) == 2):
            raise Undefined(f"fork returned {halves!r}, which is not a pair of states", trace)
        kinds = self.definition.kinds
        return (
            Wire(kinds[fork.left], left, halves[0], (*trace, "the left half")),
            Wire(kinds[fork.right], right, halves[1], (*trace, "the right half")),
        )

    def merge(self, fork: Fork, left: Wire, right: Wire) -> State:
        """Return the joined state; the arguments are not changed."""
        join = self.definition.join_of(fork).function
        return self._call("join", left.trace, join, copied(left.state), copied(right.state))

    def _call(self, name: str, trace: tuple[object, ...], function: Any, *args: Any) -> Any:  # noqa: ANN401
        try:
            with exact_decimals():
                return function(*args)
        except UserCodeError as error:
            raise Undefined(error.message, trace) from error
        except RAISED as error:
            raise Undefined(f"{name} raised {type(error).__name__}: {error}", trace) from error

    def evolve(self, wire: Wire, steps: int, depth: int = 1) -> Wire:
        """Return the wire after at most ``steps`` steps of its predicate: events, and nested forks that are joined."""
        for _ in range(steps):
            self.choices.step()
            action = self.choices.below(4)
            event = self.event(wire.atoms) if action in (1, 2) else None
            if event is not None:
                wire, _ = self.update(wire, event)
            if depth:  # the blocks of a nested fork are reserved whether they are used or not
                self.choices.step()
                choice = self.fork_of(wire) if action == 3 else None
                if choice is None:
                    self.choices.step(2 * _NESTED)
                else:
                    wire = self.nest(wire, *choice)
        return wire

    def nest(self, wire: Wire, fork: Fork, left: tuple[Atom, ...], right: tuple[Atom, ...]) -> Wire:
        """Fork a wire, evolve both halves, and join them."""
        first, second = self.divide(wire, fork, left, right)
        first, second = self.evolve(first, _NESTED, 0), self.evolve(second, _NESTED, 0)
        start = len(wire.trace)
        step = Nested(first.trace[start], first.trace[start + 2 :], second.trace[start + 2 :])
        return replace(wire, state=self.merge(fork, first, second), trace=(*wire.trace, step))

    def reach(self) -> list[Wire]:
        """Return reachable wires: after some events, then within up to two forks, the innermost last."""
        kind = self.definition.kinds[self.definition.initial]
        wires = [self.evolve(Wire(kind, self.universe.atoms, self.definition.init(), ("init",)), 3)]
        for _ in range(2):
            self.choices.step()
            choice = self.fork_of(wires[-1]) if self.choices.chance(3) else None
            if choice is not None:
                fork, left, right = choice
                half = self.choices.pick(self.divide(wires[-1], fork, left, right))
                wires.append(self.evolve(half, 2, 0))
            else:
                self.choices.step(2)
        self.choices.step()
        return wires
