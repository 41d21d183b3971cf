"""Divide the input into atoms, the smallest itags that a plan places.

Keys are divided into *cells*: hot keys and finitely many declared keys one by one, the others by hash buckets. Every
key set that a source declares is a union of cells, so that two atoms with ``same_key`` tags depend on each other
exactly if they are in the same cell.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flumina.model.depends import Dependence, Rule, RuleDependence
from flumina.model.hashing import BUCKETS, bucket_of
from flumina.model.tag_set import UNKEYED, Key, KeySet, TagSet
from flumina.plan.key_cover import bits
from flumina.plan.sources import Inputs
from flumina.plan.tree import Itag

MAX_NAMED = 4096
"""More declared keys than this are not planned one by one, unless ``depends`` is a function of them."""

MAX_DIVIDED = 20_000
"""Largest number of atoms from dividing keys; with many streams, keys are divided less."""


@dataclass(frozen=True, slots=True)
class InputAtom:
    """One tag and one cell of keys on these parts of a stream."""

    stream: str
    parts: frozenset[int]
    tag: str
    cell: int
    keys: KeySet
    rate: float
    host: str | None
    ticks: bool = False
    """Whether its events come by themselves."""

    @property
    def leaf_only(self) -> bool:
        """Whether it is the ticks of unnamed keys, which only a leaf knows (V3)."""
        return self.ticks and not self.keys.is_finite

    @property
    def itag(self) -> Itag:
        """The atom as an itag of a worker."""
        return Itag(self.stream, self.parts, TagSet([(self.tag, self.keys)]))


def atoms(inputs: Inputs, buckets: int = 1) -> list[InputAtom]:
    """Return the input as atoms, streams and parts in their order.

    ``buckets`` is the number of divisions of keys that no source names. With one, atoms are divided by part
    like all others; with more, a division has all parts of a stream at one host.
    """
    cells = _cells(inputs, buckets)
    cell_of = {key: number for number, cell in enumerate(cells) if cell.is_finite for key in cell.flips}
    whole: dict[tuple[str, str, int, int, str | None], list[tuple[int, float]]] = {}
    where: dict[KeySet, list[int]] = {}
    for load in inputs.loads:
        held = load.profile.keys
        if held not in where and held.is_finite:
            where[held] = sorted({cell_of[key] for key in held.flips})
        elif held not in where:
            where[held] = [number for number, cell in enumerate(cells) if cell.overlaps(held)]
        for number in where[held]:
            rate = (load.rate or 0.0) * load.profile.share(cells[number])
            apart = -1 if buckets > 1 and not cells[number].is_finite else load.part
            whole.setdefault((load.stream, load.tag, number, apart, load.host), []).append((load.part, rate))
    found = []
    for (stream, tag, number, _, host), pieces in whole.items():
        parts, keys = frozenset(part for part, _ in pieces), cells[number]
        rate, ticks = sum(rate for _, rate in pieces), stream in inputs.ticks
        found.append(InputAtom(stream, parts, tag, number, keys, rate, host, ticks))
    ranks = {shape.name: rank for rank, shape in enumerate(inputs.shapes)}
    found.sort(key=lambda atom: (atom.cell, ranks[atom.stream], min(atom.parts)))
    return found


def affordable(inputs: Inputs, buckets: int) -> int:
    """Return the number of divisions, at most ``buckets``, of unnamed keys: each has an atom for each stream."""
    places = {(load.stream, load.tag, load.host) for load in inputs.loads if not load.profile.keys.is_finite}
    return max(1, min(buckets, MAX_DIVIDED // max(1, len(places))))


def _cells(inputs: Inputs, buckets: int) -> list[KeySet]:
    """Return a division of all keys that fits every declared key set; the absent key of unkeyed tags comes first."""
    depends = inputs.definition.depends
    sets = list(dict.fromkeys(load.profile.keys for load in inputs.loads if load.profile.keys != UNKEYED))
    hot = dict.fromkeys(key for load in inputs.loads for key in load.profile.hot)
    named = hot | dict.fromkeys(sorted((key for keys in sets for key in keys.flips), key=repr))
    alone = len(named) <= MAX_NAMED or not isinstance(depends, RuleDependence)
    together: dict[Hashable, list[Key]] = {}
    holders: dict[Key, list[int]] = defaultdict(list)
    for number, keys in enumerate(sets):
        for key in keys.flips if keys.is_finite else (key for key in named if key in keys):
            holders[key].append(number)
    for key in named:
        signature = tuple(holders.get(key, ()))
        if signature:
            together.setdefault(key if alone or key in hot else (signature, bucket_of(key) % 64), []).append(key)
    cells = [UNKEYED] if any(load.profile.keys == UNKEYED for load in inputs.loads) else []
    cells += [KeySet.of(*keys) for keys in together.values()]
    return cells + list(_bucket_cells(sets, list(named), buckets))


def _bucket_cells(sets: Sequence[KeySet], named: Iterable[Key], buckets: int) -> Iterator[KeySet]:
    """Ranges of the buckets that the same sets have, without the keys that are named."""
    infinite = [keys for keys in sets if not keys.is_finite]
    if not infinite:
        return
    by_bucket: dict[int, list[Key]] = defaultdict(list)
    for key in named:
        by_bucket[bucket_of(key)].append(key)
    signatures = np.stack([bits(keys) for keys in infinite])
    _, group_of = np.unique(signatures, axis=1, return_inverse=True)
    held = signatures.any(axis=0)
    groups = [np.flatnonzero((group_of.ravel() == group) & held) for group in range(int(group_of.max()) + 1)]
    total = int(held.sum())
    for group in groups:
        if not len(group):
            continue
        pieces = max(1, min(len(group), round(buckets * len(group) / total)))
        for piece in np.array_split(group, pieces):
            keys = frozenset(key for bucket in piece.tolist() for key in by_bucket.get(bucket, ()))
            mask = np.zeros(BUCKETS, bool)
            mask[piece] = True
            yield KeySet(int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little"), keys)


Group = tuple[str, int | None]
"""All atoms of a tag in one cell; or in all cells (None)."""


@dataclass(frozen=True)
class Graph:
    """The dependence of atoms: an atom depends on all atoms of the groups that it reaches."""

    atoms: Sequence[InputAtom]
    depends: Dependence

    def groups(self, atom: InputAtom) -> tuple[Group, Group]:
        """Return the groups that an atom belongs to."""
        return (atom.tag, atom.cell), (atom.tag, None)

    def reaches(self, atom: InputAtom) -> list[Group]:
        """Return the groups all of whose atoms this atom depends on."""
        if isinstance(self.depends, RuleDependence):
            return [(o, None if rule is Rule.ALWAYS else atom.cell) for o, rule in self._rules.get(atom.tag, ())]
        return self._pairs[atom.tag, atom.cell]

    @cached_property
    def _rules(self) -> dict[str, list[tuple[str, Rule]]]:
        assert isinstance(self.depends, RuleDependence)
        found: dict[str, list[tuple[str, Rule]]] = defaultdict(list)
        for (tag, other), rule in self.depends.rules.items():
            found[tag].append((other, rule))
        return found

    @cached_property
    def _pairs(self) -> dict[Group, list[Group]]:
        """Return the dependent pairs of groups of a relation that is a function: call it once for each pair."""
        sets = {(atom.tag, atom.cell): TagSet([(atom.tag, atom.keys)]) for atom in self.atoms}
        return {one: [other for other, events in sets.items() if self._ask(mine, events)] for one, mine in sets.items()}

    def _ask(self, left: TagSet, right: TagSet) -> bool:
        ((tag, keys),), ((other, others),) = left, right
        if len(keys.flips) == len(others.flips) == 1 and keys.is_finite and others.is_finite:
            return self.depends(tag, next(iter(keys.flips)), other, next(iter(others.flips)))
        return self.depends.between(left, right)

    @cached_property
    def degrees(self) -> list[int]:
        """For each atom how many atoms it depends on, itself counted if it does."""
        sizes: dict[Group, int] = defaultdict(int)
        for atom in self.atoms:
            for group in self.groups(atom):
                sizes[group] += 1
        return [sum(sizes.get(group, 0) for group in self.reaches(atom)) for atom in self.atoms]
