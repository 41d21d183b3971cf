"""Random valid plans for a program, biased towards trees in which something can go wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from flumina.model.hashing import BUCKETS
from flumina.model.tag import Tag
from flumina.model.tag_set import KeySet, TagSet
from flumina.model.tick import Tick
from flumina.plan.sources import tick_streams
from flumina.plan.tree import Itag, Plan, PlanWorker, StreamShape, merged
from flumina.program.definition import Definition
from flumina.sim.case import Case
from flumina.sim.coverage import HOT, INDEPENDENT_CHILD, SINGLE, TAGGED_INNER, UNTAGGED_ROOT, traits
from flumina.sim.inputs import keys_of, random_input

_STREAMS = 6
"""How often other streams are tried before a plan of a single leaf is taken."""

_TRIES = 12
"""How many plans are made before one without the chosen trait is taken."""


@dataclass(frozen=True)
class _Atom:
    """The smallest piece that plans are made of: some keys of one tag on one part."""

    stream: str
    part: int
    tags: TagSet

    def leaf_only(self, definition: Definition) -> bool:
        """Return whether it has ticks of unnamed keys, which are for leaves."""
        return any(isinstance(definition.tags[name], Tick) and not keys.is_finite for name, keys in self.tags)

    def itag(self) -> Itag:
        return Itag(self.stream, frozenset({self.part}), self.tags)


def random_case(random: Random, definition: Definition, events: int = 60) -> Case:
    """Return a random plan with random input; seldom a plan of a single worker."""
    for _ in range(_STREAMS):
        shapes = random_streams(random, definition)
        shapes += [shape for shape, _ in tick_streams(definition)]
        plan = random_plan(random, definition, shapes)
        if len(plan) > 1 or random.random() < 0.05:
            break
    return Case(definition, plan, random_input(random, definition, shapes, events))


def random_streams(random: Random, definition: Definition) -> list[StreamShape]:
    """One stream for each tag, now and then two tags on one stream, each in one to three parts."""
    names = [name for name, tag in definition.tags.items() if not isinstance(tag, Tick)]
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
    """A valid plan; most have several leaves, and tagged workers above them.

    A trait is drawn first, and plans are made until one has it: not every program and input allow every trait.
    """
    hot = 8 if definition.lifted is not None else 0
    trait = random.choices((TAGGED_INNER, UNTAGGED_ROOT, INDEPENDENT_CHILD, HOT, None), (5, 3, 3, hot, 1))[0]
    best, fallback = None, None
    for _ in range(_TRIES):
        plan = _plan(random, definition, shapes)
        found = traits(plan, definition)
        if trait is None or trait in found:
            return plan
        if SINGLE not in found:
            best = plan
        fallback = plan
    chosen = best or fallback
    assert chosen is not None
    return chosen


def _plan(random: Random, definition: Definition, shapes: Sequence[StreamShape]) -> Plan:
    shared = random.random() < 0.5
    pieces = {name: key_pieces(random, definition.tags[name]) for shape in shapes for name, _ in shape.tags}
    if definition.lifted is not None and random.random() < 0.8:
        shared, pieces = True, hot_and_cold(random, definition)
    atoms = [
        _Atom(shape.name, part, TagSet([(name, keys)]))
        for shape in shapes
        for name, _ in shape.tags
        for keys in (pieces[name] if shared else key_pieces(random, definition.tags[name]))
        for part in range(shape.parts)
    ]
    grower = _Grower(random, definition, atoms)
    return Plan.of(definition, shapes, grower.grow(range(len(atoms)), definition.initial))


def key_pieces(random: Random, tag: Tag) -> list[KeySet]:
    """A division of a tag's keys: all together, or some named ones and the rest."""
    if tag.key is None or random.random() < 0.25:
        return [tag.universe]
    named = random.sample(list(keys_of(tag)), random.randint(1, 2))
    pieces = [*(KeySet.of(key) for key in named), tag.universe - KeySet.of(*named)]
    return [keys for keys in pieces if not keys.is_empty()]


def hot_and_cold(random: Random, definition: Definition) -> dict[str, list[KeySet]]:
    """One division of the keys for all tags: a hot key or two, and the cold ones in shards of hash buckets."""
    keyed = [tag for tag in definition.tags.values() if tag.key is not None]
    hot = [KeySet.of(key) for key in random.sample(list(keys_of(keyed[0])), random.randint(1, 2))]
    shards = random.randint(1, 3)
    cold = [KeySet.from_buckets(range(n, BUCKETS, shards)) for n in range(shards)]
    for key in hot:
        cold = [shard - key for shard in cold]
    pieces = {tag.name: [piece & tag.universe for piece in (*hot, *cold)] for tag in keyed}
    pieces = {name: [piece for piece in of_tag if not piece.is_empty()] for name, of_tag in pieces.items()}
    return {name: pieces.get(name, [tag.universe]) for name, tag in definition.tags.items()}


@dataclass
class _Grower:
    """Trees over atoms, which are known by their numbers."""

    random: Random
    definition: Definition
    atoms: Sequence[_Atom]
    count: int = 0
    near: list[set[int]] = field(default_factory=list)
    """For each atom the atoms that depend on it."""

    def __post_init__(self) -> None:
        between = self.definition.depends.between
        sets = list(dict.fromkeys(atom.tags for atom in self.atoms))
        linked = {(a, b) for a in sets for b in sets if between(a, b)}
        self.near = [{n for n, other in enumerate(self.atoms) if (a.tags, other.tags) in linked} for a in self.atoms]

    def grow(self, atoms: Sequence[int], kind: str, depth: int = 0) -> PlanWorker:
        """Return a subtree that handles these atoms."""
        self.count += 1
        name = f"w{self.count}"
        split = None if depth and self.random.random() < 0.25 * depth else self.split(atoms)
        forks = [fork for fork in self.definition.forks if fork.source == kind]
        if split is not None and forks:
            own, left, right = split
            fork = self.random.choice(forks)
            sides = ((left, fork.left), (right, fork.right))
            named = not any(self.atoms[n].leaf_only(self.definition) for n in own)
            if named and all(self.tags(side) <= self.definition.kinds[k].predicate for side, k in sides):
                children = tuple(self.grow(side, k, depth + 1) for side, k in sides)
                return PlanWorker(name, kind, self.itags(own), children)
        return PlanWorker(name, kind, self.itags(atoms))

    def itags(self, atoms: Sequence[int]) -> tuple[Itag, ...]:
        return merged(self.atoms[n].itag() for n in atoms)

    def tags(self, atoms: Sequence[int]) -> TagSet:
        total = TagSet()
        for n in atoms:
            total |= self.atoms[n].tags
        return total

    def split(self, atoms: Sequence[int]) -> tuple[list[int], list[int], list[int]] | None:
        """Return own atoms for a worker, and two independent groups for its children."""
        rest, own = list(atoms), []
        if self.random.random() < 0.3 and len(rest) > 2:
            own.append(rest.pop(self.random.randrange(len(rest))))
        while rest:
            groups = self.groups(rest)
            if len(groups) > 1:
                self.random.shuffle(groups)
                middle = self.random.randint(1, len(groups) - 1)
                return own, [a for g in groups[:middle] for a in g], [a for g in groups[middle:] for a in g]
            left = set(rest)
            degree = {a: len(self.near[a] & left) for a in rest}
            most = max(degree.values())
            chosen = [a for a in rest if degree[a] == most] if self.random.random() < 0.8 else rest
            atom = self.random.choice(chosen)
            rest.remove(atom)
            own.append(atom)
        return None

    def groups(self, atoms: Sequence[int]) -> list[list[int]]:
        """Return the connected components under dependence."""
        left, found = dict.fromkeys(atoms), []
        while left:
            group = [left.popitem()[0]]
            for atom in group:
                near = [other for other in left if other in self.near[atom]]
                group += near
                for other in near:
                    del left[other]
            found.append(group)
        return found
