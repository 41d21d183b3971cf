"""The workers without tags at the top of a plan: they have no events, so that nothing brings states together there.

What lies below them are trees that run without each other. Nobody needs the workers of the forest while a run goes on;
it tells how the state is divided among the trees at the beginning, and how theirs make up the whole::

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
    """Of all workers from here on."""
    sides: tuple[Forest, ...] = ()

    @staticmethod
    def of(worker: PlanWorker) -> Forest:
        """The forest of the plan with this root."""
        sides = worker.children if worker.tags.is_empty() else ()
        return Forest(worker.id, worker.kind, worker.subtree_tags, tuple(map(Forest.of, sides)))

    @property
    def trees(self) -> tuple[Forest, ...]:
        """The trees from left to right."""
        return tuple(tree for side in self.sides for tree in side.trees) if self.sides else (self,)

    def divide(self, definition: Definition, state: State) -> dict[str, State]:
        """What each tree gets of a state; consumes it."""
        if not self.sides:
            return {self.id: state}
        left, right = self.sides
        one, other = self._fork(definition).split(state, left.tags, right.tags)
        return {**left.divide(definition, one), **right.divide(definition, other)}

    def unite(self, definition: Definition, states: Mapping[str, State]) -> State:
        """The whole of which each tree has its part; consumes them."""
        if not self.sides:
            return states[self.id]
        left, right = (side.unite(definition, states) for side in self.sides)
        return definition.join_of(self._fork(definition)).unite(left, right)

    def is_certain(self, definition: Definition) -> bool:
        """Whether a state is divided alike in every process.

        Forks that are derived do so. One that is the user's own may go by the order of a set, which is another one
        elsewhere; then only what no two trees share is certain: one tree, or keys that are on one side each.
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
        wanted: Collection[str],
    ) -> dict[str, State]:
        """What some trees get of a state that another forest has divided.

        ``states`` are those of the other forest's trees, one by one. Where the program can tell, what the wanted trees
        do not need is dropped at once: the whole is never in one place.
        """
        narrow = definition.narrow
        tags = union(tree.tags for tree in self.trees if tree.id in wanted)
        among = self.tags if self.trees[0].id in wanted else None  # forks give to the left what nobody observes
        found = {id_: state if narrow is None else narrow(state, tags, among) for id_, state in states}
        halves = self.divide(definition, before.unite(definition, found))
        return {id_: halves[id_] for id_ in wanted}

    def _fork(self, definition: Definition) -> Fork:
        return definition.fork_of(self.kind, *(side.kind for side in self.sides))


def _is_derived(definition: Definition) -> bool:
    """Whether forks and joins follow from declared fields; in a program for one key those of that key."""
    one = definition if definition.lifted is None else definition.lifted.one
    return one.narrow is not None


def _share_keys(one: TagSet, other: TagSet) -> bool:
    """Whether some key has events in both; those without a key are of every key."""
    return any(UNKEYED in (mine, theirs) or mine.overlaps(theirs) for _, mine in one for _, theirs in other)
