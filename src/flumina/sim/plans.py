"""Random valid plans and random input for a program, biased towards trees in which something can go wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from flumina.check.choices import Choices
from flumina.check.values import KEYS, value
from flumina.definition import Definition
from flumina.events import Tag
from flumina.order import Point
from flumina.plan.tree import Itag, Plan, StreamShape, Worker, merged
from flumina.runtime.messages import PartId
from flumina.sim.case import Case, Entry
from flumina.tagsets import Key, KeySet, TagSet


@dataclass(frozen=True)
class _Atom:
    """The smallest piece that plans are made of: some keys of one tag on one part."""

    stream: str
    part: int
    tags: TagSet

    def itag(self) -> Itag:
        return Itag(self.stream, frozenset({self.part}), self.tags)


def random_case(random: Random, definition: Definition, events: int = 60) -> Case:
    """A random plan for a program and random input for it."""
    shapes = random_streams(random, definition)
    plan = random_plan(random, definition, shapes)
    return Case(definition, plan, random_input(random, definition, shapes, events))


def random_streams(random: Random, definition: Definition) -> list[StreamShape]:
    """One stream for each tag, now and then two tags on one stream, each in one to three parts."""
    names = list(definition.tags)
    random.shuffle(names)
    groups: list[list[str]] = []
    for name in names:
        if groups and random.random() < 0.15:
            groups[-1].append(name)
        else:
            groups.append([name])
    return [
        StreamShape(f"s{n}", random.choice((1, 1, 2, 2, 3)), TagSet.all_of(definition.tags[name] for name in group))
        for n, group in enumerate(groups)
    ]


def random_plan(random: Random, definition: Definition, shapes: Sequence[StreamShape]) -> Plan:
    """A valid plan; most have several leaves, and tagged workers above them."""
    atoms = [
        _Atom(shape.name, part, TagSet([(name, keys)]))
        for shape in shapes
        for name, _ in shape.tags
        for keys in _pieces(random, definition.tags[name])
        for part in range(shape.parts)
    ]
    return Plan.of(definition, shapes, _Grower(random, definition).grow(atoms, definition.initial))


def _pieces(random: Random, tag: Tag) -> list[KeySet]:
    """A division of a tag's keys: all together, or some named ones and the rest."""
    if tag.key is None or random.random() < 0.4:
        return [tag.universe]
    named = random.sample(list(_keys(tag)), random.randint(1, 2))
    pieces = [*(KeySet.of(key) for key in named), tag.universe - KeySet.of(*named)]
    return [keys for keys in pieces if not keys.is_empty()]


def _keys(tag: Tag) -> Sequence[Key]:
    assert tag.key is not None
    return sorted(tag.finite_keys, key=repr) if tag.finite_keys else KEYS[tag.key.type]


@dataclass
class _Grower:
    random: Random
    definition: Definition
    count: int = 0
    edges: dict[tuple[_Atom, _Atom], bool] = field(default_factory=dict)

    def dependent(self, a: _Atom, b: _Atom) -> bool:
        if (a, b) not in self.edges:
            self.edges[a, b] = self.edges[b, a] = self.definition.depends.between(a.tags, b.tags)
        return self.edges[a, b]

    def grow(self, atoms: Sequence[_Atom], kind: str, depth: int = 0) -> Worker:
        """A subtree that handles these atoms."""
        self.count += 1
        name = f"w{self.count}"
        split = None if depth and self.random.random() < 0.15 * depth else self.split(atoms)
        forks = [fork for fork in self.definition.forks if fork.source == kind]
        if split is not None and forks:
            own, left, right = split
            fork = self.random.choice(forks)
            kinds = self.definition.kinds
            sides = ((left, fork.left), (right, fork.right))
            if all(_all_tags(side) <= kinds[k].predicate for side, k in sides):
                children = tuple(self.grow(side, k, depth + 1) for side, k in sides)
                return Worker(name, kind, merged(atom.itag() for atom in own), children)
        return Worker(name, kind, merged(atom.itag() for atom in atoms))

    def split(self, atoms: Sequence[_Atom]) -> tuple[list[_Atom], list[_Atom], list[_Atom]] | None:
        """Own atoms for a worker, and two independent non-empty groups for its children."""
        rest, own = list(atoms), []
        if self.random.random() < 0.3 and len(rest) > 2:
            own.append(rest.pop(self.random.randrange(len(rest))))
        while rest:
            groups = self.groups(rest)
            if len(groups) > 1:
                self.random.shuffle(groups)
                cut = self.random.randint(1, len(groups) - 1)
                return own, [a for g in groups[:cut] for a in g], [a for g in groups[cut:] for a in g]
            degree = {a: sum(self.dependent(a, b) for b in rest) for a in rest}
            most = max(degree.values())
            chosen = [a for a in rest if degree[a] == most] if self.random.random() < 0.8 else rest
            atom = self.random.choice(chosen)
            rest.remove(atom)
            own.append(atom)
        return None

    def groups(self, atoms: Sequence[_Atom]) -> list[list[_Atom]]:
        """Connected components under dependence."""
        left, found = list(atoms), []
        while left:
            group = [left.pop()]
            for atom in group:
                near = [other for other in left if self.dependent(atom, other)]
                group += near
                left = [other for other in left if other not in near]
            found.append(group)
        return found


def _all_tags(atoms: Sequence[_Atom]) -> TagSet:
    """All events of these atoms."""
    total = TagSet()
    for atom in atoms:
        total |= atom.tags
    return total


def random_input(
    random: Random, definition: Definition, shapes: Sequence[StreamShape], events: int
) -> Mapping[PartId, Sequence[Entry]]:
    """Events spread over all parts, with many equal timestamps; every point is another."""
    parts = [(shape, rank, part) for rank, shape in enumerate(shapes) for part in range(shape.parts)]
    made: dict[PartId, list[Entry]] = {(shape.name, part): [] for shape, _, part in parts}
    weights = [random.choice((1, 1, 4)) for _ in parts]
    clock = 0
    for seq in range(events):
        clock += random.choice((0, 0, 1, 2))
        shape, rank, part = random.choices(parts, weights)[0]
        tag = definition.tags[random.choice(shape.tags.tags)]
        choices = Choices(random.randbytes(8))
        columns = {f.name: value(choices, f, definition.examples.get(f.name)) for f in tag.columns.fields}
        if tag.key is not None:
            columns[tag.key.name] = random.choice(_keys(tag))
        event = tag.event(ts=clock, stream=shape.name, seq=seq, **columns)
        made[shape.name, part].append((Point(clock, rank, seq), event))
    for entries in made.values():
        entries.sort(key=lambda entry: entry[0])
    return made
