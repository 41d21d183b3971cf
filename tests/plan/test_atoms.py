import math

import pytest

from flumina.apps import KeyCounter
from flumina.model.tag_set import UNKEYED, KeySet, TagSet
from flumina.plan import StreamRates, bind
from flumina.plan.atoms import MAX_DIVIDED, Graph, affordable, atoms
from tests.plan.support import Finite, Global

ALL = KeySet.everything()


def test_atoms_divide_the_input_exactly() -> None:
    half = KeySet.from_buckets(range(2048))
    sources = [
        StreamRates("s", {"put": 100, "flush": 1}, parts=2, keys=[half, ALL - half], hot={"put": {7: 20}}),
        StreamRates("t", {"get": 50}, parts=3),
    ]
    inputs = bind(Global, sources)
    for buckets in (1, 8):
        pieces = atoms(inputs, buckets)
        assert math.fsum(atom.rate for atom in pieces) == pytest.approx(151)
        for load in inputs.loads:
            mine = [a for a in pieces if a.stream == load.stream and load.part in a.parts and a.tag == load.tag]
            for index, atom in enumerate(mine):
                assert not any(atom.keys.overlaps(other.keys) for other in mine[:index])
            together = TagSet()
            for atom in mine:
                together |= TagSet([(atom.tag, atom.keys)])
            assert together == load.events
    hot = [atom for atom in atoms(inputs) if atom.keys == KeySet.of(7)]
    assert [(atom.tag, atom.rate) for atom in hot] == [("put", 20.0), ("get", 0.0), ("get", 0.0), ("get", 0.0)]
    assert [atom.keys for atom in atoms(inputs) if atom.tag == "flush"] == [UNKEYED, UNKEYED]


def test_the_graph_is_the_dependence_of_the_atoms() -> None:
    for program, sources in (
        (Global, [StreamRates("s", {"put": 1, "get": 1, "flush": 1}, parts=2, hot={"put": {1: 0.5, 2: 0.2}})]),
        (Finite, [StreamRates("s", {"a": 1, "b": 1}, parts=2)]),
        (KeyCounter, [StreamRates("s", {"inc": 1, "read": 1}, parts=2, keys=[[1, 2], None])]),
    ):
        inputs = bind(program, sources)
        for buckets in (1, 6):
            pieces = atoms(inputs, buckets)
            graph = Graph(pieces, inputs.definition.depends)
            between = inputs.definition.depends.between
            for atom in pieces:
                reached = set(graph.reaches(atom))
                for other in pieces:
                    expected = between(atom.itag.tags, other.itag.tags)
                    assert bool(reached & set(graph.groups(other))) == expected, (atom, other)


def test_many_streams_of_any_key_are_divided_by_key_no_further_than_can_be_planned() -> None:
    few = bind(KeyCounter, [StreamRates("i", {"inc": 1.0}), StreamRates("r", {"read": 1.0})])
    many = bind(KeyCounter, [StreamRates(f"i{number}", {"inc": 1.0}) for number in range(5_000)])
    assert affordable(few, 256) == 256
    assert affordable(many, 256) == MAX_DIVIDED // 5_000


def test_streams_with_keys_of_their_own_meet_the_others_key_by_key() -> None:
    own = [StreamRates(f"i{key}", {"inc": 1.0}, keys=[[key]]) for key in range(3)]
    found = atoms(bind(KeyCounter, [*own, StreamRates("r", {"read": 1.0})]))
    for key in range(3):
        assert {atom.stream for atom in found if key in atom.keys} == {f"i{key}", "r"}
