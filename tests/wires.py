"""Definition 2.2 of the paper, word for word: wire diagrams, what they mean, and random ones.

A diagram is one of::

    Empty()                        rule (1)    <State, pred, s> --[] / []--> s
    Update(e)                      rule (2)    e satisfies pred
    Then(first, second)            rule (3)
    Parallel(fork, join, ...)      rule (4)    pred1 and pred2 independent, both within pred; u and v interleave

It is interpreted for a wire ``<State_i, pred, s>``, every side condition checked, and says which stream of events it
consumed: any interleaving of the two sides, here one that the diagram's own random numbers choose.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any, TypeVar

import pyarrow as pa

import flumina as fl
from flumina.model.emit import Emit, Row, rows
from flumina.model.tag_set import UNKEYED, KeySet, TagSet
from flumina.program.definition import Definition, Fork, Join
from flumina.state.compare import copied

T = TypeVar("T")


@dataclass(frozen=True)
class Empty:
    """A wire on which nothing happens."""


@dataclass(frozen=True)
class Update:
    """One event."""

    event: fl.Event


@dataclass(frozen=True)
class Then:
    """One diagram after the other on the same wire."""

    first: Diagram
    second: Diagram


@dataclass(frozen=True)
class Parallel:
    """A fork, two diagrams side by side, and a join; ``seed`` chooses the interleavings."""

    fork: Fork
    join: Join
    left_predicate: TagSet
    right_predicate: TagSet
    left: Diagram
    right: Diagram
    seed: int


Diagram = Empty | Update | Then | Parallel


@dataclass(frozen=True)
class Wire:
    """``<State_i, pred, s>``; the predicate is within that of the state type."""

    definition: Definition
    kind: str
    predicate: TagSet
    state: Any

    def __post_init__(self) -> None:
        assert self.predicate <= self.definition.kinds[self.kind].predicate, "pred implies pred_i"


@dataclass(frozen=True)
class Meaning:
    """``<State, pred, s> --u / v--> s'``."""

    state: Any
    inputs: tuple[fl.Event, ...]
    outputs: tuple[Row, ...]


def interpret(diagram: Diagram, wire: Wire) -> Meaning:
    """What a diagram does on a wire."""
    if isinstance(diagram, Empty):
        return Meaning(wire.state, (), ())
    if isinstance(diagram, Update):
        return _update(diagram.event, wire)
    if isinstance(diagram, Then):
        first = interpret(diagram.first, wire)
        second = interpret(diagram.second, Wire(wire.definition, wire.kind, wire.predicate, first.state))
        return Meaning(second.state, first.inputs + second.inputs, first.outputs + second.outputs)
    return _parallel(diagram, wire)


def _update(event: fl.Event, wire: Wire) -> Meaning:
    assert wire.predicate.has(event.tag, event.key), "e satisfies pred"
    emit = Emit(wire.definition.outputs)
    emit.event = event
    result = wire.definition.kinds[wire.kind].update(wire.state, event, emit)
    return Meaning(wire.state if result is None else result, (event,), tuple(rows(emit.drain())))


def _parallel(diagram: Parallel, wire: Wire) -> Meaning:
    definition, fork, join = wire.definition, diagram.fork, diagram.join
    left, right = diagram.left_predicate, diagram.right_predicate
    assert not definition.depends.between(left, right), "pred1(e1) and pred2(e2) imply indep(e1, e2)"
    assert left <= wire.predicate, "pred1 implies pred"
    assert right <= wire.predicate, "pred2 implies pred"
    assert wire.kind == fork.source == join.target, "fork and join come in pairs"
    assert (fork.left, fork.right) == (join.left, join.right), "fork and join come in pairs"
    s1, s2 = fork.function(copied(wire.state), left, right)
    one = interpret(diagram.left, Wire(definition, fork.left, left, s1))
    two = interpret(diagram.right, Wire(definition, fork.right, right, s2))
    rng = Random(diagram.seed)
    return Meaning(
        join.function(one.state, two.state),
        tuple(interleaved(one.inputs, two.inputs, rng)),
        tuple(interleaved(one.outputs, two.outputs, rng)),
    )


def interleaved(left: tuple[T, ...], right: tuple[T, ...], rng: Random) -> Iterator[T]:
    """Some interleaving of two sequences."""
    i = j = 0
    while i < len(left) or j < len(right):
        if j == len(right) or (i < len(left) and rng.random() < 0.5):
            yield left[i]
            i += 1
        else:
            yield right[j]
            j += 1


def with_events_on_both_sides(diagram: Diagram) -> Iterator[Parallel]:
    """The forks of a diagram both of whose sides process something, nested ones included."""
    if isinstance(diagram, Then):
        yield from with_events_on_both_sides(diagram.first)
        yield from with_events_on_both_sides(diagram.second)
    elif isinstance(diagram, Parallel):
        if has_events(diagram.left) and has_events(diagram.right):
            yield diagram
        yield from with_events_on_both_sides(diagram.left)
        yield from with_events_on_both_sides(diagram.right)


def has_events(diagram: Diagram) -> bool:
    """Whether a diagram processes anything."""
    if isinstance(diagram, Then):
        return has_events(diagram.first) or has_events(diagram.second)
    if isinstance(diagram, Parallel):
        return has_events(diagram.left) or has_events(diagram.right)
    return isinstance(diagram, Update)


def depth(diagram: Diagram) -> int:
    """How deep forks are nested in each other."""
    if isinstance(diagram, Then):
        return max(depth(diagram.first), depth(diagram.second))
    if isinstance(diagram, Parallel):
        return 1 + max(depth(diagram.left), depth(diagram.right))
    return 0


@dataclass(frozen=True)
class Generator:
    """Random diagrams of a program, over a few keys."""

    definition: Definition
    keys: tuple[Any, ...]
    rng: Random
    numbers: Iterator[int] = field(default_factory=count)

    def diagram(self, size: int = 14) -> Diagram:
        """A diagram for the initial wire."""
        return self._on(self.definition.initial, self.definition.everything, size, nesting=3)

    def event(self, within: TagSet) -> fl.Event | None:
        """A random event that a predicate allows, of the keys in use."""
        names = list(within.tags)
        self.rng.shuffle(names)
        for name in names:
            tag = self.definition.tags[name]
            keys = [key for key in self.keys if within.has(name, key)] if tag.key is not None else [None]
            if keys:
                columns: dict[str, Any] = {field.name: self._value(field) for field in tag.columns.fields}
                if tag.key is not None:
                    columns[tag.key.name] = self.rng.choice(keys)
                return tag.event(seq=next(self.numbers), **columns)
        return None

    def _value(self, column: pa.Field) -> object:
        if column.name in self.definition.examples:
            return self.rng.choice(self.definition.examples[column.name])
        if pa.types.is_integer(column.type):
            return self.rng.randrange(1, 4) * 500
        if pa.types.is_floating(column.type):
            return self.rng.randrange(5) / 4
        return self.rng.choice(["x", "y", None] if column.nullable else ["x", "y", "z"])

    def _on(self, kind: str, predicate: TagSet, size: int, nesting: int) -> Diagram:
        diagram: Diagram = Empty()
        while size > 0:
            forks = [fork for fork in self.definition.forks if fork.source == kind]
            step: Diagram | None = None
            part = 1
            if nesting and forks and size > 1 and self.rng.random() < 0.5:
                part = self.rng.randrange(2, size + 1)
                step = self._fork(self.rng.choice(forks), predicate, part, nesting)
            if step is None:
                part = 1
                event = self.event(predicate)
                step = Empty() if event is None else Update(event)
            size -= part
            diagram = Then(diagram, step)
        return diagram

    def _fork(self, fork: Fork, predicate: TagSet, size: int, nesting: int) -> Parallel | None:
        left, right = self._independent(fork, predicate)
        if left.is_empty() or right.is_empty():
            return None
        cut = self.rng.randrange(1, size)
        return Parallel(
            fork,
            self.definition.join_of(fork),
            left,
            right,
            self._on(fork.left, left, cut, nesting - 1),
            self._on(fork.right, right, size - cut, nesting - 1),
            self.rng.randrange(2**32),
        )

    def _independent(self, fork: Fork, predicate: TagSet) -> tuple[TagSet, TagSet]:
        """Two random independent predicates, put together from single tags and keys in random order.

        They need not be disjoint: independent events may go to both sides, or to none. A share goes by hash buckets
        instead, so that predicates with unbounded keys occur. Empty ones are no use: no plan has a worker without
        tags, and the paper's own programs rely on that ("left model" on a side that can't know it).
        """
        sides = [TagSet(), TagSet()]
        limits = [predicate & self.definition.kinds[kind].predicate for kind in (fork.left, fork.right)]
        pieces = list(self._pieces(predicate))
        self.rng.shuffle(pieces)
        for piece in pieces:
            for side in self.rng.choice([(), (0,), (1,), (0, 1), (1, 0), (0, 1)]):
                allowed = piece & limits[side]
                if not self.definition.depends.between(allowed, sides[1 - side]):
                    sides[side] |= allowed
        return sides[0], sides[1]

    def _pieces(self, predicate: TagSet) -> Iterator[TagSet]:
        by_bucket = self.rng.random() < 0.3
        half = KeySet.from_buckets(range(0, 4096, 2))
        for name in predicate.tags:
            if self.definition.tags[name].key is None:
                yield TagSet({name: UNKEYED})
            elif by_bucket:
                yield TagSet({name: half})
                yield TagSet({name: KeySet.everything() - half})
            else:
                yield from (TagSet({name: KeySet.of(key)}) for key in self.keys)
