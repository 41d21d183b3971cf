"""Represent synchronization plans: frozen binary trees of workers (section 3.2).

A worker handles its own itags alone; to handle one of them, an inner worker first joins the states of its whole
subtree. So a plan says everything about parallelism: unrelated workers run side by side, ancestors synchronize.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

from flumina.errors import UsageError
from flumina.model.tag_set import KeySet, TagSet
from flumina.plan.fingerprint import fingerprint
from flumina.plan.key_cover import union_of
from flumina.program.base import AnyProgram, define

if TYPE_CHECKING:
    from pathlib import Path

MAX_DEPTH = 100
"""Balanced plans are far below; functions over trees may use the call stack."""

MAX_PARTS = 1_000_000
"""Parts are planned one by one, so that a typing error could fill all memory."""


@dataclass(frozen=True)
class StreamShape:
    """A stream of a plan: its name, its number of parts, and the events each part can hold.

    ``held`` has one tag set for each part, where parts differ (they declare their keys); else it is empty, and every
    part can hold all of ``tags``. ``ticks``: a virtual stream of one part, whose events come by themselves; it stands
    behind all others, so that these keep their ranks.
    """

    name: str
    parts: int
    tags: TagSet
    held: tuple[TagSet, ...] = ()
    ticks: bool = False

    def __post_init__(self) -> None:
        """Refuse invalid arguments."""
        if self.parts < 1:
            raise UsageError("STREAM_PARTS", f"stream {self.name!r} has {self.parts} parts; it needs at least one")
        if self.parts > MAX_PARTS:
            message = f"stream {self.name!r} has {self.parts} parts; at most {MAX_PARTS} can be planned"
            raise UsageError("STREAM_PARTS", message)
        if self.held and len(self.held) != self.parts:
            raise UsageError("STREAM_PARTS", f"stream {self.name!r} has {self.parts} parts, got {len(self.held)} sets")

    def of_part(self, part: int) -> TagSet:
        """Return the events that one part can hold."""
        return self.held[part] if self.held else self.tags


@dataclass(frozen=True, slots=True)
class Itag:
    """An implementation tag: these tags (and keys) arriving on these parts of a stream.

    >>> print(Itag("views", frozenset({0, 1, 2}), TagSet({"view": KeySet.of("a")})))
    view('a') on views[0-2]
    """

    stream: str
    parts: frozenset[int]
    tags: TagSet

    def __str__(self) -> str:
        return f"{self.tags} on {self.stream}[{ranges(self.parts)}]"


def ranges(numbers: Iterable[int]) -> str:
    """Format whole numbers as short text.

    >>> ranges({0, 1, 2, 5})
    '0-2, 5'
    """
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def union(sets: Iterable[TagSet]) -> TagSet:
    """Return all events of these sets, in one pass."""
    given = [tags for tags in sets if tags.members]
    if len(given) == 1 or (len(given) == 2 and given[0] == given[1]):
        return given[0]
    by_tag: dict[str, list[KeySet]] = {}
    for tags in given:
        for name, keys in tags:
            by_tag.setdefault(name, []).append(keys)
    return TagSet((name, union_of(keys)) for name, keys in by_tag.items())


def merged(itags: Iterable[Itag]) -> tuple[Itag, ...]:
    """Return the same events in normal form: sorted, and for each stream one itag for all parts with equal tags."""
    given = tuple(itags)
    if len(given) < 2:
        return given
    by_part: dict[tuple[str, int], list[TagSet]] = {}
    for itag in given:
        for part in itag.parts:
            by_part.setdefault((itag.stream, part), []).append(itag.tags)
    parts_of: dict[tuple[str, TagSet], list[int]] = {}
    for (stream, part), sets in sorted(by_part.items(), key=lambda item: item[0]):
        parts_of.setdefault((stream, sets[0] if len(sets) == 1 else union(sets)), []).append(part)
    return tuple(Itag(stream, frozenset(parts), tags) for (stream, tags), parts in parts_of.items())


class _Uncached:
    """A base that leaves cached properties out of pickles."""

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name in self.__dataclass_fields__}  # type: ignore[attr-defined]


@dataclass(frozen=True)
class PlanWorker(_Uncached):
    """One sequential thread of computation.

    ``kind`` names the state type; with the types of the two children it determines the fork and the join. ``place`` is
    where the worker runs: a host or a slot; workers at the same place run in the same process.
    """

    id: str
    kind: str
    itags: tuple[Itag, ...] = ()
    children: tuple[PlanWorker, ...] = ()
    place: str | None = None

    @cached_property
    def tags(self) -> TagSet:
        """The events this worker handles itself, on whatever parts."""
        return union(itag.tags for itag in self.itags)

    @cached_property
    def subtree_tags(self) -> TagSet:
        """The events that this worker and all its descendants handle: what a fork gives to this side."""
        if not self.children:
            return self.tags
        return union((self.tags, *(child.subtree_tags for child in self.children)))

    @property
    def is_leaf(self) -> bool:
        """Whether it has no children."""
        return not self.children

    def walk(self) -> Iterator[PlanWorker]:
        """Yield this worker and all its descendants in preorder."""
        waiting = [self]
        while waiting:
            worker = waiting.pop()
            yield worker
            waiting.extend(reversed(worker.children))


@dataclass(frozen=True)
class Plan(_Uncached):
    """A tree of workers for one program and these streams.

    ``fingerprint`` identifies the program's tags, dependence and state types, so that a plan is never used for
    another program. Streams are in the order of their ranks.
    """

    program: str
    fingerprint: str
    streams: tuple[StreamShape, ...]
    root: PlanWorker

    def __post_init__(self) -> None:
        """Refuse trees that are too deep."""
        level, depth = [self.root], 0
        while level:
            level = [child for worker in level for child in worker.children]
            depth += 1
            if depth > MAX_DEPTH + 1:
                raise UsageError(
                    "TOO_DEEP",
                    f"the plan has more than {MAX_DEPTH} levels of workers",
                    hint="balance the tree: every level adds a round trip to the events above it",
                )

    @classmethod
    def of(cls, program: AnyProgram, streams: Iterable[StreamShape], root: PlanWorker) -> Self:
        """Return a plan for this program."""
        definition = define(program)
        return cls(definition.name, fingerprint(definition), tuple(streams), root)

    @cached_property
    def workers(self) -> tuple[PlanWorker, ...]:
        """All workers in preorder; a worker's place in this tuple is its number."""
        return tuple(self.root.walk())

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """For each id the worker's number."""
        return {worker.id: number for number, worker in reversed(list(enumerate(self.workers)))}

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The state types that occur."""
        return frozenset(worker.kind for worker in self.workers)

    @cached_property
    def parents(self) -> tuple[int | None, ...]:
        """For each worker's number the number of its parent."""
        parents: list[int | None] = [None] * len(self.workers)
        sizes = _subtree_sizes(self.workers)
        for number, worker in enumerate(self.workers):
            child = number + 1
            for _ in worker.children:
                parents[child] = number
                child += sizes[child]
        return tuple(parents)

    def __len__(self) -> int:
        return len(self.workers)

    def __getitem__(self, worker: str) -> PlanWorker:
        """Return the worker with this id."""
        number = self.numbers.get(worker)
        if number is None:
            raise UsageError("NO_WORKER", f"the plan has no worker {worker!r}; it has {', '.join(self.numbers)}")
        return self.workers[number]

    def stream(self, name: str) -> StreamShape:
        """Return the stream with this name."""
        found = self.shapes.get(name)
        if found is not None:
            return found
        known = ", ".join(repr(stream.name) for stream in self.streams)
        raise UsageError("NO_STREAM", f"the plan has no stream {name!r}; it has {known}")

    @cached_property
    def shapes(self) -> Mapping[str, StreamShape]:
        """The streams by name."""
        return {stream.name: stream for stream in reversed(self.streams)}

    def parent(self, worker: str) -> PlanWorker | None:
        """Return the worker above, None for the root."""
        above = self.parents[self.numbers[self[worker].id]]
        return None if above is None else self.workers[above]

    def ancestors(self, worker: str) -> tuple[PlanWorker, ...]:
        """Return all workers above, the parent first and the root last."""
        above = self.parents[self.numbers[self[worker].id]]
        found = []
        while above is not None:
            found.append(self.workers[above])
            above = self.parents[above]
        return tuple(found)

    def descendants(self, worker: str) -> tuple[PlanWorker, ...]:
        """Return all workers below, in preorder."""
        return tuple(self[worker].walk())[1:]

    @cached_property
    def leaves(self) -> tuple[PlanWorker, ...]:
        """The workers without children, from left to right."""
        return tuple(worker for worker in self.workers if worker.is_leaf)

    @cached_property
    def places(self) -> tuple[str, ...]:
        """All places where workers run, in preorder of the workers."""
        return tuple(dict.fromkeys(worker.place for worker in self.workers if worker.place is not None))

    @cached_property
    def depth(self) -> int:
        """The number of edges from the root to the deepest leaf."""
        depths = [0]
        for parent in self.parents[1:]:
            assert parent is not None, "only the root has no parent"
            depths.append(depths[parent] + 1)
        return max(depths)

    def at(self, places: Mapping[str, str]) -> Plan:
        """Return the same plan with these workers (ids) at other places."""

        def moved(worker: PlanWorker) -> PlanWorker:
            children = tuple(moved(child) for child in worker.children)
            return replace(worker, children=children, place=places.get(worker.id, worker.place))

        return replace(self, root=moved(self.root))

    def explain(self) -> str:
        """Return the tree as text for a terminal."""
        from flumina.plan.render.text import to_text  # noqa: PLC0415 -- renderers import this module

        return to_text(self)

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON that can be edited by hand and read by :meth:`load`."""
        from flumina.plan.render.json import save  # noqa: PLC0415

        save(self, path)

    @staticmethod
    def load(path: str | Path) -> Plan:
        """Read a plan file; :func:`flumina.plan.check_valid` checks it against a program."""
        from flumina.plan.render.json import load  # noqa: PLC0415

        return load(path)

    def _repr_html_(self) -> str:
        from flumina.plan.render.html import to_html  # noqa: PLC0415

        return to_html(self)


def _subtree_sizes(workers: tuple[PlanWorker, ...]) -> list[int]:
    """Return for workers in preorder the sizes of their subtrees."""
    sizes = [1] * len(workers)
    for number in range(len(workers) - 1, -1, -1):
        child = number + 1
        for _ in workers[number].children:
            sizes[number] += sizes[child]
            child += sizes[child]
    return sizes
