"""Ties: events that O can't order, and that must not depend on each other.

Within a stream, O orders by timestamp and then by ``seq``. Without a ``seq`` column that is the position inside a
part, which says nothing about events of two parts. If such events depend on each other, the answer would depend on how
the input happened to be cut, so it is an error. The same holds for two events with the same ``seq``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement, product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flumina.errors import OrderError
from flumina.events import Event
from flumina.tagsets import Key, TagSet

if TYPE_CHECKING:
    from flumina.decode import Part
    from flumina.definition import Definition


class Placed(NamedTuple):
    """An event, the number of its part, and the place within which O orders it: events of one place do not tie."""

    place: int
    part: int
    event: Event


def check_ties(definition: Definition, parts: Sequence[Part]) -> None:
    """Raise :class:`~flumina.errors.OrderError` at the first pair of dependent events of one stream that tie."""
    for rank in sorted({part.rank for part in parts}):
        mine = [part for part in parts if part.rank == rank]
        events = TagSet.all_of(mine[0].stream.tags)
        if not definition.depends.between(events, events):
            continue  # no tie matters
        if mine[0].stream.seq is not None:
            _check_seq(definition, mine)
        elif len(mine) > 1:
            _check_parts(definition, mine)


def _check_parts(definition: Definition, parts: Sequence[Part]) -> None:
    values = [np.unique(part.batch.ts) for part in parts]
    merged, counts = np.unique(np.concatenate(values), return_counts=True)
    tied = merged[counts > 1]
    if not len(tied):
        return
    groups: dict[int, list[Placed]] = {}
    for part in parts:
        for event in part.batch.take(np.flatnonzero(np.isin(part.batch.ts, tied))):
            groups.setdefault(event.ts, []).append(Placed(part.number, part.number, event))
    for group in groups.values():
        _refuse(definition, group, "without a seq column")


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
                group = groups.setdefault((event.ts, event.seq), [])
                group.append(Placed(len(group), part.number, event))
    for group in groups.values():
        _refuse(definition, group, "with the same seq")


def _refuse(definition: Definition, group: Sequence[Placed], how: str) -> None:
    """Raise if two events of a tied group lie in different places and depend on each other."""
    # Of each tag and key, two events in different places are enough to find a pair for any other event.
    shown: dict[str, dict[Key, list[Placed]]] = {}
    for placed in group:
        few = shown.setdefault(placed.event.tag.name, {}).setdefault(placed.event.key, [])
        if not few or (len(few) == 1 and few[0].place != placed.place):
            few.append(placed)
    places = {tag: {p.place for few in by_key.values() for p in few} for tag, by_key in shown.items()}
    for tag, other in combinations_with_replacement(shown, 2):
        if len(places[tag] | places[other]) < 2:
            continue
        for key, few in shown[tag].items():
            for other_key in definition.depends.partners(tag, key, other, shown[other].keys()):
                for a, b in product(few, shown[other][other_key]):
                    if a.place != b.place:
                        raise _ambiguous(a, b, how)


def _ambiguous(a: Placed, b: Placed, how: str) -> OrderError:
    first, second = sorted((a, b), key=lambda placed: placed.place)
    return OrderError(
        "AMBIGUOUS_ORDER",
        f"stream {a.event.stream!r}: two dependent events have the timestamp {a.event.ts} {how}, so their order is "
        f"not determined: {first.event!r} in part {first.part} and {second.event!r} in part {second.part}",
        hint="give the stream a seq= column that orders events with equal timestamps",
    )
