import random
from itertools import combinations

import flumina as fl
from flumina.apps import KeyCounter, ValueBarrier
from flumina.model.tag_set import KeySet, TagSet
from flumina.plan import Itag, components
from tests.plan.support import PROGRAMS, pieces, random_streams

ALL = KeySet.everything()


def itag(stream: str, parts: set[int], **tags: KeySet) -> Itag:
    return Itag(stream, frozenset(parts), TagSet(tags))


def test_parts_of_a_self_independent_tag_are_components_of_their_own() -> None:
    depends = fl.define(ValueBarrier).depends
    value = ValueBarrier.value.universe
    assert components([itag("v", {0, 1}, value=value)], depends) == (
        (itag("v", {0}, value=value),),
        (itag("v", {1}, value=value),),
    )
    both = components([itag("v", {0, 1}, value=value), itag("b", {0}, barrier=value)], depends)
    assert both == ((itag("b", {0}, barrier=value), itag("v", {0, 1}, value=value)),)


def test_a_self_dependent_tag_holds_its_parts_together() -> None:
    depends = fl.define(KeyCounter).depends
    assert components([itag("r", {0, 1}, read=ALL)], depends) == ((itag("r", {0, 1}, read=ALL),),)


def test_components_are_independent_and_nothing_is_lost() -> None:
    rng = random.Random(5)
    for _ in range(200):
        definition = fl.define(rng.choice(PROGRAMS))
        all_pieces = pieces(definition, random_streams(definition, rng))
        mine = rng.sample(all_pieces, rng.randint(1, len(all_pieces)))
        found = components(mine, definition.depends)
        tags = [[i.tags for i in component] for component in found]
        for one, other in combinations(tags, 2):
            assert not any(definition.depends.between(a, b) for a in one for b in other)
        assert {(i.stream, p, t, k) for i in mine for p in i.parts for t, k in i.tags} == {
            (i.stream, p, t, cell)
            for component in found
            for i in component
            for p in i.parts
            for t, keys in i.tags
            for cell in {k for j in mine if p in j.parts and j.stream == i.stream for u, k in j.tags if u == t}
            if cell.overlaps(keys)
        }
