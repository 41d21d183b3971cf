"""Check that a plan is valid for a program: V1 and V2 in the strict form, and V3 for ticks.

For unrelated workers w, w' (neither above the other), V2 asks::

    itags(w) & itags(w') = nothing    and    not depends.between(tags(w), tags(w'))

Every such pair lies in the left and the right subtree of exactly one worker. So it is enough to compare the two
subtrees of every worker, and to look for pairs only below a comparison that fails.

V1, strictly: the root has the initial state type, a state type takes the events of the worker's *whole subtree* (they
are all in its state while it is joined), and fork and join exist for the three state types. Beyond the paper: no leaf
without tags (a fork predicate is never empty), and every event of the input has exactly one worker. V3: at an inner
worker a keyed tick has named keys, because only a leaf knows which others exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product

from flumina.errors import PlanError
from flumina.model.tag_set import KeySet, TagSet
from flumina.model.tick import Tick
from flumina.plan.fingerprint import fingerprint
from flumina.plan.key_cover import KeyCover
from flumina.plan.tree import Itag, Plan, PlanWorker, StreamShape, merged, ranges
from flumina.program.base import AnyProgram, define
from flumina.program.definition import Definition

NOTHING = TagSet()


@dataclass(frozen=True, slots=True)
class Violation:
    """One way in which a plan is not valid: the rule, the workers and the tags in question."""

    rule: str
    workers: tuple[str, ...]
    message: str
    tags: TagSet = NOTHING

    def __str__(self) -> str:
        return f"[{self.rule}] {self.message}"


RULES = {
    "PROGRAM": "the plan was made for this program",
    "STREAMS": "the plan was made for these streams",
    "DUPLICATE_ID": "ids are distinct",
    "CHILDREN": "a worker has no children or two",
    "EMPTY_LEAF": "a leaf has tags; both sides of a fork have",
    "ROOT_KIND": "V1: the root has the initial state type",
    "UNKNOWN_KIND": "V1: the state type is one of the program's, so that its update is defined",
    "KIND_TAGS": "V1: the state type takes all events of the worker's subtree",
    "NO_FORK": "V1: there is a fork for the state types of a worker and its children",
    "NO_JOIN": "V1: there is a join for them",
    "DEPENDENT": "V2: unrelated workers handle independent events",
    "HANDLED_TWICE": "V2: no event has two workers, and none is named twice in one",
    "NOT_HANDLED": "every event of the input has a worker, and every tick",
    "TICK_KEYS": "V3: at an inner worker the ticks of a tag have finitely many, named keys",
    "TICK_STREAM": "ticks, and nothing else, are on virtual streams of one part with their names",
    "UNKNOWN_STREAM": "itags are on streams of the plan",
    "UNKNOWN_PART": "itags are on parts that the stream has",
    "UNKNOWN_TAG": "itags have tags that the stream carries, and streams have tags of the program",
    "UNKNOWN_KEY": "itags have keys that the part can hold",
}
"""The text of each rule."""


def validate(plan: Plan, program: AnyProgram, streams: Iterable[StreamShape] | None = None) -> list[Violation]:
    """Return every violation; ``streams`` are the streams of the run, if the plan is compared with them too."""
    checker = _Checker(plan, define(program))
    found = [*checker.program(), *checker.shape(), *checker.kinds(), *checker.inputs(), *checker.independence()]
    found += checker.ticks()
    if streams is not None:
        found += checker.same_streams(tuple(streams))
    return found


def check_valid(plan: Plan, program: AnyProgram, streams: Iterable[StreamShape] | None = None) -> None:
    """Raise a :class:`~flumina.errors.PlanError` with every violation, if there is any."""
    violations = validate(plan, program, streams)
    if violations:
        count = f"{len(violations)} violation{'s' if len(violations) > 1 else ''}"
        raise PlanError(
            "INVALID_PLAN", f"the plan is not valid for {define(program).name}: {count}", violations=violations
        )


@dataclass(frozen=True)
class _Checker:
    plan: Plan
    definition: Definition

    def program(self) -> Iterator[Violation]:
        if self.plan.fingerprint != fingerprint(self.definition):
            yield Violation(
                "PROGRAM",
                (),
                f"the plan was made for {self.plan.program!r} with other tags, dependence or state types than "
                f"{self.definition.name!r} has now",
            )

    def ticks(self) -> Iterator[Violation]:
        """Check the virtual streams, and find ticks without a stream or with unnamed keys at inner workers."""
        ticks = {name: tag for name, tag in self.definition.tags.items() if isinstance(tag, Tick)}
        for stream in self.plan.streams:
            virtual = stream.parts == 1 and stream.name in ticks and stream.tags.tags == (stream.name,)
            if (stream.ticks or not ticks.keys().isdisjoint(stream.tags.tags)) and not (stream.ticks and virtual):
                yield Violation("TICK_STREAM", (), f"stream {stream.name!r} carries {stream.tags}", stream.tags)
        for name, tag in ticks.items():
            if name not in self.plan.shapes:
                missing = TagSet([(name, tag.universe)])
                yield Violation("NOT_HANDLED", (), f"no worker has the ticks {missing}", missing)
        for worker in self.plan.workers:
            unnamed = TagSet((n, keys) for n, keys in worker.tags if n in ticks and not keys.is_finite)
            if worker.children and not unnamed.is_empty():
                message = f"{worker.id} has children and the ticks {unnamed}, whose keys it can't know"
                yield Violation("TICK_KEYS", (worker.id,), message, unnamed)

    def same_streams(self, streams: tuple[StreamShape, ...]) -> Iterator[Violation]:
        planned = {stream.name: stream for stream in self.plan.streams}
        given = {stream.name: stream for stream in streams}
        for name in sorted(planned.keys() - given.keys()):
            yield Violation("STREAMS", (), f"the run has no stream {name!r}, which the plan has")
        for name in sorted(given.keys() - planned.keys()):
            yield Violation("STREAMS", (), f"the plan has no stream {name!r}, which the run has", given[name].tags)
        for name in sorted(planned.keys() & given.keys()):
            mine, run = planned[name], given[name]
            if mine.parts != run.parts:
                yield Violation("STREAMS", (), f"stream {name!r} has {run.parts} parts, but {mine.parts} in the plan")
            elif any(mine.of_part(part) != run.of_part(part) for part in range(run.parts)):
                yield Violation("STREAMS", (), f"stream {name!r} holds {run.tags}, but {mine.tags} in the plan")

    def shape(self) -> Iterator[Violation]:
        counts: dict[str, int] = {}
        for worker in self.plan.workers:
            counts[worker.id] = counts.get(worker.id, 0) + 1
            if len(worker.children) not in {0, 2}:
                yield Violation(
                    "CHILDREN", (worker.id,), f"{worker.id} has {len(worker.children)} children; it needs none or two"
                )
            if worker.is_leaf and worker.tags.is_empty():
                yield Violation("EMPTY_LEAF", (worker.id,), f"{worker.id} is a leaf without tags")
        for name, count in counts.items():
            if count > 1:
                yield Violation("DUPLICATE_ID", (name,), f"{count} workers have the id {name!r}")

    def kinds(self) -> Iterator[Violation]:
        kinds, root, declared = self.definition.kinds, self.plan.root, self.definition.everything
        if root.kind != self.definition.initial:
            yield Violation(
                "ROOT_KIND",
                (root.id,),
                f"{root.id} is the root, so its state type is {self.definition.initial!r}, not {root.kind!r}",
            )
        for worker in self.plan.workers:
            if worker.kind not in kinds:
                yield Violation(
                    "UNKNOWN_KIND",
                    (worker.id,),
                    f"{worker.id} has the state type {worker.kind!r}; the program has {', '.join(kinds)}",
                )
                continue
            foreign = _outside(worker.subtree_tags, kinds[worker.kind].predicate, declared)
            if not foreign.is_empty() and not (foreign := foreign & declared).is_empty():
                yield Violation(
                    "KIND_TAGS",
                    (worker.id,),
                    f"{worker.id} has the state type {worker.kind!r}, which does not take {foreign} of its subtree",
                    foreign,
                )
            yield from self.forks(worker)

    def forks(self, worker: PlanWorker) -> Iterator[Violation]:
        if len(worker.children) != 2 or any(child.kind not in self.definition.kinds for child in worker.children):
            return
        left, right = (child.kind for child in worker.children)
        names = (worker.id, *(child.id for child in worker.children))
        if not any((f.source, f.left, f.right) == (worker.kind, left, right) for f in self.definition.forks):
            yield Violation("NO_FORK", names, f"{worker.id}: there is no fork from {worker.kind} into {left}, {right}")
        if not any((j.left, j.right, j.target) == (left, right, worker.kind) for j in self.definition.joins):
            yield Violation("NO_JOIN", names, f"{worker.id}: there is no join of {left}, {right} into {worker.kind}")

    def inputs(self) -> Iterator[Violation]:
        """Check that every itag is of the input, and every event of the input has exactly one worker."""
        declared = self.definition.everything
        for stream in self.plan.streams:
            for tag in sorted(set(stream.tags.tags) - set(declared.tags)):
                yield Violation(
                    "UNKNOWN_TAG",
                    (),
                    f"stream {stream.name!r} carries {tag!r}, which is not a tag of the program",
                    TagSet([(tag, stream.tags[tag])]),
                )
        shapes = {stream.name: stream for stream in self.plan.streams}
        entries: dict[tuple[str, int], list[tuple[int, TagSet]]] = {}
        for number, worker in enumerate(self.plan.workers):
            for itag in worker.itags:
                if itag.stream not in shapes:
                    known = ", ".join(repr(name) for name in shapes)
                    message = f"{worker.id} has {itag}, but the plan's streams are {known}"
                    yield Violation("UNKNOWN_STREAM", (worker.id,), message, itag.tags)
                    continue
                yield from self.itag(worker, itag, shapes[itag.stream])
            yield from self.repeated(worker)
            for itag in merged(worker.itags):
                for part in itag.parts:
                    entries.setdefault((itag.stream, part), []).append((number, itag.tags))
        yield from self.handled(entries)

    def itag(self, worker: PlanWorker, itag: Itag, stream: StreamShape) -> Iterator[Violation]:
        outside = [part for part in itag.parts if not 0 <= part < stream.parts]
        if outside or not itag.parts:
            what = f"parts {ranges(outside)}" if outside else "no parts at all"
            message = f"{worker.id} has {itag.tags} on {what} of {stream.name!r}, which has 0-{stream.parts - 1}"
            yield Violation("UNKNOWN_PART", (worker.id,), message, itag.tags)
        for tag in itag.tags.tags:
            if not stream.tags.has_any(tag):
                message = (
                    f"{worker.id} has {tag!r} on stream {stream.name!r}, which carries {', '.join(stream.tags.tags)}"
                )
                yield Violation("UNKNOWN_TAG", (worker.id,), message, TagSet([(tag, itag.tags[tag])]))
        inside = {stream.of_part(part) for part in itag.parts if 0 <= part < stream.parts}
        for held in inside:
            foreign = _outside(itag.tags, held, stream.tags)
            if not foreign.is_empty():
                message = f"{worker.id} has {foreign} on stream {stream.name!r}, where it can't occur"
                yield Violation("UNKNOWN_KEY", (worker.id,), message, foreign)
                break

    def repeated(self, worker: PlanWorker) -> Iterator[Violation]:
        """Find events in several itags of one worker; parts with the same itags are checked together."""
        if len(worker.itags) < 2:
            return
        on_part: dict[tuple[str, int], list[int]] = {}
        for number, itag in enumerate(worker.itags):
            for part in itag.parts:
                on_part.setdefault((itag.stream, part), []).append(number)
        together: dict[tuple[str, tuple[int, ...]], list[int]] = {}
        for (name, part), several in on_part.items():
            if len(several) > 1:
                together.setdefault((name, tuple(several)), []).append(part)
        found: dict[tuple[str, TagSet], list[int]] = {}
        for (name, numbers), parts in together.items():
            by_tag: dict[str, list[tuple[int, KeySet]]] = {}
            for number in numbers:
                for tag, keys in worker.itags[number].tags:
                    by_tag.setdefault(tag, []).append((number, keys))
            common = TagSet((tag, KeyCover(sets).at_least(2)) for tag, sets in by_tag.items() if len(sets) > 1)
            if not common.is_empty():
                found.setdefault((name, common), []).extend(parts)
        for (name, common), parts in found.items():
            message = f"{worker.id} has {common} on {name}[{ranges(parts)}] in more than one of its itags"
            yield Violation("HANDLED_TWICE", (worker.id,), message, common)

    def handled(self, entries: dict[tuple[str, int], list[tuple[int, TagSet]]]) -> Iterator[Violation]:
        """Check that each event has one worker; parts with equal workers and tags are checked together."""
        same: dict[tuple[str, TagSet, tuple[tuple[int, TagSet], ...]], list[int]] = {}
        for stream in self.plan.streams:
            for part in range(stream.parts):
                key = (stream.name, stream.of_part(part), tuple(entries.get((stream.name, part), ())))
                same.setdefault(key, []).append(part)
        twice: dict[tuple[int, int, str], tuple[TagSet, list[int]]] = {}
        for (name, held, covered_by), parts in same.items():
            for tag, keys in held:
                count = KeyCover([(number, tags[tag]) for number, tags in covered_by if tags.has_any(tag)])
                missing = keys - count.covered()
                if not missing.is_empty():
                    lost = TagSet([(tag, missing)])
                    message = f"no worker handles {lost} on {name}[{ranges(parts)}]"
                    yield Violation("NOT_HANDLED", (), message, lost)
                for first, second, common in count.overlaps():
                    tags, where = twice.setdefault((first, second, name), (NOTHING, []))
                    where.extend(part for part in parts if part not in where)
                    twice[first, second, name] = (tags | TagSet([(tag, common)]), where)
        for (first, second, name), (tags, where) in twice.items():
            pair = (self.plan.workers[first].id, self.plan.workers[second].id)
            message = f"{pair[0]} and {pair[1]} both handle {tags} on {name}[{ranges(where)}]"
            yield Violation("HANDLED_TWICE", pair, message, tags)

    def independence(self) -> Iterator[Violation]:
        for worker in self.plan.workers:
            for left, right in combinations(worker.children, 2):
                yield from self.dependent(left, right)

    def dependent(self, left: PlanWorker, right: PlanWorker) -> Iterator[Violation]:
        """Yield all dependent pairs with one worker of each subtree."""
        between = self.definition.depends.between
        for one in _walk_where(left, lambda below: between(below.subtree_tags, right.subtree_tags)):
            tags = one.tags
            for other in _walk_where(right, partial(self.reaches, tags)):
                if between(tags, other.tags):
                    mine, others = self.culprits(tags, other.tags)
                    message = f"{mine} of {one.id} depends on {others} of {other.id}, and neither is above the other"
                    yield Violation("DEPENDENT", (one.id, other.id), message, mine | others)

    def reaches(self, tags: TagSet, subtree: PlanWorker) -> bool:
        return self.definition.depends.between(tags, subtree.subtree_tags)

    def culprits(self, left: TagSet, right: TagSet) -> tuple[TagSet, TagSet]:
        """Return the parts of two dependent sets that depend on each other, as small as tags and equal keys tell."""
        found: list[tuple[tuple[str, KeySet], tuple[str, KeySet]]] = []
        for (tag, keys), (other, others) in product(left, right):
            if self.definition.depends.between(TagSet([(tag, keys)]), TagSet([(other, others)])):
                common = keys & others
                narrow = not common.is_empty() and not self.definition.depends.covers(tag, other, same_key=False)
                found.append(((tag, common if narrow else keys), (other, common if narrow else others)))
        one, two = NOTHING, NOTHING
        for pair, other_pair in found:
            one, two = one | TagSet([pair]), two | TagSet([other_pair])
        return one, two


def _outside(tags: TagSet, allowed: TagSet, known: TagSet) -> TagSet:
    """Return the events of known tags that are not allowed; fast for a tag with all keys allowed."""
    everything, found = KeySet.everything(), []
    for tag, keys in tags:
        limit = allowed[tag]
        if limit != everything and limit != keys and known.has_any(tag):  # noqa: PLR1714 -- hashing is what takes long
            found.append((tag, keys - limit))
    return TagSet(found) if found else NOTHING


def _walk_where(worker: PlanWorker, included: Callable[[PlanWorker], bool]) -> Iterator[PlanWorker]:
    """Yield workers in preorder, without the subtrees of excluded workers."""
    waiting = [worker]
    while waiting:
        found = waiting.pop()
        if included(found):
            yield found
            waiting.extend(reversed(found.children))
