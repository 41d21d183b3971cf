"""Place workers and parts of a plan on tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from flumina.plan.forest import Forest
from flumina.plan.routing import Router
from flumina.plan.tree import Plan
from flumina.runtime.messages import PartId
from flumina.runtime.worker import Address


@dataclass(frozen=True)
class Placement:
    """The task of every worker and of every part, by number."""

    tasks: int
    workers: Mapping[str, int]
    parts: Mapping[PartId, int]
    links: frozenset[tuple[int, int]]
    """Pairs of tasks that are connected, the smaller number first."""

    def home(self, address: Address) -> int:
        """Return the task of a worker, or of the source of a part."""
        return self.workers[address] if isinstance(address, str) else self.parts[address]

    def peers(self, task: int) -> list[int]:
        """Return the tasks that a task is connected to."""
        return sorted({a + b - task for a, b in self.links if task in (a, b)})


def place_workers(
    plan: Plan,
    router: Router,
    given: Mapping[PartId, int] | None = None,
    tasks: int = 0,
    *,
    coordinated: bool = False,
) -> Placement:
    """Make a task for every place of the plan; a part is read by the task of a receiver, unless it is ``given``.

    ``tasks`` is the least number of tasks: some may only read parts. With ``coordinated``, all tasks are connected to
    the task of the root, which has the checkpoint coordinator.
    """
    at = _places(plan)
    places = {place: number for number, place in enumerate(dict.fromkeys(at[worker.id] for worker in plan.workers))}
    named = {f"task{number}": number for number in range(tasks)}
    if set(places) <= set(named):  # the plan was made for these tasks
        places = named
    workers = {name: places[place] for name, place in at.items()}
    homes: dict[PartId, int] = {}
    busy: Counter[int] = Counter()
    for stream in plan.streams:
        for number in range(stream.parts):
            part = (stream.name, number)
            receivers = [plan.workers[n] for n in router.receivers(*part)]
            candidates = [workers[worker.id] for worker in receivers] or [0]
            home = (given or {}).get(part, min(candidates, key=lambda task: (busy[task], task)))
            homes[part] = home
            busy[home] += 1
    inside = (worker for tree in Forest.of(plan.root).trees for worker in plan[tree.id].walk())
    links = {(workers[parent.id], workers[child.id]) for parent in inside for child in parent.children}
    links |= {
        (home, workers[plan.workers[number].id]) for part, home in homes.items() for number in router.receivers(*part)
    }
    count = max([tasks, *(place + 1 for place in places.values())])
    if coordinated:
        links |= {(workers[plan.root.id], task) for task in range(count)}
    between = frozenset((min(pair), max(pair)) for pair in links if pair[0] != pair[1])
    return Placement(count, workers, homes, between)


def _places(plan: Plan) -> dict[str, str]:
    """Return the place of every worker; without one, a leaf runs alone and an inner worker beside its first child."""
    found: dict[str, str] = {}
    for worker in reversed(plan.workers):  # children first
        beside = found[worker.children[0].id] if worker.children else f"of {worker.id}"
        found[worker.id] = beside if worker.place is None else worker.place
    return found
