"""Random programs keep the laws and are not all alike."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from flumina.program.base import define
from flumina.program.keyed import KeyedProgram
from flumina.sim.programs import random_keyed_program, random_program
from flumina.testing import assert_lawful


@pytest.mark.parametrize("make", [random_program, random_keyed_program])
def test_random_programs_keep_the_laws(make: object) -> None:
    for seed in range(12):
        program = make(Random(seed))  # type: ignore[operator]
        assert_lawful(program, examples=60)


def test_keyed_programs_are_about_one_key() -> None:
    programs = [random_keyed_program(Random(seed)) for seed in range(120)]
    assert all(issubclass(program, KeyedProgram) for program in programs)
    definitions = [define(program) for program in programs]
    kinds = Counter(all(tag.key for tag in one.tags.values()) for one in definitions)
    assert 80 < kinds[True] < 120, "some have a tag that sees all keys"
    loose = sum(not one.depends.between(one.everything, one.everything) for one in definitions)
    assert loose < 12, "nothing depends on anything"
    adding = sum(bool(one.adding) for one in definitions)
    assert 20 < adding < 100
