"""Snapshots of simulated runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flumina.model.order import Point
from flumina.plan.forest import Forest
from flumina.program.definition import Definition
from flumina.state.compare import copied


@dataclass(frozen=True)
class SimSnapshot:
    """The states of a plan's trees after all events up to a point, and no other."""

    point: Point
    definition: Definition
    forest: Forest
    states: Mapping[str, Any]

    @property
    def state(self) -> Any:  # noqa: ANN401 -- whatever the program's state is
        """Return the joined state of all trees."""
        return self.forest.unite(self.definition, dict(self._copies()))

    def under(self, forest: Forest) -> dict[str, Any]:
        """Return the states with which the trees of a plan resume."""
        if self.forest == forest:
            states = dict(self._copies())
            return {new.id: states[old.id] for old, new in zip(self.forest.trees, forest.trees, strict=True)}
        found: dict[str, Any] = {}
        for tree in forest.trees:
            found |= forest.distribute(self.definition, self.forest, self._copies(), [tree.id])
        return found

    def _copies(self) -> Iterator[tuple[str, Any]]:
        return ((tree, copied(state)) for tree, state in self.states.items())
