"""Divide and unite states over the independent trees of a plan.

The workers at the top of a plan without tags have no events, so nothing synchronizes there; below them are trees that
run independently. A run does not use the workers of the forest; it defines how the state is divided among the trees
at the beginning, and how their states make up the whole::

    no tags
    ├── a hot key        a tree: it begins with its part of the state,
    │   ├── ...          and its state at the end is a part of the whole
    │   └── ...
    └── no tags
        ├── some keys    a tree
        └── others       a tree
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations

from flumina.model.tag_set import UNKEYED, TagSet
from flumina.plan.tree import PlanWorker, union
from flumina.program.definition import Definition, Fork, State


@dataclass(frozen=True)
class Forest:
    """A worker of the forest with its two sides, or the root of a tree, by its id.

    Two forests are equal if they divide a state alike, whatever the ids.
    """

    id: str = field(compare=False)
    kind: str
    tags: TagSet
    """The tags of all workers from here on."""
    sides: tuple[Forest, ...] = ()

    @staticmethod
    def of(worker: PlanWorker) -> Forest:
        """Return the forest of the plan with this root."""
        sides = worker.children if worker.tags.is_empty() else ()
        return Forest(worker.id, worker.kind, worker.subtree_tags, tuple(map(Forest.of, sides)))

    @property
    def trees(self) -> tuple[Forest, ...]:
        """The trees from left to right."""
        return tuple(tree for side in self.sides for tree in side.trees) if self.sides else (self,)

    def divide(self, definition: Definition, state: State) -> dict[str, State]:
        """Return the state of each tree; consumes the whole."""
        if not self.sides:
            return {self.id: state}
        left, right = self.sides
        one, other = self._fork(definition).split(state, left.tags, right.tags)
        return {**left.divide(definition, one), **right.divide(definition, other)}

    def unite(self, definition: Definition, states: Mapping[str, State]) -> State:
        """Join the states of all trees to the whole; consumes them."""
        if not self.sides:
            return states[self.id]
        left, right = (side.unite(definition, states) for side in self.sides)
        return definition.join_of(self._fork(definition)).unite(left, right)

    def is_certain(self, definition: Definition) -> bool:
        """Return whether every process divides a state alike.

        Derived forks do. A user's own fork may depend on the iteration order of a set, which differs between processes;
        then only state that no two trees share is certain: one tree, or keys that are on one side each.
        """
        if not self.sides or _is_derived(definition):
            return True
        keyed = definition.lifted is not None
        return keyed and not any(_share_keys(one.tags, other.tags) for one, other in combinations(self.trees, 2))

    def distribute(
        self,
        definition: Definition,
        before: Forest,
        states: Iterable[tuple[str, State]],
        chosen: Collection[str],
    ) -> dict[str, State]:
        """Return the states of some trees from a state that another forest has divided.

        ``states`` are the states of the other forest's trees, one by one. Where the program can narrow states, what the
        chosen trees do not need is dropped at once: the whole is never in one process.
        """
        narrow = definition.narrow
        tags = union(tree.tags for tree in self.trees if tree.id in chosen)
        among = self.tags if self.trees[0].id in chosen else None  # forks give to the left what no tag observes
        found = {id_: state if narrow is None else narrow(state, tags, among) for id_, state in states}
        halves = self.divide(definition, before.unite(definition, found))
        return {id_: halves[id_] for id_ in chosen}

    def _fork(self, definition: Definition) -> Fork:
        return definition.fork_of(self.kind, *(side.kind for side in self.sides))


def _is_derived(definition: Definition) -> bool:
    """Return whether forks and joins follow from declared fields; of the one-key program if it is keyed."""
    one = definition if definition.lifted is None else definition.lifted.one
    return one.narrow is not None


def _share_keys(one: TagSet, other: TagSet) -> bool:
    """Return whether some key has events in both; events without a key count for every key."""
    return any(UNKEYED in (mine, theirs) or mine.overlaps(theirs) for _, mine in one for _, theirs in other)
