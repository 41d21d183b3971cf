"""Snapshots of simulated runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flumina.definition import Definition
from flumina.order import Point
from flumina.plan.crown import Crown
from flumina.state import copied


@dataclass(frozen=True)
class Snapshot:
    """The states of a plan's trees after all events up to a point, and no other."""

    point: Point
    definition: Definition
    crown: Crown
    states: Mapping[str, Any]

    @property
    def state(self) -> Any:  # noqa: ANN401 -- whatever the program's state is
        """The state as a whole."""
        return self.crown.unite(self.definition, dict(self._copies()))

    def under(self, crown: Crown) -> dict[str, Any]:
        """The states with which the trees of a plan go on: as if each were in a task of its own."""
        if self.crown == crown:
            states = dict(self._copies())
            return {new.id: states[old.id] for old, new in zip(self.crown.trees, crown.trees, strict=True)}
        found: dict[str, Any] = {}
        for tree in crown.trees:
            found |= crown.share_out(self.definition, self.crown, self._copies(), [tree.id])
        return found

    def _copies(self) -> Iterator[tuple[str, Any]]:
        return ((tree, copied(state)) for tree, state in self.states.items())
