"""The dependence relation: which events must be seen in order.

``depends(a, b)`` means that swapping neighboring events a and b may change what the program does. It is symmetric.
Between two tags it is one of: nothing (never), :attr:`Rule.SAME_KEY`, :attr:`Rule.ALWAYS`; or it is the user's own
function, where all tags have finitely many keys.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product
from typing import NamedTuple, Protocol

from flumina.errors import UsageError
from flumina.model.tag import Tag, user_line
from flumina.model.tag_set import Key, KeySet, TagSet


class Rule(Enum):
    """How two dependent tags depend on each other."""

    SAME_KEY = "same_key"
    ALWAYS = "always"


class Atom(NamedTuple):
    """One (tag, key) pair, as a user's ``depends`` function gets it; ``key`` is None for an unkeyed tag."""

    tag: Tag
    key: Key


TagPair = tuple[Tag, Tag]


@dataclass(frozen=True)
class Declaration:
    """The arguments of :func:`depends`, before tags have names."""

    pairs: tuple[TagPair, ...]
    always: tuple[TagPair, ...]
    where: str


def depends(*pairs: TagPair, always: Iterable[TagPair] = ()) -> Declaration:
    """Declare the pairs of tags whose events depend on each other; all other pairs are independent.

    Two keyed tags depend where their keys are equal; pairs under ``always`` depend whatever the keys; a pair with an
    unkeyed tag always depends. A pair counts in both directions, and a tag depends on itself only if ``(tag, tag)``
    is listed. ``depends()`` declares that nothing depends on anything.
    """
    declaration = Declaration(tuple(pairs), tuple(always), user_line())
    for pair in (*declaration.pairs, *declaration.always):
        if not (isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(tag, Tag) for tag in pair)):
            raise UsageError("DEPENDS_PAIR", f"depends takes pairs of tags, got {pair!r} at {declaration.where}")
    return declaration


class Dependence(Protocol):
    """A dependence relation on the tags of one program."""

    def __call__(self, tag: str, key: Key, other: str, other_key: Key) -> bool:
        """Return whether two events with these tags and keys depend on each other."""

    def between(self, left: TagSet, right: TagSet) -> bool:
        """Return whether some event of one set depends on some event of the other; exact for unbounded keys."""

    def partners(self, tag: str, key: Key, other: str, among: Collection[Key]) -> Collection[Key]:
        """Return the keys of the other tag, among these, whose events depend on this tag and key."""

    def covers(self, tag: str, other: str, *, same_key: bool) -> bool:
        """Return whether all events of two tags depend on each other (all with equal keys, if ``same_key``)."""

    def only_by_key(self, tags: Collection[str]) -> bool:
        """Return whether events of these tags with different keys never depend on each other."""

    def synchronizing(self, tags: Iterable[Tag]) -> TagSet:
        """Return the events of these tags that synchronize, whichever worker handles them.

        Of two kinds of events that depend on each other it is the one that depends on more of its own kind: barriers
        are in a sequence, values are not. Where both are alike, it is both.
        """


@dataclass(frozen=True)
class RuleDependence:
    """Dependence by rules between tags, for any number of keys."""

    rules: Mapping[tuple[str, str], Rule]

    @staticmethod
    def bind(declaration: Declaration) -> RuleDependence:
        """Return the relation on tag names, closed under symmetry."""
        rules: dict[tuple[str, str], Rule] = {}
        for a, b in declaration.pairs:
            rule = Rule.ALWAYS if a.key is None or b.key is None else Rule.SAME_KEY
            rules.setdefault((a.name, b.name), rule)
            rules.setdefault((b.name, a.name), rule)
        for a, b in declaration.always:
            rules[a.name, b.name] = rules[b.name, a.name] = Rule.ALWAYS
        return RuleDependence(rules)

    def __call__(self, tag: str, key: Key, other: str, other_key: Key) -> bool:
        rule = self.rules.get((tag, other))
        return rule is Rule.ALWAYS or (rule is Rule.SAME_KEY and key == other_key)

    def between(self, left: TagSet, right: TagSet) -> bool:
        for (tag, keys), (other, other_keys) in product(left, right):
            rule = self.rules.get((tag, other))
            if rule is Rule.ALWAYS or (rule is Rule.SAME_KEY and keys.overlaps(other_keys)):
                return True
        return False

    def partners(self, tag: str, key: Key, other: str, among: Collection[Key]) -> Collection[Key]:
        rule = self.rules.get((tag, other))
        if rule is Rule.ALWAYS:
            return among
        return (key,) if rule is Rule.SAME_KEY and key in among else ()

    def covers(self, tag: str, other: str, *, same_key: bool) -> bool:
        rule = self.rules.get((tag, other))
        return rule is Rule.ALWAYS or (same_key and rule is Rule.SAME_KEY)

    def only_by_key(self, tags: Collection[str]) -> bool:
        return all(self.rules.get(pair) is not Rule.ALWAYS for pair in product(tags, tags))

    def synchronizing(self, tags: Iterable[Tag]) -> TagSet:
        """Decide by tag: no order among its own events, then an order by key, then one sequence."""
        weights = {None: 0, Rule.SAME_KEY: 1, Rule.ALWAYS: 2}
        own = {tag: weights[self.rules.get((tag.name, tag.name))] for tag in tags}
        return TagSet.all_of(
            tag
            for tag in own
            if any((tag.name, other.name) in self.rules and own[tag] >= own[other] for other in own if other is not tag)
        )


class FunctionDependence:
    """Dependence by the user's function on finitely many (tag, key) pairs, tabulated once.

    The function need not be symmetric for this to be safe: a pair depends if the function says so in either
    direction. That it is symmetric is a law of its own (see :mod:`flumina.check`).
    """

    def __init__(self, function: Callable[[Atom, Atom], bool], tags: Sequence[Tag]) -> None:
        self.function = function
        atoms = [Atom(tag, key) for tag in tags for key in sorted(tag.universe.keys(), key=repr)]
        self.table = {
            ((a.tag.name, a.key), (b.tag.name, b.key)): bool(function(a, b)) for a, b in product(atoms, atoms)
        }
        self.atoms = tuple((atom.tag.name, atom.key) for atom in atoms)

    def asymmetric(self) -> list[tuple[tuple[str, Key], tuple[str, Key]]]:
        """Return pairs (a, b) with ``depends(a, b)`` but not ``depends(b, a)``."""
        return [(a, b) for (a, b), yes in self.table.items() if yes and not self.table[b, a]]

    def __call__(self, tag: str, key: Key, other: str, other_key: Key) -> bool:
        a, b = (tag, key), (other, other_key)
        return self.table[a, b] or self.table[b, a]

    def between(self, left: TagSet, right: TagSet) -> bool:
        return any(
            self(tag, key, other, other_key)
            for tag, key in self.atoms
            if left.has(tag, key)
            for other, other_key in self.atoms
            if right.has(other, other_key)
        )

    def partners(self, tag: str, key: Key, other: str, among: Collection[Key]) -> Collection[Key]:
        return [other_key for other_key in among if self(tag, key, other, other_key)]

    def covers(self, tag: str, other: str, *, same_key: bool) -> bool:
        return all(
            self(tag, a, other, b)
            for name, a in self.atoms
            if name == tag
            for other_name, b in self.atoms
            if other_name == other and (a == b or not same_key)
        )

    def only_by_key(self, tags: Collection[str]) -> bool:
        atoms = [atom for atom in self.atoms if atom[0] in tags]
        return not any(self(*a, *b) for a, b in product(atoms, atoms) if a[1] != b[1])

    def synchronizing(self, tags: Iterable[Tag]) -> TagSet:
        """Decide by tag and key: the larger fraction of its own tag that an event depends on."""
        names = {tag.name for tag in tags}
        atoms = [atom for atom in self.atoms if atom[0] in names]
        own = {}
        for atom in atoms:
            kin = [other for other in atoms if other[0] == atom[0]]
            own[atom] = sum(self(*atom, *other) for other in kin) / len(kin)
        return TagSet(
            (a[0], KeySet.of(a[1]))
            for a in atoms
            if any(self(*a, *b) and (own[a] > own[b] or (own[a] == own[b] and a[0] != b[0])) for b in atoms)
        )
