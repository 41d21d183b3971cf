import json
import linecache
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cached_property, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flumina as fl
from flumina.apps import Fraud, KeyCounter, PageViews, ValueBarrier
from flumina.apps.outliers import Connections
from flumina.checkpoint.fingerprint import code_hash, input_fingerprint, program_fingerprint
from flumina.checkpoint.program_compatibility import check_program, differences
from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.errors import CheckpointError
from tests.checkpoint.store.support import commit

SOURCE = """
import flumina as fl

class Rules(fl.Program):
    tx = fl.Tag("v long, who string", key="card int")
    rule = fl.Tag("r long")
    depends = fl.depends((tx, tx), (tx, rule), (rule, rule))
    output = {"flagged": "v long, r long", "sums": "s long"}
    limit = 10
    total = fl.Sum("long")
    model = fl.Replicated("long", 7)

    def update(self, state, event, emit):
        # a comment
        if event.tag is self.rule:
            emit.sums(*[state.total])
            state.model = event.r
        else:
            state.total += event.v
            if event.v > self.limit:
                emit.flagged(event.v, state.model)
"""


@dataclass(frozen=True)
class Picky:
    letters: frozenset[str]

    def __call__(self, part: int) -> list[Any]:
        return []


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """The facts of the program above with some text replaced, and of streams for it."""
    made = 0

    def fingerprint(old: str = "", new: str = "", **stream: Any) -> dict[str, Any]:
        nonlocal made
        made += 1
        text = SOURCE.replace(old, new) if old else SOURCE
        assert not old or old in SOURCE
        module = ModuleType(f"rules{made}")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        name = f"<rules {made}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(text, name, "exec"), vars(module))  # noqa: S102 -- our own text
        program = vars(module)["Rules"]
        return program_fingerprint(
            program, [fl.Stream("txs", program.tx, {}, **stream), fl.Stream("rules", program.rule, {})]
        )

    return fingerprint


@pytest.mark.parametrize("program", [KeyCounter, PageViews, ValueBarrier, Fraud])
def test_facts_are_json_and_the_same_every_time(program: type[fl.Program]) -> None:
    fingerprint = program_fingerprint(program)
    assert json.loads(json.dumps(fingerprint)) == fingerprint == program_fingerprint(program())
    assert differences(json.loads(json.dumps(fingerprint)), program_fingerprint(program)) == []
    assert fingerprint["name"] == program.__name__
    assert all(fingerprint["code"].values())
    assert "update" in fingerprint["code"]
    assert not [name for name in fingerprint["code"] if name.startswith("_define")]  # that is ours


def test_what_the_facts_are(make: Callable[..., dict[str, Any]]) -> None:
    fingerprint = make()
    assert fingerprint["tags"]["tx"] == {"columns": {"v": "long", "who": "string"}, "key": {"card": "int"}}
    assert fingerprint["depends"] == {"rule, rule": "always", "rule, tx": "always", "tx, tx": "same key"}
    assert fingerprint["state"]["fields"] == {"total": "Sum(long)", "model": "Replicated(long, initially 7)"}
    assert fingerprint["outputs"]["flagged"] == {"v": "long", "r": "long"}
    assert fingerprint["streams"]["rules"]["rank"] == 1
    assert fingerprint["parameters"] == {"limit": "10"}
    assert program_fingerprint(PageViews)["keyed"] is True


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# a comment", "\n        # another\n"),
        ("# a comment", "'''What it does.'''"),
        ("state.model = event.r", "state.model = (event.r)  # so"),
        ("tx, rule), (rule", "rule, tx), (rule"),
        ('"v long, who string"', '"who string, v bigint"'),  # columns of events have no order
    ],
)
def test_what_is_no_change(make: Callable[..., dict[str, Any]], old: str, new: str) -> None:
    assert differences(make(), make(old, new)) == []


@pytest.mark.parametrize(
    ("old", "new", "said", "code_only"),
    [
        ("event.v > self", "event.v >= self", ["the code of update changed"], True),
        ("limit = 10", "limit = 11", ["parameter 'limit': 10 -> 11"], True),
        ("class Rules", "class Rules2", ["name Rules -> Rules2"], True),
        ("    def update", "    def help(self): ...\n\n    def update", ["help is new"], True),
        ('"v long, r long"', '"v int, r long"', ["output 'flagged': column v long -> int"], False),
        (
            '"v long, r long"',
            '"r long, v long"',
            ["output 'flagged': columns in another order: v long, r long -> r long, v long"],
            False,
        ),
        ('"v long, r long"', '"v long NOT NULL, r long"', ["output 'flagged': column v long -> long not null"], False),
        ('"sums": "s long"', '"sums": "s long, t int"', ["output 'sums': column t is new: int"], False),
        ('"card int"', '"card long"', ["tag 'tx': key card int -> card long"], False),
        ("v long, who string", "v long", ["tag 'tx': column who is gone"], False),
        ("depends((tx, tx), ", "depends(", ["depends 'tx, tx' is gone"], False),
        ('Sum("long")', 'Sum("double")', ["state field 'total': Sum(long) -> Sum(double)"], False),
        (
            '"long", 7',
            '"long", 8',
            ["state field 'model': Replicated(long, initially 7) -> Replicated(long, initially 8)"],
            False,
        ),
    ],
)
def test_what_changed_is_told(
    make: Callable[..., dict[str, Any]], old: str, new: str, said: list[str], *, code_only: bool
) -> None:
    before, now = make(), make(old, new) if "Rules2" not in new else {**make(), "name": "Rules2"}
    assert differences(before, now) == said
    for changed in (False, True):
        if changed and code_only:
            check_program(before, now, allow_code_change=True, where="here")
            continue
        with pytest.raises(CheckpointError, match="CHECKPOINT_PROGRAM") as caught:
            check_program(before, now, allow_code_change=changed, where="here")
        assert f"\n  - {said[0]}" in caught.value.message
        assert ("allow_code_change=True" in str(caught.value.hint)) == code_only


def test_streams_count(make: Callable[..., dict[str, Any]]) -> None:
    before, now = make(), make(ts="time", seq="n", rename={"v": "value"})
    assert differences(before, now) == [
        "stream 'txs': ts ts -> time",
        "stream 'txs': seq none -> n",
        "stream 'txs': renamed none -> v value",
    ]
    swapped = {**before, "streams": {n: {**s, "rank": 1 - s["rank"]} for n, s in before["streams"].items()}}
    assert differences(before, swapped) == ["stream 'txs': rank 0 -> 1", "stream 'rules': rank 1 -> 0"]
    fewer = {**before, "streams": {"rules": before["streams"]["rules"]}}
    assert differences(before, fewer) == ["stream 'txs' is gone"]
    assert differences(fewer, before) == ["stream 'txs' is new"]


def test_code_without_source(make: Callable[..., dict[str, Any]]) -> None:
    """What can't be compared is not taken for the same, unless it never could be."""
    known, unknown = make(), {**make(), "code": {"update": None}}
    assert differences(unknown, unknown) == []
    assert differences(known, unknown) == ["the code of update can't be compared: its source is not known"]
    assert differences(unknown, known) == ["the code of update can't be compared: its source was not known"]
    assert code_hash(eval("lambda: 1")) is None  # noqa: S307
    assert code_hash(len) is None


def test_arguments_of_a_program_count() -> None:
    class Limited(fl.Program):
        tick = fl.Tag("v long")
        depends = fl.depends()
        output = "v long"
        seen = fl.Count()

        def __init__(self, limit: int) -> None:
            self.limit, self.lock = limit, threading.Lock()

        def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
            state.seen += 1

    assert differences(program_fingerprint(Limited(3)), program_fingerprint(Limited(4))) == [
        "parameter 'limit': 3 -> 4"
    ]


class Charged(fl.Program):
    tick = fl.Tag("v long")
    depends = fl.depends()
    output = "v long"
    seen = fl.Count()
    tiers: ClassVar = {"a": {1, 2}}

    def __init__(self, fee: object) -> None:
        self.fee, self._cache = fee, {"of": fee}

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        state.seen += 1


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (Decimal("0.01"), Decimal("0.99"), "Decimal('0.01') -> Decimal('0.99')"),
        ({"a": 1}, {"a": [1]}, "{'a': 1} -> {'a': [1]}"),
        (3, Decimal(3), "3 -> Decimal('3')"),
        (date(2024, 1, 1), date(2024, 1, 2), "datetime.date(2024, 1, 1) -> datetime.date(2024, 1, 2)"),
        (("b", {"a"}), ("b", {"c"}), "('b', {'a'}) -> ('b', {'c'})"),
    ],
)
def test_arguments_of_any_kind_count(before: object, now: object, said: str) -> None:
    old, new = (json.loads(json.dumps(program_fingerprint(Charged(fee)))) for fee in (before, now))
    assert differences(old, new) == [f"parameter 'fee': {said}"]
    with pytest.raises(CheckpointError, match="allow_code_change=True"):
        check_program(old, new, allow_code_change=False, where="here")
    check_program(old, new, allow_code_change=True, where="here")
    assert old["parameters"]["tiers"] == "{'a': {1, 2}}"
    assert set(old["parameters"]) == {"fee", "tiers"}, "neither declarations nor what is private"


def made_by(scale: Any, *, read: bool = False) -> type[fl.Program]:
    """A class in a function, with everything that code can have from elsewhere."""

    def of_number(number: int) -> Any:
        class Made(fl.Program):
            a = fl.Tag("v long")
            c = fl.Tag("v long")
            depends = fl.depends((a, a), (c, c))
            output = "n long"
            n = fl.Count(added_by=[], read_by=[c], set_by=[]) if read else fl.Count(added_by=[a], read_by=[], set_by=[])

            def update(self, state: fl.State, event: fl.Event, emit: fl.Emit, *, by: Any = scale) -> None:
                emit(self.shifted(event.v * number))

            if scale == 1:

                @staticmethod
                @lru_cache
                def shifted(v: int) -> int:
                    return v + 1

                @cached_property
                def limit(self) -> int:
                    return 1

            else:

                @staticmethod
                @lru_cache
                def shifted(v: int) -> int:
                    return v + 2

                @cached_property
                def limit(self) -> int:
                    return 2

        return Made

    made: type[fl.Program] = of_number(10 * scale)
    return made


def test_what_methods_have_from_elsewhere_counts_and_so_do_those_below_decorators() -> None:
    old, new = (json.loads(json.dumps(program_fingerprint(made_by(scale)))) for scale in (1, 2))
    assert differences(old, old) == []
    assert set(differences(old, new)) == {
        "parameter 'number in update': 10 -> 20",
        "parameter 'by in update': 1 -> 2",
        "the code of limit changed",
        "the code of shifted changed",
    }


def test_who_reads_a_field_counts() -> None:
    """Forks give its value to those: shares of a state would be those of others."""
    old, new = (program_fingerprint(made_by(1, read=read)) for read in (False, True))
    assert differences(old, new) == ["state field 'n' is read or set by none -> c"]
    with pytest.raises(CheckpointError, match="allow_code_change=True"):
        check_program(old, new, allow_code_change=False, where="here")
    check_program(old, new, allow_code_change=True, where="here")


def test_programs_of_several_state_types_and_functions() -> None:
    class Typed(fl.Program):
        a = fl.Tag("", key="k int", keys=[1, 2])
        whole = fl.StateType()
        half = fl.StateType(a)
        output = "n long"

        @staticmethod
        def depends(x: fl.Atom, y: fl.Atom) -> bool:
            return x.key == y.key == 1

        def init(self) -> int:
            return 0

        @fl.update(whole, half)
        def step(self, state: int, event: fl.Event, emit: fl.Emit) -> int:
            return state + 1

        @fl.fork(whole, into=(half, half))
        def truncation(self, state: int, left: fl.TagSet, right: fl.TagSet) -> tuple[int, int]:
            return state, 0

        @fl.join((half, half), into=whole)
        def unite(self, left: int, right: int) -> int:
            return left + right

    fingerprint = program_fingerprint(Typed)
    assert fingerprint["depends"] == {"a[1], a[1]": "always"}
    assert fingerprint["state"] == {"types": {"whole": ["a"], "half": ["a"]}}
    assert set(fingerprint["code"]) >= {"init", "step", "truncation", "unite"}
    assert fingerprint["tags"]["a"]["keys"] == ["1", "2"]


def test_input_is_told_apart_as_far_as_that_costs_nothing(tmp_path: Path) -> None:
    def of(data: Any) -> dict[str, Any]:
        return input_fingerprint([fl.Stream("values", ValueBarrier.value, data)])["values"]  # type: ignore[no-any-return]

    table = pa.table({"ts": [1, 2], "v": [1, 2]})
    for name, rows in (("a", table), ("b", table), ("c", table.slice(1))):
        pq.write_table(rows, tmp_path / f"{name}.parquet")
    one, same, other = (fl.Parquet(tmp_path / f"{name}.parquet") for name in "abc")
    assert of(one) == of(same) == {"files": 1, "bytes": (tmp_path / "a.parquet").stat().st_size}
    assert of(one) != of(other)
    assert of(fl.Parquet(tmp_path / "none.parquet")) == {}, "told by who reads it"
    assert of(table) == {"parts": 1, "rows": 2}
    assert of([table, table.slice(1)]) == {"parts": 2, "rows": 3}
    assert of(table.to_batches()[0]) == of(table.to_batches()) == of(table)
    assert of({"ts": [1, 2], "v": (3, 4)}) == of({"ts": np.arange(2), "v": np.arange(2)}) == of(table)
    assert of(table.to_pylist()) == of(table.to_pandas()) == of(table)
    assert of([table.to_pandas(), table.slice(1).to_pandas()]) == {"parts": 2, "rows": 3}
    assert of([*table.to_batches(), *table.to_batches()]) == {"parts": 2, "rows": 4}
    assert of([]) == {"parts": 0, "rows": 0}
    assert of({}) == {"parts": 1, "rows": 0}
    assert of(object()) == of([object()]) == {}, "a DataFrame of Spark, say"
    few, more = (Connections(events=events, parts=1).streams()[0].data for events in (100, 200))
    assert of(few) == of(Connections(events=100, parts=1).streams()[0].data) != of(more)
    assert of(fl.GeneratorSource(lambda part: [], parts=2)) == {"parts": 2, "generator": None}
    some, again, others = (of(fl.GeneratorSource(Picky(frozenset(text)))) for text in ("ab", "ba", "ac"))
    assert some == again != others, "sets have no order"


def test_other_input_is_refused(tmp_path: Path) -> None:
    """Also if the program may be another one: rows before the snapshot would be missing without a word."""
    store, fingerprint = Checkpoints(tmp_path), program_fingerprint(ValueBarrier)
    owner = store.take_over(resumes=None, fingerprint={**fingerprint, "input": {"values": {"rows": 2}}})
    snapshot = commit(owner, state=b"")
    other = {**fingerprint, "input": {"values": {"rows": 3}}}
    for changed in (False, True):
        with pytest.raises(CheckpointError, match=r"or from other input:\n  - input 'values': rows 2 -> 3") as caught:
            store.take_over(resumes=snapshot, fingerprint=other, allow_code_change=changed)
        assert "allow_code_change=True" not in str(caught.value)
        assert "would be missing" in str(caught.value)


@pytest.mark.parametrize("rows", [[], [{"ts": 1}], [{"ts": 1}, {"ts": 2}]])
def test_snapshots_that_say_nothing_of_an_input_are_accepted(rows: list[dict[str, int]]) -> None:
    fingerprint = program_fingerprint(ValueBarrier)
    new = {**fingerprint, "input": input_fingerprint([fl.Stream("barriers", ValueBarrier.barrier, rows)])}
    assert new["input"]["barriers"]["rows"] == len(rows)
    check_program({**fingerprint, "input": {"barriers": {}}}, new, allow_code_change=False, where="here")
    assert differences({**fingerprint, "input": {}}, new) == ["input 'barriers' is new"]
    assert differences(new, {**fingerprint, "input": {"barriers": {}}}) != []


def test_another_program_can_not_claim(tmp_path: Any) -> None:
    store = Checkpoints(tmp_path)
    owner = store.take_over(resumes=None, fingerprint=program_fingerprint(Fraud))
    snapshot = commit(owner, state=b"")
    with pytest.raises(CheckpointError, match=r"CHECKPOINT_PROGRAM(.|\n)*tag 'transaction' is gone"):
        store.take_over(resumes=snapshot, fingerprint=program_fingerprint(PageViews), allow_code_change=True)
    changed = program_fingerprint(Fraud)
    changed["code"]["update"] = "other"
    with pytest.raises(CheckpointError, match="allow_code_change=True"):
        store.take_over(resumes=snapshot, fingerprint=changed)
    assert {found.term for found in store.folder.listing().owners} == {1}
    owner = store.take_over(resumes=snapshot, fingerprint=changed, allow_code_change=True)
    assert commit(owner).manifest.fingerprint == changed


WORDS_SOURCE = """
from collections import Counter, namedtuple
from dataclasses import dataclass
import flumina as fl
from flumina.checkpoint.fingerprint import program_fingerprint

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
    print(program_fingerprint(Words)["state"])
"""


def test_facts_are_the_same_in_every_process(tmp_path: Path) -> None:
    script = tmp_path / "words.py"
    script.write_text(WORDS_SOURCE)
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
