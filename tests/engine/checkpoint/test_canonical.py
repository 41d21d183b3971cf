import os
import subprocess
import sys
import threading
from collections import Counter, OrderedDict, namedtuple
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from flumina.engine.checkpoint.canonical import canonical

SOURCE = """
from collections import Counter, namedtuple
from dataclasses import dataclass
import flumina as fl
from flumina.engine.checkpoint.facts import program_facts

class Plain:
    def __init__(self, *words):
        self.words = frozenset(words)

class Slotted:
    __slots__ = ("words",)
    def __init__(self, *words):
        self.words = set(words)

@dataclass
class Model:
    words: frozenset
    inner: dict

Pair = namedtuple("Pair", "a b")
WORDS = ("x", "y", "zebra", "quagga", "okapi")

class Words(fl.Program):
    say = fl.Tag("v string")
    learn = fl.Tag("w string")
    depends = fl.depends((learn, learn), (learn, say))
    output = "v string"
    flat = fl.Replicated("array<string>", frozenset(WORDS))
    nested = fl.Replicated("array<string>", [{"a": set(WORDS)}, (frozenset({frozenset(WORDS), frozenset("ab")}),)])
    model = fl.Replicated("array<string>", Model(frozenset(WORDS), {"k": set(WORDS)}))
    plain = fl.Replicated("array<string>", Plain(*WORDS))
    slotted = fl.PerKey(fl.Replicated("array<string>", [Slotted(*WORDS)]))
    pair = fl.Replicated("array<string>", Pair(set(WORDS), object()))
    function = fl.Replicated("array<string>", [len, Plain, lambda: 1])

    def update(self, state, event, emit):
        if event.tag is self.say:
            if event.v in state.flat: emit(event.v)
        else:
            state.flat = state.flat | {event.w}

if __name__ == "__main__":
    print(program_facts(Words)["state"])
"""


def test_facts_are_the_same_in_every_process(tmp_path: Path) -> None:
    script = tmp_path / "words.py"
    script.write_text(SOURCE)
    said = {
        subprocess.run(
            [sys.executable, script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1, said
    assert "'okapi', 'quagga', 'x', 'y', 'zebra'" in said.pop()


@pytest.mark.parametrize(
    "value",
    [
        None, True, 7, -0.5, float("nan"), "text with { and ' in it", b"\x00", [], (), (1,), {}, {"b": 1, "a": [2]},
        set(), frozenset(), frozenset({1}), {1, 2, 3}, Decimal("1.50"), date(2020, 1, 1), [(1, "a"), {"k": None}],
        np.float64(0.1), OrderedDict(),
    ],
)  # fmt: skip
def test_what_repr_says_reliably_stays_as_it_was_in_older_checkpoints(value: object) -> None:
    assert canonical(value) == repr(value)


@dataclass
class Model:
    weights: Any
    hidden: int = field(default=0, repr=False)


class Plain:
    def __init__(self, value: object) -> None:
        self.value = value


Pair = namedtuple("Pair", "a b")  # noqa: PYI024 -- the kind without types is meant


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({1, 2}, {1, 3}),
        ({1}, frozenset({1})),
        ({1}, {"1"}),
        (Model({1}), Model({2})),
        (Model(1, 2), Model(1, 3)),
        (Plain({"a"}), Plain({"b"})),
        (Plain(1), Model(1)),
        (Pair({1}, 2), Pair({1}, 3)),
        (Counter("aab"), Counter("abb")),
        (np.arange(5000), np.arange(5000) * (np.arange(5000) != 2500)),
        (np.array([0.1]), np.array([0.1 + 1e-12])),
        (np.array([{1}, None], object), np.array([{2}, None], object)),
        (pa.array(range(100)), pa.array([*range(50), 0, *range(51, 100)])),
    ],
    ids=repr,
)
def test_other_values_have_another_text(one: object, other: object) -> None:
    assert canonical(one) == canonical(one)
    assert canonical(one) != canonical(other)


def test_what_cannot_be_told_apart_says_so() -> None:
    assert canonical(threading.Lock()) == "lock(content not compared: it can't be pickled)"


def test_a_value_that_holds_itself_ends() -> None:
    loop: list[object] = [1]
    loop.append(loop)
    assert canonical(loop) == "[1, ...]"
    knot = Plain(None)
    knot.value = knot
    assert canonical(knot) == canonical(knot)
