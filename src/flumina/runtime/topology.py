"""Derive each worker's components, causes and children from the plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from flumina.model.tag_set import TagSet
from flumina.model.tick import Every, Tick, tick_ranks
from flumina.plan.components import components
from flumina.plan.forest import Forest
from flumina.plan.tree import Itag, Plan, PlanWorker
from flumina.program.definition import Definition, Fork, Join, StateKind
from flumina.runtime.messages import EVERYTHING, Cause, PartId
from flumina.runtime.tick_cursor import TickShape
from flumina.runtime.tie_watch import MayTie, WatchShape

TREE_ROOT = "^"
"""The address of the parent of all trees, which requests snapshots and the end."""


@dataclass(frozen=True)
class ProtocolOptions:
    """Optimizations of the protocol; each can be switched off."""

    coalesce: bool = True
    pipeline: bool = True
    hand_over: bool = True
    by_key: bool = True
    """In a keyed program, request the state of one key for an event of a keyed tag; other keys continue."""
    final: bool = True
    """Whether workers gather the state at the end."""
    sequenced: frozenset[str] | None = field(default=None, kw_only=True)
    """Streams with a ``seq`` column, to find dependent events that tie; None if no events tie."""
    counted: TagSet = field(default=TagSet(), kw_only=True)
    """Events that workers count separately."""


@dataclass(frozen=True)
class ComponentShape:
    """A connected component of a leaf's itags: the tags it has on each part, and the causes it depends on."""

    parts: tuple[tuple[PartId, TagSet], ...]
    causes: frozenset[Cause]
    ties: WatchShape | None = None
    """Where to look for ties, if anywhere."""
    ticks: tuple[TickShape, ...] = ()

    @cached_property
    def free(self) -> bool:
        """Return whether it depends on no ancestor's tag: only requests for everything stop it."""
        return self.causes == {EVERYTHING}


@dataclass(frozen=True)
class ChildShape:
    """The parent's static view of a child."""

    id: str
    tags: TagSet
    contribution: Join | None
    """Join of the child's contribution to its stored state; None if the child does not hand over."""

    @property
    def hands_over(self) -> bool:
        """Return whether the child continues after an answer without getting its state back."""
        return self.contribution is not None


@dataclass(frozen=True)
class WorkerShape:
    """The static part of one worker."""

    id: str
    parent: str
    kind: StateKind
    parts: tuple[PartId, ...]
    causes: tuple[Cause, ...]
    """Every cause for which an ancestor may ask for this worker's state."""
    components: tuple[ComponentShape, ...]
    children: tuple[ChildShape, ...]
    fork: Fork | None
    join: Join | None
    hands_over: bool
    final: bool
    ties: WatchShape | None
    """Where an inner worker has to look for ties, if anywhere."""
    ties_below: frozenset[str]
    """The streams of own events with which events of a descendant may tie."""
    counted: TagSet | None = None
    """Own events that the worker counts separately, if any."""
    ticking: bool = False
    """Whether the program has ticks."""
    ticks: tuple[TickShape, ...] = ()
    """Own ticks."""
    ticks_above: tuple[Every, ...] = ()
    """The ticks of all ancestors."""
    all_ticks: tuple[Tick, ...] = ()
    """The ticks of the program."""


def topology(plan: Plan, definition: Definition, options: ProtocolOptions) -> dict[str, WorkerShape]:
    """Return the shapes of the workers of a plan's :mod:`trees <flumina.plan.forest>`, by id."""
    ties = MayTie(plan, definition, options.sequenced)
    shapes = {}
    for tree in Forest.of(plan.root).trees:
        for worker in plan[tree.id].walk():
            parent = None if worker.id == tree.id else plan.parent(worker.id)
            shapes[worker.id] = _shape(plan, definition, options, worker, parent, ties)
    return shapes


def _shape(
    plan: Plan,
    definition: Definition,
    options: ProtocolOptions,
    worker: PlanWorker,
    parent: PlanWorker | None,
    ties: MayTie,
) -> WorkerShape:
    above = {
        (ancestor.id, name): TagSet([(name, keys)])
        for ancestor in plan.ancestors(worker.id)
        for name, keys in ancestor.tags
    }
    shapes = []
    made = {shape.name for shape in plan.streams if shape.ticks}
    ranks = tick_ranks(definition.tags, len(plan.streams) - len(made))
    for component in components(worker.itags, definition.depends) if worker.is_leaf else ():
        tags = [((itag.stream, part), itag.tags) for itag in component for part in sorted(itag.parts)]
        causes = {c for c, s in above.items() for _, mine in tags if definition.depends.between(s, mine)}
        given = tuple(entry for entry in tags if entry[0][0] not in made)
        own = _ticks(definition, ranks, component)
        watch = ties.watch(worker, component)
        shapes.append(ComponentShape(given, frozenset(causes | {EVERYTHING}), watch, own))
    children = tuple(
        ChildShape(child.id, child.subtree_tags, _contribution(definition, options, child)) for child in worker.children
    )
    fork = join = None
    counted = options.counted & worker.tags
    if worker.children:
        fork = definition.fork_of(worker.kind, *(child.kind for child in worker.children))
        join = definition.join_of(fork)
    return WorkerShape(
        id=worker.id,
        parent=TREE_ROOT if parent is None else parent.id,
        kind=definition.kinds[worker.kind],
        parts=tuple(
            dict.fromkeys(
                (itag.stream, part) for itag in worker.itags if itag.stream not in made for part in sorted(itag.parts)
            )
        ),
        causes=(*above, EVERYTHING),
        components=tuple(shapes),
        children=children,
        fork=fork,
        join=join,
        hands_over=parent is not None and _contribution(definition, options, worker) is not None,
        final=options.final,
        ties=None if worker.is_leaf else ties.watch(worker, worker.itags),
        ties_below=ties.below(worker),
        counted=None if counted.is_empty() else counted,
        ticking=definition.ticking is not None,
        ticks=_ticks(definition, ranks, worker.itags),
        ticks_above=tuple(dict.fromkeys(tag for _, name in above if isinstance(tag := definition.tags[name], Every))),
        all_ticks=tuple(tag for tag in definition.tags.values() if isinstance(tag, Tick)),
    )


def _ticks(definition: Definition, ranks: Mapping[str, int], itags: Iterable[Itag]) -> tuple[TickShape, ...]:
    """Return the ticks among itags."""
    rules = {} if definition.ticking is None else definition.ticking.rules
    lifted = definition.lifted is not None
    return tuple(
        TickShape(rules[name].tag, ranks[name], rules[name], keys, lifted)
        for itag in itags
        for name, keys in itag.tags
        if name in rules
    )


def _contribution(definition: Definition, options: ProtocolOptions, worker: PlanWorker) -> Join | None:
    """Return the join of a leaf's contributions, if its tags only add; else None."""
    only_adds = bool(worker.tags.tags) and definition.adding.issuperset(worker.tags.tags)
    if not (options.hand_over and worker.is_leaf and only_adds):
        return None
    return next((j for j in definition.joins if {j.left, j.right, j.target} == {worker.kind}), None)
