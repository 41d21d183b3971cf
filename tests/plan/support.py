"""Programs, random plans, and a slow validity checker that knows nothing of tag sets."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from itertools import chain, combinations, product
from typing import Any

import flumina as fl
from flumina.model.hashing import BUCKETS, bucket_of
from flumina.model.tag_set import UNKEYED, Key, KeySet, TagSet
from flumina.plan import Itag, Plan, PlanWorker, StreamShape
from flumina.plan.state_types import assign_state_types
from flumina.plan.tree import merged
from flumina.program.definition import Definition

BLOCKS = 4
"""Random key sets consist of named keys and of whole blocks of buckets, so that one key can stand for a block."""

STRANGER = 999
"""A key that finite tags don't have."""


class _Mute(fl.Program, abstract=True):
    """State that nobody looks at: plans depend on tags, dependence and state types only."""

    def init(self) -> int:
        return 0

    def update(self, state: int, event: fl.Event, emit: fl.Emit) -> int:
        return state

    def fork(self, state: int, left: fl.TagSet, right: fl.TagSet) -> tuple[int, int]:
        return state, state

    def join(self, left: int, right: int) -> int:
        return left


class Keyed(_Mute):
    """Reads and increments of unbounded keys."""

    inc = fl.Tag(key="k long")
    read = fl.Tag(key="k long")
    depends = fl.depends((read, read), (read, inc))


class Global(_Mute):
    """Keyed events and one that depends on all of them."""

    put = fl.Tag(key="k long")
    get = fl.Tag(key="k long")
    flush = fl.Tag()
    depends = fl.depends((put, put), (put, get), (flush, flush), (flush, put), (flush, get))


class Finite(_Mute):
    """Dependence by a function that no rule says."""

    a = fl.Tag(key="k long", keys=[1, 2, 3])
    b = fl.Tag(key="k long", keys=[1, 2])

    @staticmethod
    def depends(one: fl.Atom, other: fl.Atom) -> bool:
        assert isinstance(one.key, int)
        assert isinstance(other.key, int)
        return abs(one.key - other.key) == 1 or (one.tag.name == other.tag.name == "b" and one.key == other.key)


class Typed(fl.Program):
    """Three state types: reading goes to the left side, counting to the right."""

    inc = fl.Tag(key="k long")
    read = fl.Tag(key="k long")
    depends = fl.depends((read, read), (read, inc))
    Whole = fl.StateType()
    Reader = fl.StateType(read, inc)
    Counter = fl.StateType(inc)

    def init(self) -> int:
        return 0

    @fl.update(Whole, Reader, Counter)
    def step(self, state: int, event: fl.Event, emit: fl.Emit) -> int:
        return state

    @fl.fork(Whole, into=(Reader, Counter))
    def divide(self, state: int, left: fl.TagSet, right: fl.TagSet) -> tuple[int, int]:
        return state, 0

    @fl.join((Reader, Counter), into=Whole)
    def unite(self, left: int, right: int) -> int:
        return left + right

    @fl.fork(Reader, into=(Reader, Reader))
    def divide_reader(self, state: int, left: fl.TagSet, right: fl.TagSet) -> tuple[int, int]:
        return state, 0

    @fl.join((Reader, Reader), into=Reader)
    def unite_readers(self, left: int, right: int) -> int:
        return left + right

    @fl.fork(Counter, into=(Counter, Counter))
    def divide_counter(self, state: int, left: fl.TagSet, right: fl.TagSet) -> tuple[int, int]:
        return state, 0

    @fl.join((Counter, Counter), into=Counter)
    def unite_counters(self, left: int, right: int) -> int:
        return left + right


PROGRAMS = (Keyed, Global, Finite, Typed)

Piece = tuple[str, int, str, object]
"""Stream, part, tag, and a named key or the number of a block."""


class Block(int):
    """All keys of a block of buckets but the named ones."""

    __slots__ = ()


NAMED = (1, 2)


@cache
def block_keys(block: int) -> KeySet:
    size = BUCKETS // BLOCKS
    keys = KeySet.from_buckets(range(block * size, (block + 1) * size))
    return keys - KeySet.of(*NAMED)


def stand_in(block: int) -> int:
    """A key of a block that nobody names."""
    size = BUCKETS // BLOCKS
    return next(key for key in range(1000, 100_000) if bucket_of(key) // size == block)


STAND_INS = tuple(stand_in(block) for block in range(BLOCKS))


def cells(definition: Definition, tag: str) -> list[KeySet]:
    declared = definition.tags[tag]
    if declared.key is None:
        return [UNKEYED]
    if declared.finite_keys is not None:
        return [KeySet.of(key) for key in sorted(declared.finite_keys, key=repr)]
    return [*(KeySet.of(key) for key in NAMED), *(block_keys(block) for block in range(BLOCKS))]


def random_streams(definition: Definition, rng: random.Random) -> list[StreamShape]:
    tags = list(definition.tags)
    rng.shuffle(tags)
    cut = rng.randint(0, len(tags) - 1)
    groups = [tags] if cut == 0 else [tags[:cut], tags[cut:]]
    shapes = []
    for number, names in enumerate(groups):
        parts = rng.randint(1, 3)
        whole = TagSet((name, definition.everything[name]) for name in names)
        held: tuple[TagSet, ...] = ()
        if parts > 1 and rng.random() < 0.3:  # parts that declare their keys
            held = tuple(_some_of(definition, names, rng) for _ in range(parts))
            whole = held[0]
            for tags_of_part in held[1:]:
                whole |= tags_of_part
        shapes.append(StreamShape(f"s{number}", parts, whole, held))
    return shapes


def _some_of(definition: Definition, names: Iterable[str], rng: random.Random) -> TagSet:
    found = TagSet()
    for name in names:
        of_tag = cells(definition, name)
        for cell in rng.sample(of_tag, rng.randint(1, len(of_tag))):
            found |= TagSet([(name, cell)])
    return found


def pieces(definition: Definition, shapes: Iterable[StreamShape]) -> list[Itag]:
    """The input in the smallest pieces that random plans place."""
    return [
        Itag(shape.name, frozenset({part}), TagSet([(tag, cell)]))
        for shape in shapes
        for part in range(shape.parts)
        for tag, keys in shape.of_part(part)
        for cell in cells(definition, tag)
        if cell.overlaps(keys)
    ]


def random_valid_plan(definition: Definition, shapes: list[StreamShape], rng: random.Random) -> Plan:
    root = assign_state_types(_random_tree(definition, pieces(definition, shapes), rng), definition)
    return Plan.of(definition, shapes, root)


def _random_tree(definition: Definition, left: list[Itag], rng: random.Random) -> PlanWorker:
    for _ in range(4):
        tags = sorted({tag for itag in left for tag in itag.tags.tags})
        above = {tag for tag in tags if rng.random() < 0.4}
        own = [itag for itag in left if itag.tags.tags[0] in above and rng.random() < 0.95]
        rest = [itag for itag in left if itag not in own]
        groups = _components(definition, rest)
        if len(groups) > 1 and rng.random() < 0.9:
            rng.shuffle(groups)
            cut = rng.randint(1, len(groups) - 1)
            sides = (list(chain(*groups[:cut])), list(chain(*groups[cut:])))
            children = tuple(_random_tree(definition, side, rng) for side in sides)
            return PlanWorker("", "", tuple(own) if rng.random() < 0.3 else merged(own), children)
    return PlanWorker("", "", tuple(left) if rng.random() < 0.3 else merged(left))


def _components(definition: Definition, itags: list[Itag]) -> list[list[Itag]]:
    groups: list[list[Itag]] = []
    for itag in itags:
        linked = [g for g in groups if any(definition.depends.between(itag.tags, other.tags) for other in g)]
        groups = [g for g in groups if g not in linked] + [[itag, *chain(*linked)]]
    return groups


Verdict = set[tuple[Any, ...]]


def brute_force(plan: Plan, definition: Definition) -> Verdict:
    """What is wrong with a plan, by looking at every single (stream, part, tag, key)."""
    workers = plan.workers
    handles = [_claims(worker) for worker in workers]
    by_worker = {id(worker): handled for worker, handled in zip(workers, handles, strict=True)}
    subtree = [{(t, k) for below in worker.walk() for _, _, t, k in by_worker[id(below)]} for worker in workers]
    found: Verdict = set()
    for number, worker in enumerate(workers):
        found |= {("CHILDREN", worker.id)} if len(worker.children) not in {0, 2} else set()
        found |= {("EMPTY_LEAF", worker.id)} if not worker.children and not handles[number] else set()
        found |= {("DUPLICATE_ID", worker.id)} if [w.id for w in workers].count(worker.id) > 1 else set()
        found |= _kinds(worker, subtree[number], definition, root=number == 0)
        by_itag = [_claims(replace(worker, itags=(itag,))) for itag in worker.itags]
        if any(one & other for one, other in combinations(by_itag, 2)):
            found.add(("HANDLED_TWICE", worker.id))
    events = _events(plan)
    for number, worker in enumerate(workers):
        for stream, part, tag, _ in handles[number] - events:
            found.add((_why(plan, definition, stream, part, tag), worker.id))
    for event in events:
        if not any(event in handled for handled in handles):
            found.add(("NOT_HANDLED",))
    above = [{number, *_ancestors(plan, number)} for number in range(len(workers))]
    for one, other in combinations(range(len(workers)), 2):
        ids = tuple(sorted((workers[one].id, workers[other].id)))
        if handles[one] & handles[other] & events:
            found.add(("HANDLED_TWICE", *ids))
        if one not in above[other] and _dependent(handles[one], handles[other], definition):
            found.add(("DEPENDENT", *ids))
    return found


@cache
def _listed(keys: KeySet) -> list[Key]:
    """The keys of a set, of those that are enough to tell random plans apart."""
    return [None] if keys == UNKEYED else [key for key in (STRANGER, *NAMED, 3, *STAND_INS) if key in keys]


def _claims(worker: PlanWorker) -> set[tuple[str, int, str, Key]]:
    return {
        (itag.stream, part, tag, key)
        for itag in worker.itags
        for tag, keys in itag.tags
        for key in _listed(keys)
        for part in itag.parts
    }


def _events(plan: Plan) -> set[tuple[str, int, str, Key]]:
    return {
        (shape.name, part, tag, key)
        for shape in plan.streams
        for part in range(shape.parts)
        for tag, keys in shape.of_part(part)
        for key in _listed(keys)
    }


def _ancestors(plan: Plan, number: int) -> list[int]:
    found = []
    parent = plan.parents[number]
    while parent is not None:
        found.append(parent)
        parent = plan.parents[parent]
    return found


def _kinds(worker: PlanWorker, events: set[tuple[str, Key]], definition: Definition, *, root: bool) -> Verdict:
    found: Verdict = set()
    if root and worker.kind != definition.initial:
        found.add(("ROOT_KIND", worker.id))
    if worker.kind not in definition.kinds:
        return found | {("UNKNOWN_KIND", worker.id)}
    takes = definition.kinds[worker.kind].predicate
    known = {(t, k) for t, k in events if t in definition.tags and k in definition.tags[t].universe}
    if any(not takes.has(tag, key) for tag, key in known):
        found.add(("KIND_TAGS", worker.id))
    kinds = [child.kind for child in worker.children]
    if len(kinds) == 2 and all(kind in definition.kinds for kind in kinds):
        forks = {(f.source, f.left, f.right) for f in definition.forks}
        joins = {(j.target, j.left, j.right) for j in definition.joins}
        found |= {("NO_FORK", worker.id)} if (worker.kind, *kinds) not in forks else set()
        found |= {("NO_JOIN", worker.id)} if (worker.kind, *kinds) not in joins else set()
    return found


def _why(plan: Plan, definition: Definition, stream: str, part: int, tag: str) -> str:
    shapes: Mapping[str, StreamShape] = {shape.name: shape for shape in plan.streams}
    if stream not in shapes:
        return "UNKNOWN_STREAM"
    if tag not in shapes[stream].tags.tags:
        return "UNKNOWN_TAG"
    return "UNKNOWN_PART" if part >= shapes[stream].parts else "UNKNOWN_KEY"


def _dependent(one: set[Any], other: set[Any], definition: Definition) -> bool:
    known = [
        {(t, k) for _, _, t, k in events if t in definition.tags and k in definition.tags[t].universe}
        for events in (one, other)
    ]
    return any(definition.depends(t, k, u, m) for (t, k), (u, m) in product(*known))


def perturbed(plan: Plan, definition: Definition, rng: random.Random) -> Plan:
    """A plan with one thing changed, for better or worse."""
    workers = list(plan.workers)
    all_pieces = pieces(definition, plan.streams)
    choice = rng.randrange(12)
    victim = rng.choice(workers)
    piece = rng.choice(all_pieces)
    if choice in {0, 1, 2}:  # a piece moves to another worker
        moved = _changed(plan.root, {id(w): _minus(w.itags, piece) for w in workers})
        target = rng.choice(list(moved.walk()))
        return replace(plan, root=_changed(moved, {id(target): (*target.itags, piece)}))
    if choice == 3:  # a piece has a second worker
        return replace(plan, root=_changed(plan.root, {id(victim): (*victim.itags, piece)}))
    if choice == 4:  # a piece has none
        return replace(plan, root=_changed(plan.root, {id(w): _minus(w.itags, piece) for w in workers}))
    if choice == 5:  # an itag that can't be
        keyed = [name for name, tag in definition.tags.items() if tag.key is not None]
        strange = rng.choice(
            [
                replace(piece, stream="nowhere"),
                replace(piece, parts=frozenset({7})),
                replace(piece, tags=TagSet([(rng.choice(keyed), KeySet.of(STRANGER))])),
                replace(piece, tags=TagSet([("nothing", UNKEYED)])),
            ]
        )
        return replace(plan, root=_changed(plan.root, {id(victim): (*victim.itags, strange)}))
    if choice == 6:
        kind = rng.choice([*definition.kinds, "Other"])
        return replace(plan, root=_edited(plan.root, victim, replace(victim, kind=kind)))
    if choice == 7:
        return replace(plan, root=_edited(plan.root, victim, replace(victim, id=rng.choice(workers).id)))
    if choice == 8 and victim.children:  # a side is gone, or there twice
        children = rng.choice([victim.children[:1], (*victim.children, PlanWorker("extra", victim.kind))])
        return replace(plan, root=_edited(plan.root, victim, replace(victim, children=children)))
    if choice == 9 and victim.children:  # sides change places
        return replace(plan, root=_edited(plan.root, victim, replace(victim, children=victim.children[::-1])))
    if choice == 10:  # two workers change their itags
        other = rng.choice(workers)
        return replace(plan, root=_changed(plan.root, {id(victim): other.itags, id(other): victim.itags}))
    if victim.children:  # a subtree becomes one worker: still valid
        itags = merged(itag for below in victim.walk() for itag in below.itags)
        return replace(plan, root=_edited(plan.root, victim, replace(victim, children=(), itags=itags)))
    return replace(plan, root=_changed(plan.root, {id(victim): (*victim.itags, *victim.itags)}))


def _minus(itags: tuple[Itag, ...], piece: Itag) -> tuple[Itag, ...]:
    found = []
    for itag in itags:
        if itag.stream != piece.stream or not itag.parts & piece.parts:
            found.append(itag)
            continue
        others, rest = itag.parts - piece.parts, itag.tags - piece.tags
        found += [replace(itag, parts=others)] if others else []
        found += [] if rest.is_empty() else [replace(itag, parts=itag.parts & piece.parts, tags=rest)]
    return tuple(found)


def _changed(worker: PlanWorker, itags: Mapping[int, tuple[Itag, ...]]) -> PlanWorker:
    children = tuple(_changed(child, itags) for child in worker.children)
    return replace(worker, itags=itags.get(id(worker), worker.itags), children=children)


def _edited(worker: PlanWorker, victim: PlanWorker, new: PlanWorker) -> PlanWorker:
    if worker is victim:
        return new
    return replace(worker, children=tuple(_edited(child, victim, new) for child in worker.children))
