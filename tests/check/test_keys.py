from typing import Any, ClassVar

import pyarrow as pa

import flumina as fl
from flumina.apps import ValueBarrier
from flumina.check.constants import constants
from flumina.check.keys import AT_ONCE, keys_of, pools
from flumina.check.scenario import Universe
from flumina.check.values import KEYS
from flumina.program.base import define
from tests.check.broken import OneKeyForAll
from tests.check.lawful import RegionalDependence


def of_strings(program: type[fl.Program]) -> list[list[Any]]:
    definition = define(program)
    return [list(pool[pa.string()]) for pool in pools(definition, constants(definition))]


def test_the_usual_keys_come_first_and_then_those_that_the_program_names() -> None:
    usual, special = of_strings(OneKeyForAll)
    assert usual == list(KEYS[pa.string()])
    assert special == ["admin", "a", "b"]


def test_examples_take_the_place_of_the_usual_keys() -> None:
    class Named(OneKeyForAll):
        examples: ClassVar[Any] = {"user": ["ann", "bob", "cy", "dan"]}

    found = of_strings(Named)
    assert found[0] == ["ann", "bob", "cy"]
    assert {key for keys in found for key in keys} == {"ann", "bob", "cy", "dan", "admin"}


def test_a_single_example_stands_beside_the_usual_keys() -> None:
    class Named(OneKeyForAll):
        examples: ClassVar[Any] = {"user": ["ann"]}

    found = of_strings(Named)
    assert found[0] == list(KEYS[pa.string()])
    assert {"ann", "admin"} < {key for keys in found for key in keys}


def test_the_keys_of_a_choice_differ_and_are_few() -> None:
    class Two(OneKeyForAll):
        examples: ClassVar[Any] = {"user": ["ann", "bob"]}

    for program in (OneKeyForAll, Two):
        for keys in of_strings(program):
            assert len(set(keys)) == len(keys) <= AT_ONCE


def test_finite_keys_are_kept_to_and_those_with_a_meaning_are_among_them() -> None:
    tag = fl.Tag(key="k string", keys=[*"pqrstu"])
    assert keys_of(tag, {pa.string(): ["u", "x", "a"]}) == ("u", "p", "q")
    for universe in Universe.all_of(define(RegionalDependence)):
        assert set(universe.keys["sale"]) == {10, 11, 20}
        assert set(universe.keys["audit"]) == {1, 2}


def test_programs_without_a_word_of_their_own_have_one_choice() -> None:
    assert len(Universe.all_of(define(ValueBarrier))) == 1
