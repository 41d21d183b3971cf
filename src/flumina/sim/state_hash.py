"""Hash the state of workers for comparison, and share constants between copies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from flumina.model.event import Event
from flumina.runtime.key_progress import NOTHING
from flumina.runtime.run import Run
from flumina.runtime.worker import Worker
from flumina.sim.case import Case

CONSTANT = ("shape", "options", "emit", "counting", "identity", "lifted", "sides_of", "measure", "rule")
"""What a worker never changes, or only counts with."""

_PASSING = frozenset({*CONSTANT, "effects", "now", "waits", "inner", "heap", "pushes"})
"""Not part of what a worker is: the heap of a :class:`~flumina.runtime.lowest.Lowest` holds what has been dropped."""

_PLAIN = (int, str, float, bytes, bool, type(None))


def state_hash(value: Any) -> Any:  # noqa: ANN401
    """Return a hashable value that is equal for objects that behave alike.

    >>> state_hash({"a": [1, {2}]}) == state_hash({"a": [1, {2}]}), state_hash([1]) == state_hash([2])
    (True, False)
    """
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Event):
        return value.tag.name, value.stream, value.seq, value.ts
    if isinstance(value, Run):
        return tuple(point for point, _ in value)
    if isinstance(value, Mapping):
        return type(value).__name__, frozenset((state_hash(k), state_hash(v)) for k, v in value.items())
    if isinstance(value, set | frozenset):
        return frozenset(map(state_hash, value))
    if isinstance(value, tuple | list) or type(value).__name__ == "deque":
        return tuple(map(state_hash, value))
    if is_dataclass(value):
        return type(value).__name__, *(state_hash(getattr(value, f.name)) for f in fields(value))
    if hasattr(value, "__dict__"):
        return type(value).__name__, *((n, state_hash(v)) for n, v in vars(value).items() if n not in _PASSING)
    return "nothing" if value is NOTHING else repr(value)


def shared_parts(case: Case, workers: Iterable[Worker]) -> dict[int, Any]:
    """A memo for :func:`copy.deepcopy` under which copies of workers share all that never changes."""
    shared: list[Any] = [NOTHING, *case.definition.tags.values(), *(event for _, event in case.in_order)]
    for worker in workers:
        shared += [getattr(worker, name) for name in CONSTANT if hasattr(worker, name)]
        shared += [*worker.shape.components, *worker.shape.children]
        for ties in (worker.shape.ties, *(component.ties for component in worker.shape.components)):
            shared += [] if ties is None else [ties, *(rule for _, _, rule in ties.streams)]
    return {id(part): part for part in shared}
