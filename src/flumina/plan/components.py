"""Find the independent components of a leaf's itags."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from flumina.model.depends import Dependence
from flumina.model.tag_set import KeySet, TagSet
from flumina.plan.tree import Itag, merged


def components(itags: Iterable[Itag], depends: Dependence) -> tuple[tuple[Itag, ...], ...]:
    """Return the finest division of these itags, by part and tag, into independent components.

    Keys divide nothing here: a frontier belongs to a part, whatever its keys. Each component is in normal form.
    """
    groups: dict[tuple[str, KeySet], list[tuple[str, int]]] = {}
    for itag in merged(itags):  # a part may be named twice, with different keys
        for tag, keys in itag.tags:
            groups.setdefault((tag, keys), []).extend((itag.stream, part) for part in sorted(itag.parts))
    sets = {group: TagSet([group]) for group in groups}
    linked: dict[tuple[str, KeySet], set[tuple[str, KeySet]]] = {group: set() for group in groups}
    for one, other in combinations(groups, 2):
        if depends.between(sets[one], sets[other]):
            linked[one].add(other)
            linked[other].add(one)
    found: list[tuple[Itag, ...]] = []
    seen: set[tuple[str, KeySet]] = set()
    for group in groups:
        if group in seen:
            continue
        reached, waiting = {group}, [group]
        while waiting:
            new = linked[waiting.pop()] - reached
            reached |= new
            waiting += new
        seen |= reached
        pieces = [
            Itag(stream, frozenset({part}), sets[g]) for g in groups if g in reached for stream, part in groups[g]
        ]
        # Parts of one set are connected by an event of another set that depends on both, or by themselves.
        together = len(reached) > 1 or depends.between(sets[group], sets[group])
        found += [merged(pieces)] if together else [(piece,) for piece in pieces]
    return tuple(found)
