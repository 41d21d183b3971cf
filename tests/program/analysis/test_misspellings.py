"""Names and numbers of values that can't be right are told when the class is made, and right ones never are."""

import ast
import inspect
import re
from random import Random
from typing import Any

import pytest

import flumina as fl
from flumina import apps
from flumina.program import base as program_module
from flumina.program.declared_state import DeclaredState
from flumina.sim.programs import random_keyed_program, random_program
from tests.analysis import mistakes, program, rewritten, run, source, uses
from tests.check import lawful

WRONG: dict[str, list[str]] = {
    "event.amunt": ["UNKNOWN_COLUMN amunt"],
    "event['amunt']": ["UNKNOWN_COLUMN event['amunt']"],
    "state.total += event.usr": ["UNKNOWN_COLUMN usr"],
    "x = event.amunt\ny = event.shp": ["UNKNOWN_COLUMN amunt", "UNKNOWN_COLUMN shp"],
    "emit(event.amunt, 1)": ["UNKNOWN_COLUMN amunt"],
    "emit(1)": ["OUTPUT_VALUES emit(1)"],
    "emit()": ["OUTPUT_VALUES emit()"],
    "emit(1, 2, 3)": ["OUTPUT_VALUES emit(1, 2, 3)"],
    "emit(1, 2, 3, *event.rest)": ["OUTPUT_VALUES emit(1, 2, 3, *event.rest)", "UNKNOWN_COLUMN rest"],
    "emit(a=1)": ["OUTPUT_VALUES emit(a=1)"],
    "emit(a=1, c=2)": ["OUTPUT_VALUES emit(a=1, c=2)"],
    "emit(a=1, c=2, **event.more)": ["OUTPUT_VALUES emit(a=1, c=2, **event.more)", "UNKNOWN_COLUMN more"],
    "emit(1, b=2)": ["OUTPUT_VALUES emit(1, b=2)"],
    "emit.columns([1])": ["OUTPUT_VALUES emit.columns([1])"],
    "emit.b(1)": ["UNKNOWN_OUTPUT b"],
    "send = emit.b": ["UNKNOWN_OUTPUT b"],
}


@pytest.mark.parametrize("body", WRONG)
def test_what_is_wrong(body: str) -> None:
    assert mistakes(body) == WRONG[body]


NAMED: dict[str, list[str]] = {
    "emit(1)": ["UNKNOWN_OUTPUT emit(1)"],
    "emit.columns(1)": ["UNKNOWN_OUTPUT columns"],
    "emit.high(1)": [],
    "emit.high(1, 2)": ["OUTPUT_VALUES emit.high(1, 2)"],
    "emit.high.columns([1], at=[0])": [],
    "emit.high.columns([1], [2], at=[0])": ["OUTPUT_VALUES emit.high.columns([1], [2], at=[0])"],
    "emit.high.columns(n=[1], at=[0])": [],
    "emit.high(n=1, at=2)": ["OUTPUT_VALUES emit.high(n=1, at=2)"],
    "emit.hihg(1)": ["UNKNOWN_OUTPUT hihg"],
}


@pytest.mark.parametrize("body", NAMED)
def test_named_outputs(body: str) -> None:
    assert mistakes(body, output={"high": "n long", "low": "n long, m long"}) == NAMED[body]


def test_no_outputs() -> None:
    assert mistakes("emit(1)", output={}) == ["UNKNOWN_OUTPUT emit(1)"]
    assert mistakes("emit.output(1)", output={}) == ["UNKNOWN_OUTPUT output"]


def test_the_text_of_mistakes() -> None:
    """Where, what was expected, the line with carets, and what was probably meant; all of them at once."""
    with pytest.raises(fl.DefinitionError) as caught:
        program(
            """
            if event.tag is self.sale:
                state.totl += event.amunt; emit.b(1)
            elif event.tag is self.refund:
                emit(a=event.cost, c=2)
            """
        )
    text = re.sub(r"<case \d+>", "case.py", str(caught.value))
    assert (
        text
        == """\
[DEFINITION] program P has 4 mistakes:
  1. case.py:16: [UNKNOWN_COLUMN] expected a column of tag sale (user, amount, shop), got event.amunt in update
        state.totl += event.amunt; emit.b(1)
                            ^^^^^
      hint: did you mean event.amount?
  2. case.py:16: [UNKNOWN_OUTPUT] expected one of the outputs (output), got emit.b in update
        state.totl += event.amunt; emit.b(1)
                                        ^
      hint: write emit(...) for the only output
  3. case.py:18: [OUTPUT_VALUES] expected the columns a long, b long for emit in update, got c
        emit(a=event.cost, c=2)
        ^^^^^^^^^^^^^^^^^^^^^^^
  4. case.py:16: [UNKNOWN_FIELD] update uses state.totl, which is not a declared field (total)
        state.totl += event.amunt; emit.b(1)
              ^^^^
      hint: did you mean state.total?"""
    )


BATCH: dict[str, list[str]] = {
    "batch['amunt']": ["UNKNOWN_COLUMN batch['amunt']"],
    "batch.arrow('amunt')": ["UNKNOWN_COLUMN batch.arrow('amunt')"],
    "batch.amount": ["UNKNOWN_COLUMN amount"],
    "batch['ts']": ["UNKNOWN_COLUMN batch['ts']"],
    "if batch.tag is self.tick: batch['amount']": ["UNKNOWN_COLUMN batch['amount']"],
    "if batch.tag is self.sale: batch['amount'], batch['user'], batch.arrow('shop'), batch.ts, batch.keys": [],
    "batch['amount'], batch['cost'], batch[event.name], batch.streams, batch.arrow(*x), batch[0:1]": [],
    "state.totl[1]": ["UNKNOWN_FIELD totl"],
    "state.seen = 1\nreturn state.seen": [],
    "state.total, state.__dict__": [],
    "emit.columns([1], [2], at=[0])": [],
    "emit.columns([1])": ["OUTPUT_VALUES emit.columns([1])"],
}


@pytest.mark.parametrize("body", BATCH)
def test_batches(body: str) -> None:
    assert mistakes(body, method="update_batch") == BATCH[body]


def test_a_keyed_program_has_two_kinds_of_events() -> None:
    def keyed(update: str, update_all: str) -> list[str]:
        more = f"def update_all(self, states, event, emit):\n    {update_all}"
        try:
            program(update, more=more, base="fl.KeyedProgram")
        except fl.DefinitionError as error:
            return [p.message for p in error.problems if p.condition == "UNKNOWN_COLUMN"]
        return []

    assert keyed("event.amount", "event.amount") == [
        "expected a column of tag tick (none), got event.amount in update_all"
    ]
    assert keyed("event.amunt", "event.ts") == [
        "expected a column of tags sale, refund (user, amount, shop, cost), got event.amunt in update"
    ]


def test_state_types_tell_which_events_there_are() -> None:
    with pytest.raises(fl.DefinitionError) as caught:

        class Typed(lawful.TwoStateTypes):
            @fl.update(lawful.TwoStateTypes.part)
            def on_part(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
                return event.w

            @fl.update(lawful.TwoStateTypes.whole)
            def on_whole(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
                if event.tag is self.barrier:
                    return event.v
                return event.v

            @fl.update_batch(lawful.TwoStateTypes.part)
            def batch_on_part(self, state: Any, batch: fl.Batch, emit: fl.Emit) -> Any:
                return batch["w"]

    assert [problem.message.partition(", got ")[::2] for problem in caught.value.problems] == [
        ("expected a column of tag barrier (none)", "event.v in on_whole"),
        ("expected a column of tag value (v)", "event.w in on_part"),
        ("expected a column of tag value (v)", "batch['w'] in batch_on_part"),
    ]


def test_mistakes_of_other_kinds_are_told_once() -> None:
    """A column list that does not parse says nothing about columns, nor wrong outputs about outputs."""
    with pytest.raises(fl.DefinitionError) as caught:

        class P(fl.Program):
            a = fl.Tag("v lng")
            depends = fl.depends()
            output = "n lng"
            total = fl.Sum()

            def update(self, state: Any, event: Any, emit: Any) -> None:
                state.total += event.v
                emit(1, 2, 3)

    assert [problem.condition for problem in caught.value.problems] == ["BAD_SCHEMA", "BAD_SCHEMA"]


def test_a_method_with_another_shape_is_told_once() -> None:
    with pytest.raises(fl.DefinitionError) as caught:

        class P(fl.Program):
            a = fl.Tag("v long")
            depends = fl.depends()
            total = fl.Sum()

            def update(state: Any, event: Any, emit: Any) -> None:  # type: ignore[override]  # noqa: N805
                emit.flagged(event.v)

    assert [problem.condition for problem in caught.value.problems] == ["BAD_SIGNATURE"]


# -- right programs, and what becomes of them when one name is another ----------------------------------------------

PROGRAMS = [
    cls
    for module in (
        apps.fraud,
        apps.key_counter,
        apps.outliers,
        apps.page_views,
        apps.smart_home,
        apps.value_barrier,
        lawful,
    )
    for cls in vars(module).values()
    if inspect.isclass(cls) and issubclass(cls, fl.Program) and cls.__module__ == module.__name__
]


def used(cls: type, name: str) -> list[ast.Attribute]:
    """Every ``event.column``, or ``emit.name``, in the methods of a class."""
    functions = [label for label, member in vars(cls).items() if inspect.isfunction(member)]
    return [node for function in functions for node in uses(cls, function, name) if node.attr != "tag"]


@pytest.mark.parametrize("cls", PROGRAMS, ids=lambda cls: cls.__name__)
def test_one_column_is_another(cls: type[fl.Program]) -> None:
    """A program is refused exactly if no tag whose events get to a column has it, judged by running the program."""
    random = Random(cls.__name__)
    nodes = used(cls, "event")
    seen = reach(cls, nodes)
    schemas = {name: {*tag.schema.names, "ts", "stream", "seq", "key"} for name, tag in fl.define(cls).tags.items()}
    for node, tags in zip(nodes, seen, strict=True):
        others = sorted(set().union(*schemas.values()))
        for name in {random.choice(others), f"{node.attr}_"} if tags else ():
            certain = not any(name in schemas[tag] for tag in tags)
            assert is_refused(cls, node, f"event.{name}", "UNKNOWN_COLUMN") == certain, (ast.unparse(node), name, tags)


UNCERTAIN = {"emit.outlier"}
"""After a condition on what functions that are not followed have made of an event."""


@pytest.mark.parametrize("cls", PROGRAMS, ids=lambda cls: cls.__name__)
def test_one_output_is_another(cls: type[fl.Program]) -> None:
    """Every program is refused that emits to an output that it does not have, or one value too many."""
    for node in used(cls, "emit"):
        if node.attr != "columns" and ast.unparse(node) not in UNCERTAIN:
            assert is_refused(cls, node, f"emit.{node.attr}_", "UNKNOWN_OUTPUT"), ast.unparse(node)
    for call in calls_of_emit(cls):
        if call.args and not isinstance(call.args[0], ast.Starred):
            assert is_refused(cls, call.args[0], f"0, {ast.unparse(call.args[0])}", "OUTPUT_VALUES"), ast.unparse(call)


def calls_of_emit(cls: type) -> list[ast.Call]:
    calls = [node for node in ast.walk(ast.parse(source(cls))) if isinstance(node, ast.Call)]
    return [call for call in calls if ast.unparse(call.func).partition(".")[0] == "emit"]


def is_refused(cls: type, node: ast.expr, text: str, condition: str) -> bool:
    """Whether a class is refused for one mistake when another text stands in place of an expression."""
    try:
        rewritten(cls, {node: text})
    except fl.DefinitionError as error:
        return condition in [problem.condition for problem in error.problems]
    return False


def reach(cls: type[fl.Program], nodes: list[ast.Attribute]) -> list[set[str]]:
    """The tags whose events get to each of these columns when the program runs."""
    seen: list[set[str]] = [set() for _ in nodes]
    derive = DeclaredState.derive

    def look(event: fl.Event, name: str) -> object:
        number = int(name.removeprefix("probe"))
        seen[number].add(event.tag.name)
        return getattr(event, nodes[number].attr)

    with pytest.MonkeyPatch.context() as patch:  # the class is made whatever is wrong with it
        patch.setattr(program_module, "check_declarations", lambda *_: [])
        patch.setattr(DeclaredState, "derive", lambda *a, **k: (derive(*a, **k)[0], []))
        patch.setattr(fl.Event, "__getattr__", look)
        run(rewritten(cls, {node: f"event.probe{number}" for number, node in enumerate(nodes)})[cls.__name__])
    return seen


def test_the_corpus_says_something() -> None:
    """Most columns are reached, and programs with several tags among them."""
    found = [tags for cls in PROGRAMS for tags in reach(cls, used(cls, "event"))]
    assert len(found) > 60
    assert sum(map(bool, found)) > 0.9 * len(found)
    assert any(len(tags) > 1 for tags in found)


@pytest.mark.parametrize("seed", range(30))
def test_random_programs_are_right(seed: int) -> None:
    random = Random(seed)
    fl.define(random_program(random))
    fl.define(random_keyed_program(random))
