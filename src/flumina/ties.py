"""Ties: events that O can't order, and that must not depend on each other.

Within a stream, O orders by timestamp and then by ``seq``. Without a ``seq`` column that is the position inside a
part, which says nothing about events of two parts. If such events depend on each other, the answer would depend on how
the input happened to be cut, so it is an error. The same holds for two events with the same ``seq``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from flumina.errors import OrderError

if TYPE_CHECKING:
    from flumina.definition import Definition
    from flumina.events import Event
    from flumina.streams import Part

Placed = tuple[int, "Event"]
"""An event and the number of its part."""


def check_ties(definition: Definition, parts: Sequence[Part]) -> None:
    """Raise :class:`~flumina.errors.OrderError` at the first pair of dependent events of one stream that tie."""
    for rank in sorted({part.rank for part in parts}):
        mine = [part for part in parts if part.rank == rank]
        names = [tag.name for tag in mine[0].stream.tags]
        everything = {name: definition.everything[name] for name in names}
        if _self_independent(definition, everything.keys()):
            continue
        if mine[0].stream.seq is not None:
            _check_seq(definition, mine)
        elif len(mine) > 1:
            _check_parts(definition, mine)


def _self_independent(definition: Definition, names: Iterable[str]) -> bool:
    """Whether no two events of these tags can depend on each other, so that no tie matters."""
    from flumina.tagsets import TagSet  # noqa: PLC0415

    events = TagSet((name, definition.everything[name]) for name in names)
    return not definition.depends.between(events, events)


def _check_parts(definition: Definition, parts: Sequence[Part]) -> None:
    values = [np.unique(part.batch.ts) for part in parts]
    merged, counts = np.unique(np.concatenate(values), return_counts=True)
    tied = merged[counts > 1]
    if not len(tied):
        return
    groups: dict[int, list[Placed]] = {}
    for part in parts:
        for event in part.batch.take(np.flatnonzero(np.isin(part.batch.ts, tied))):
            groups.setdefault(event.ts, []).append((part.number, event))
    for group in groups.values():
        _refuse(definition, group, "without a seq column", same_part=False)


def _check_seq(definition: Definition, parts: Sequence[Part]) -> None:
    ts = np.concatenate([part.batch.ts for part in parts])
    seq = np.concatenate([part.batch.seq for part in parts])
    ordered = np.lexsort((seq, ts))
    equal = (np.diff(ts[ordered]) == 0) & (np.diff(seq[ordered]) == 0)
    if not equal.any():
        return
    wanted = {(int(ts[i]), int(seq[i])) for i in ordered[1:][equal]}
    tied_ts = np.array(sorted({t for t, _ in wanted}))
    groups: dict[tuple[int, int], list[Placed]] = {}
    for part in parts:
        for event in part.batch.take(np.flatnonzero(np.isin(part.batch.ts, tied_ts))):
            if (event.ts, event.seq) in wanted:
                groups.setdefault((event.ts, event.seq), []).append((part.number, event))
    for group in groups.values():
        _refuse(definition, group, "with the same seq", same_part=True)


def _refuse(definition: Definition, group: Sequence[Placed], how: str, *, same_part: bool) -> None:
    """Raise if two events of a tied group depend on each other; one event for each part, tag and key is enough."""
    shown: dict[tuple[object, ...], Placed] = {}
    for number, (part, event) in enumerate(group):
        shown.setdefault((number if same_part else part, event.tag.name, event.key), (part, event))
    for (part, a), (other, b) in combinations(shown.values(), 2):
        differ = same_part or part != other
        if differ and definition.depends(a.tag.name, a.key, b.tag.name, b.key):
            raise OrderError(
                "AMBIGUOUS_ORDER",
                f"stream {a.stream!r}: two dependent events have the timestamp {a.ts} {how}, so their order is not "
                f"determined: {a!r} in part {part} and {b!r} in part {other}",
                hint="give the stream a seq= column that orders events with equal timestamps",
            )
