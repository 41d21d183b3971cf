"""Every mistake in a class is reported by name with the line that it is on.

Each function defines a wrong program; a comment ``#: NAME`` says what is to be reported on that line.
"""
# mypy: disable-error-code="override, assignment"
# Type checkers find some of these mistakes, too.

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

import flumina as fl
from flumina.errors import DefinitionError
from flumina.model import tag as events
from flumina.program import declared_state as declared
from flumina.program.analysis import declarations as mistakes
from flumina.program.analysis import field_accesses
from flumina.state import fields

OTHER = fl.Tag()
OTHER_TYPE = fl.StateType()


def no_tags() -> None:
    class P(fl.Program):  #: NO_TAGS
        depends = fl.depends()
        total = fl.Sum()

        def update(self, state: Any, event: Any, emit: Any) -> None: ...


def nothing_at_all() -> None:
    class P(fl.Program): ...  #: NO_TAGS, NO_DEPENDS, NO_INIT, NO_FORK, NO_JOIN, NO_UPDATE


def tags() -> None:
    class P(fl.Program):
        a = fl.Tag("user lng")  #: BAD_SCHEMA
        b = fl.Tag(key="page double")  #: BAD_KEY
        c = fl.Tag("ts long")  #: RESERVED_COLUMN
        d = fl.Tag(keys=[1])  #: KEYS_WITHOUT_KEY
        e = fl.Tag("page long", key="page string")  #: DUPLICATE_COLUMN
        f = fl.Tag(key="seq long")  #: RESERVED_COLUMN
        g = fl.Tag(key="k int", keys=[2**40])  #: BAD_KEY
        depends = fl.depends()
        total = fl.Sum()

        def update(self, state: Any, event: Any, emit: Any) -> None: ...


def declared_fields() -> None:
    class P(fl.Program):
        a = fl.Tag()
        depends = fl.depends()
        total = fl.Sum("string")  #: BAD_SCHEMA
        hi = fl.Max("lng")  #: BAD_SCHEMA
        info = fl.Replicated("string", added_by=[a])  #: REPLICATED_ADD
        deep = fl.PerKey(fl.PerKey(fl.Count()))  #: BAD_FIELD
        low = fl.Min(read_by=[OTHER])  #: UNDECLARED_TAG

        def update(self, state: Any, event: Any, emit: Any) -> None: ...


def names() -> None:
    class P(fl.Program):
        fork = fl.Tag()  #: RESERVED_NAME
        a = b = fl.Tag()  #: TWO_NAMES
        depends = fl.depends()
        output = "n long"
        tolerance = fl.Sum()  #: RESERVED_NAME
        x = y = fl.Sum()  #: TWO_NAMES

        def update(self, state: Any, event: Any, emit: Any) -> None: ...


class TestSharing:
    def test_a_tag_may_be_shared_under_its_name(self) -> None:
        shared = fl.Tag()

        class P(fl.Program):
            a = shared
            depends = fl.depends()
            total = fl.Sum()

            def update(self, state: Any, event: Any, emit: Any) -> None:
                state.total += 1

        class Q(P): ...

        assert fl.define(Q).tags == {"a": shared}


def no_depends() -> None:
    class P(fl.Program):  #: NO_DEPENDS
        a = fl.Tag()
        total = fl.Sum()

        def update(self, state: Any, event: Any, emit: Any) -> None: ...


def bad_depends() -> None:
    class P(fl.Program):  #: BAD_DEPENDS
        a = fl.Tag()
        depends = (a, a)
        total = fl.Sum()

        def update(self, state: Any, event: Any, emit: Any) -> None: ...


def undeclared_tag_in_depends() -> None:
    class P(fl.Program):
        a = fl.Tag()
        b = fl.Tag()
        depends = fl.depends((a, fl.Tag()), (b, OTHER))  #: UNDECLARED_TAG, UNDECLARED_TAG
        total = fl.Sum()

        def update(self, state: Any, event: Any, emit: Any) -> None: ...


def depends_function() -> None:
    class P(fl.Program):
        a = fl.Tag(key="k long")  #: UNBOUNDED_KEYS
        b = fl.Tag(key="k long", keys=[1])
        c = fl.Tag()
        total = fl.Sum()

        def depends(self, a: Any, b: Any) -> bool:  #: BAD_SIGNATURE
            return True

        def update(self, state: Any, event: Any, emit: Any) -> None: ...


def key_types() -> None:
    class P(fl.Program):
        a = fl.Tag(key="k long")
        b = fl.Tag(key="k string")
        c = fl.Tag(key="k int")
        depends = fl.depends((a, b), (a, a), always=[(a, c)])  #: KEY_TYPES
        total = fl.Sum()

        def update(self, state: Any, event: Any, emit: Any) -> None:
            state.total += 1


def outputs() -> None:
    class P(fl.Program):  #: BAD_SCHEMA, BAD_SCHEMA, RESERVED_COLUMN, RESERVED_NAME, RESERVED_NAME, RESERVED_NAME
        a = fl.Tag()
        depends = fl.depends()
        output: ClassVar[dict[str, str]] = {
            "one": "n lng",
            "two": "",
            "three": "event_ts long",
            "drain": "n long",
            "_channels": "n long",
            "class": "n long",
            "fine": "n long",
        }
        total = fl.Sum()

        def update(self, state: Any, event: Any, emit: Any) -> None:
            state.total += 1


def outputs_of_two_cases() -> None:
    class P(fl.Program):  #: RESERVED_COLUMN, RESERVED_COLUMN, BAD_SCHEMA
        a = fl.Tag()
        depends = fl.depends()
        output: ClassVar[dict[str, str]] = {
            "one": "Event_TS long, n long",
            "two": "EVENT_STREAM string",
            "three": "total long, n long, Total long",
            "fine": "batch long, Batches long",
        }
        total = fl.Sum()

        def update(self, state: Any, event: Any, emit: Any) -> None:
            state.total += 1


def output_of_no_kind() -> None:
    class P(fl.Program):  #: BAD_SCHEMA
        a = fl.Tag()
        depends = fl.depends()
        output = 5
        total = fl.Sum()

        def update(self, state: Any, event: Any, emit: Any) -> None:
            state.total += 1


def signatures() -> None:
    class P(fl.Program):
        a = fl.Tag()
        depends = fl.depends()

        def init(self, x: int) -> int:  #: BAD_SIGNATURE
            return x

        def update(self, state: Any, event: Any) -> None: ...  #: BAD_SIGNATURE

        def update_batch(self, batch: Any) -> None: ...  #: BAD_SIGNATURE

        def fork(self, state: Any) -> Any: ...  #: BAD_SIGNATURE

        def join(self, left: Any, right: Any, *, more: Any) -> Any: ...  #: BAD_SIGNATURE


def methods_that_are_none() -> None:
    class P(fl.Program):  #: BAD_SIGNATURE, BAD_SIGNATURE
        a = fl.Tag()
        depends = fl.depends()
        total = fl.Sum()
        update_batch = 5

        @staticmethod
        def update(state: Any, event: Any, emit: Any) -> None: ...


def own_state_incomplete() -> None:
    class P(fl.Program):  #: NO_FORK, NO_JOIN
        a = fl.Tag()
        depends = fl.depends()

        def init(self) -> int:
            return 0

        def update(self, state: Any, event: Any, emit: Any) -> None: ...


def no_update() -> None:
    class P(fl.Program):  #: NO_UPDATE
        a = fl.Tag()
        depends = fl.depends()
        total = fl.Sum()


def fields_and_own_fork() -> None:
    class P(fl.Program):  #: MIXED_STATE
        a = fl.Tag()
        depends = fl.depends()
        total = fl.Sum()

        def update(self, state: Any, event: Any, emit: Any) -> None: ...

        def fork(self, state: Any, left: Any, right: Any) -> Any: ...


def fields_and_types() -> None:
    class P(fl.Program):  #: MIXED_STATE
        a = fl.Tag()
        depends = fl.depends()
        total = fl.Sum()
        Whole = fl.StateType()


def keyed_with_types() -> None:
    class P(fl.KeyedProgram):  #: MIXED_STATE
        a = fl.Tag(key="k long")
        depends = fl.depends()
        Whole = fl.StateType()


def keyed_without_keys() -> None:
    class P(fl.KeyedProgram):  #: NO_KEY, NO_UPDATE
        a = fl.Tag()
        depends = fl.depends()
        total = fl.Sum()

        def update(self, state: Any, event: Any, emit: Any) -> None: ...


def keyed_with_two_kinds_of_keys() -> None:
    class P(fl.KeyedProgram):  #: KEY_TYPES
        a = fl.Tag(key="k long")
        b = fl.Tag(key="k string")
        depends = fl.depends(always=[(a, b)])  #: ACROSS_KEYS
        total = fl.Sum()

        def update(self, state: Any, event: Any, emit: Any) -> None:
            state.total += 1


def types_wired_wrongly() -> None:
    class P(fl.Program):  #: NO_INIT
        a = fl.Tag()
        b = fl.Tag()
        depends = fl.depends()
        Whole = fl.StateType(a)  #: INITIAL_TYPE
        Left = fl.StateType(a, OTHER)  #: UNDECLARED_TAG, TWO_UPDATES
        Right = fl.StateType(b)  #: NO_UPDATE
        Lost = fl.StateType(b)  #: UNREACHABLE_STATE
        init_of = fl.StateType()  #: UNREACHABLE_STATE, NO_UPDATE

        @fl.update(Whole, Left, Lost)
        def one(self, state: Any, event: Any, emit: Any) -> None: ...

        @fl.update(Left)
        def two(self, state: Any, event: Any, emit: Any) -> None: ...

        @fl.update(OTHER_TYPE)  #: UNDECLARED_TYPE
        def three(self, state: Any, event: Any, emit: Any) -> None: ...

        @fl.update_batch(Left)  #: BAD_SIGNATURE
        def four(self, state: Any) -> None: ...

        @fl.fork(Whole, (Left, Right))  #: NO_JOIN
        def split(self, state: Any, left: Any, right: Any) -> Any: ...

        @fl.join((Right, Left), Whole)
        def merge(self, left: Any, right: Any) -> Any: ...


def types_without_fork() -> None:
    class P(fl.Program):
        a = fl.Tag()
        depends = fl.depends()
        init = fl.StateType()  #: RESERVED_NAME, NO_FORK

        @fl.update(init)
        def one(self, state: Any, event: Any, emit: Any) -> None: ...


def a_replicated_field_written_by_a_tag_that_does_not_depend_on_its_readers() -> None:
    class P(fl.Program):
        view = fl.Tag()
        change = fl.Tag()
        depends = fl.depends((change, change))
        output = "info string"
        info = fl.Replicated("string")  #: UNSAFE_FIELD

        def update(self, state: Any, event: Any, emit: Any) -> None:
            if event.tag is self.view:
                emit(state.info)
            else:
                state.info = "x"


def no_such_field() -> None:
    class P(fl.Program):
        view = fl.Tag()
        depends = fl.depends()
        info = fl.Sum()

        def update(self, state: Any, event: Any, emit: Any) -> None:
            state.inf += 1  #: UNKNOWN_FIELD


def no_source() -> None:
    text = "def update(self, state, event, emit): pass"
    namespace: dict[str, Any] = {}
    exec(text, namespace)  # noqa: S102 -- our own text

    class P(fl.Program):
        view = fl.Tag()
        depends = fl.depends()
        info = fl.Sum()
        update = namespace["update"]


def several_of_all_kinds() -> None:
    class P(fl.Program):  #: BAD_SCHEMA, MIXED_STATE
        view = fl.Tag("user lng")  #: BAD_SCHEMA
        change = fl.Tag(key="page double")  #: BAD_KEY
        depends = fl.depends((view, OTHER))  #: UNDECLARED_TAG
        output = "n"
        total = fl.Sum("string")  #: BAD_SCHEMA

        def update(self, state: Any) -> None: ...  #: BAD_SIGNATURE

        def join(self, left: Any) -> None: ...  #: BAD_SIGNATURE


def reserved_beginnings() -> None:
    class P(fl.Program):
        _a = fl.Tag()  #: RESERVED_NAME
        depends = fl.depends()
        _define = fl.Sum()  #: RESERVED_NAME
        __init__ = fl.Sum()  #: RESERVED_NAME

        def update(self, state: Any, event: Any, emit: Any) -> None: ...


def forgotten_parentheses() -> None:
    class P(fl.Program):  #: NO_PARENTHESES
        a = fl.Tag()
        depends = fl.depends()
        total = fl.Sum

        def update(self, state: Any, event: Any, emit: Any) -> None: ...


def no_plain_functions() -> None:
    class P(fl.KeyedProgram):
        a = fl.Tag(key="k long")
        depends = fl.depends()

        async def init(self) -> Any: ...  #: BAD_SIGNATURE

        def update(self, state: Any, event: Any, emit: Any) -> Any:  #: BAD_SIGNATURE
            yield event

        async def update_batch(self, state: Any, batch: Any, emit: Any) -> Any:  #: BAD_SIGNATURE
            yield batch

        async def update_all(self, states: Any, event: Any, emit: Any) -> None: ...  #: BAD_SIGNATURE

        def fork(self, state: Any, left: Any, right: Any) -> Any:  #: BAD_SIGNATURE
            yield state

        async def join(self, left: Any, right: Any) -> None: ...  #: BAD_SIGNATURE


def bad_tolerance_and_examples() -> None:
    class P(fl.Program):  #: BAD_TOLERANCE, BAD_EXAMPLES, BAD_EXAMPLES, BAD_EXAMPLES
        a = fl.Tag("n long, m long")
        depends = fl.depends((a, a))
        total = fl.Sum()
        tolerance = float("nan")
        examples: ClassVar[Any] = {"n": [], "m": "12", "o": [1]}

        def update(self, state: Any, event: Any, emit: Any) -> None:
            state.total += 1


def examples_that_are_no_dict() -> None:
    class P(fl.Program):  #: BAD_TOLERANCE, BAD_EXAMPLES
        a = fl.Tag("n long")
        depends = fl.depends((a, a))
        total = fl.Sum()
        tolerance = -1
        examples: ClassVar[Any] = [1, 2]

        def update(self, state: Any, event: Any, emit: Any) -> None:
            state.total += 1


def examples_that_do_not_fit() -> None:
    class P(fl.Program):  #: BAD_EXAMPLES, BAD_EXAMPLES, BAD_EXAMPLES, BAD_EXAMPLES
        a = fl.Tag("n long NOT NULL, m long, d decimal(5,2), ok double, also array<int>", key="k string")
        depends = fl.depends((a, a))
        total = fl.Sum()
        examples: ClassVar[Any] = {
            "n": [1, None],
            "m": [2**70],
            "d": [1.5],
            "k": ["x", 5],
            "ok": [1, None, 2.5],
            "also": [[], [1, None]],
        }

        def update(self, state: Any, event: Any, emit: Any) -> None:
            state.total += 1


def examples_without_a_key() -> None:
    class P(fl.Program):  #: BAD_EXAMPLES
        a = fl.Tag(key="k string")
        depends = fl.depends((a, a))
        total = fl.Sum()
        examples: ClassVar[Any] = {"k": ["x", None]}

        def update(self, state: Any, event: Any, emit: Any) -> None:
            state.total += 1


def no_such_tag() -> None:
    class P(fl.Program):
        a = fl.Tag()
        c = fl.Tag()
        depends = fl.depends((a, a))
        total = fl.Replicated("long")

        def update(self, state: Any, event: Any, emit: Any) -> None:
            if event.tag is self.b:  # type: ignore[attr-defined]  #: UNKNOWN_TAG
                state.total = 1
            elif event.tag in (self.a, self.total):  #: UNKNOWN_TAG
                state.total = 2
            match event.tag:
                case self.d:  # type: ignore[attr-defined]  #: UNKNOWN_TAG
                    state.total = 3


CASES: list[Callable[[], None]] = [
    no_tags,
    nothing_at_all,
    tags,
    declared_fields,
    names,
    no_depends,
    bad_depends,
    undeclared_tag_in_depends,
    depends_function,
    key_types,
    outputs,
    outputs_of_two_cases,
    output_of_no_kind,
    signatures,
    methods_that_are_none,
    own_state_incomplete,
    no_update,
    fields_and_own_fork,
    fields_and_types,
    keyed_with_types,
    keyed_without_keys,
    keyed_with_two_kinds_of_keys,
    types_wired_wrongly,
    types_without_fork,
    a_replicated_field_written_by_a_tag_that_does_not_depend_on_its_readers,
    no_such_field,
    several_of_all_kinds,
    no_such_tag,
    reserved_beginnings,
    forgotten_parentheses,
    no_plain_functions,
    bad_tolerance_and_examples,
    examples_that_are_no_dict,
]


def expected(case: Callable[[], None]) -> list[tuple[int, str]]:
    lines, first = inspect.getsourcelines(case)
    marks = [(first + i, re.search(r"#: (.*)", line)) for i, line in enumerate(lines)]
    return sorted((line, name) for line, found in marks if found for name in found[1].split(", "))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_reported_by_name_with_file_and_line_all_at_once(case: Callable[[], None]) -> None:
    with pytest.raises(DefinitionError) as caught:
        case()
    reported = [(*problem.where.rpartition(":")[::2], problem.condition) for problem in caught.value.problems]
    assert sorted((int(line), name) for _, line, name in reported) == expected(case)
    assert {Path(file).name for file, _, _ in reported} == {Path(__file__).name}
    for problem in caught.value.problems:
        assert str(problem) in str(caught.value)
    assert caught.value.program == f"{case.__name__}.<locals>.P"


def test_no_source_is_reported() -> None:
    with pytest.raises(DefinitionError, match="NO_SOURCE"):
        no_source()


def test_every_name_has_a_case() -> None:
    """All the names that the modules which look at classes use."""
    known = {name for case in CASES for _, name in expected(case)} | {"NO_SOURCE"}
    used: set[str] = set()
    for module in (mistakes, declared, field_accesses, events, fields):
        text = Path(str(module.__file__)).read_text(encoding="utf-8")
        used |= set(re.findall(r'(?:Problem|mistakes\.append)\(\s*\(?"([A-Z_]+)"', text))
    assert {"NO_FORK", "UNSAFE_FIELD", "BAD_KEY"} <= used | {"NO_FORK"}
    assert used - {"NO_"} <= known


def test_hints_say_what_to_do() -> None:
    with pytest.raises(DefinitionError) as caught:
        own_state_incomplete()
    assert "declare fields (fl.Sum, fl.Replicated, ...)" in str(caught.value)
    with pytest.raises(DefinitionError) as caught:
        types_wired_wrongly()
    assert "mark one with @fl.join((Left, Right), Whole)" in str(caught.value)
    assert "mark one with @fl.update(Right)" in str(caught.value)
    assert "write fl.StateType() without tags" in str(caught.value)
    with pytest.raises(DefinitionError, match=r"write total = fl.Sum\(...\)"):
        forgotten_parentheses()
    with pytest.raises(DefinitionError, match="init as init must be a plain function, but is async def"):
        no_plain_functions()


def test_a_mistake_in_an_abstract_class_is_left_to_its_subclasses() -> None:
    class Base(fl.Program, abstract=True):
        a = fl.Tag("user lng")

    with pytest.raises(DefinitionError, match="BAD_SCHEMA"):

        class P(Base):
            depends = fl.depends()
            total = fl.Sum()

            def update(self, state: Any, event: Any, emit: Any) -> None: ...


def test_two_forks_in_one_method_both_count() -> None:
    class P(fl.Program):
        a = fl.Tag()
        b = fl.Tag()
        depends = fl.depends()
        Whole = fl.StateType()
        Half = fl.StateType()

        def init(self) -> int:
            return 0

        @fl.update(Whole, Half)
        def step(self, state: int, event: fl.Event, emit: fl.Emit) -> int:
            return state + 1

        @fl.fork(Whole, (Whole, Half))
        @fl.fork(Whole, (Whole, Whole))
        def split(self, state: int, left: fl.TagSet, right: fl.TagSet) -> tuple[int, int]:
            return state, 0

        @fl.join((Whole, Half), Whole)
        @fl.join((Whole, Whole), Whole)
        def merge(self, left: int, right: int) -> int:
            return left + right

    assert len(fl.define(P).forks) == 2
