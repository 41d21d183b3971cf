from typing import Any, ClassVar

import pytest

import flumina as fl
from flumina.errors import UsageError, UserCodeError
from flumina.model.depends import FunctionDependence, RuleDependence
from flumina.model.tag_set import UNKEYED, KeySet, TagSet


class Declared(fl.Program):
    value = fl.Tag("v long")
    barrier = fl.Tag()
    depends = fl.depends((barrier, barrier), (barrier, value))
    output = "total long"
    total = fl.Sum()
    tolerance = 0.5
    examples: ClassVar[dict[str, list[int]]] = {"v": [1, 2]}

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.value:
            state.total += event.v
        else:
            emit(state.total)
            state.total = 0


class Typed(fl.Program):
    """A pair of counters, whose parts can be processed apart: two state types besides the first."""

    left = fl.Tag()
    right = fl.Tag()
    show = fl.Tag()
    depends = fl.depends((show, show), (show, left), (show, right))
    output: ClassVar[dict[str, str]] = {"shown": "a long, b long", "seen": "n long"}
    Both = fl.StateType()
    Left = fl.StateType(left)
    Right = fl.StateType(right)

    def init(self) -> tuple[int, int]:
        return (0, 0)

    @fl.update(Both)
    def both(self, state: tuple[int, int], event: fl.Event, emit: fl.Emit) -> tuple[int, int]:
        return state

    @fl.update(Left, Right)
    def one(self, state: int, event: fl.Event, emit: fl.Emit) -> int:
        return state + 1

    @fl.update_batch(Left)
    def many(self, state: int, batch: fl.Batch, emit: fl.Emit) -> int:
        return state + len(batch)

    @fl.fork(Both, (Left, Right))
    def split(self, state: tuple[int, int], left: fl.TagSet, right: fl.TagSet) -> tuple[int, int]:
        return state

    @fl.join((Left, Right), Both)
    def merge(self, left: int, right: int) -> tuple[int, int]:
        return left, right


class TestDeclared:
    definition = fl.define(Declared)

    def test_definition(self) -> None:
        d = self.definition
        assert d.name == "Declared"
        assert d.tags == {"value": Declared.value, "barrier": Declared.barrier}
        assert isinstance(d.depends, RuleDependence)
        assert {name: schema.ddl for name, schema in d.outputs.items()} == {"output": "total long"}
        assert (d.tolerance, d.examples) == (0.5, {"v": (1, 2)})
        assert list(d.kinds) == [d.initial] == ["State"]
        assert d.kinds["State"].predicate == d.everything
        assert d.kinds["State"].update_batch is None
        assert d.adding == {"value"}
        assert d.lifted is None

    def test_derived_fork_and_join(self) -> None:
        d = self.definition
        state = d.init()
        state.total = 5
        left, right = d.forks[0].function(state, TagSet({"value": UNKEYED}), TagSet({"barrier": UNKEYED}))
        assert (left.total, right.total) == (0, 5)
        assert d.joins[0].function(left, right).total == 5


class TestTyped:
    definition = fl.define(Typed)

    def test_kinds(self) -> None:
        d = self.definition
        assert d.initial == "Both"
        assert {name: kind.predicate.tags for name, kind in d.kinds.items()} == {
            "Both": ("left", "right", "show"),
            "Left": ("left",),
            "Right": ("right",),
        }
        assert d.kinds["Left"].update_batch is not None
        assert d.kinds["Right"].update_batch is None
        assert d.kinds["Left"].update(1, Typed.left.event(), fl.Emit({})) == 2
        assert list(d.outputs) == ["shown", "seen"]

    def test_forks_and_joins(self) -> None:
        d = self.definition
        assert [(f.source, f.left, f.right) for f in d.forks] == [("Both", "Left", "Right")]
        assert [(j.left, j.right, j.target) for j in d.joins] == [("Left", "Right", "Both")]
        assert d.joins[0].function(*d.forks[0].function((1, 2), TagSet(), TagSet())) == (1, 2)


class TestDepends:
    def test_as_a_function(self) -> None:
        class P(fl.Program):
            a = fl.Tag(key="k long", keys=[1, 2])
            total = fl.Sum()

            @staticmethod
            def depends(a: fl.Atom, b: fl.Atom) -> bool:
                return a.key == b.key

            def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
                state.total += 1

        relation = fl.define(P).depends
        assert isinstance(relation, FunctionDependence)
        assert relation("a", 1, "a", 1)
        assert not relation("a", 1, "a", 2)
        assert not relation.between(TagSet({"a": KeySet.of(1)}), TagSet({"a": KeySet.of(2)}))

    def test_a_function_that_fails(self) -> None:
        with pytest.raises(UserCodeError, match=r"P\.<lambda> raised ZeroDivisionError") as caught:

            class P(fl.Program):
                a = fl.Tag()
                depends = lambda a, b: 1 / 0  # noqa: E731
                total = fl.Sum()

                def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None: ...

        assert "test_base.py" in caught.value.where


class TestDefine:
    def test_class_instance_and_definition(self) -> None:
        d = fl.define(Declared)
        assert fl.define(d) is d
        assert fl.define(Declared()).name == "Declared"

    def test_an_instance_has_its_own_methods(self) -> None:
        class Scaled(Declared):
            def __init__(self, factor: int) -> None:
                self.factor = factor

            def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
                if event.tag is self.value:
                    state.total += event.v * self.factor

        with pytest.raises(UsageError, match=r"NEEDS_ARGUMENTS.*pass an instance"):
            fl.define(Scaled)
        d = fl.define(Scaled(3))
        state = d.init()
        d.kinds["State"].update(state, Scaled.value.event(v=2), fl.Emit({}))
        assert state.total == 6

    @pytest.mark.parametrize("thing", [5, int, "Declared", None])
    def test_not_a_program(self, thing: Any) -> None:
        with pytest.raises(UsageError, match="NOT_A_PROGRAM"):
            fl.define(thing)

    def test_abstract(self) -> None:
        class Base(fl.Program, abstract=True): ...

        for program in (Base, fl.Program, fl.KeyedProgram):
            with pytest.raises(UsageError, match="ABSTRACT_PROGRAM"):
                fl.define(program)


def test_a_subclass_inherits_and_is_analyzed_anew() -> None:
    class Reader(Declared):
        peek = fl.Tag()
        depends = fl.depends(
            (Declared.barrier, Declared.barrier),
            (Declared.barrier, Declared.value),
            (peek, peek),
            (peek, Declared.value),
            (peek, Declared.barrier),
        )

        def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
            if event.tag is self.value:
                state.total += event.v
            else:
                emit(state.total)

    assert set(fl.define(Reader).tags) == {"value", "barrier", "peek"}
    assert Reader._declared is not None
    assert Reader._declared.observers == {"total": (("barrier", False), ("peek", False))}


def test_a_constructor_that_raises_is_the_users_own() -> None:
    class Failing(Declared):
        def __init__(self) -> None:
            raise ValueError("no configuration")

    with pytest.raises(UserCodeError, match=r"__init__ raised ValueError: no configuration\n  at: .*test_base.py:"):
        fl.define(Failing)


def test_the_type_of_the_state_is_for_type_checkers_only() -> None:
    class Total(fl.Program[int]):
        add = fl.Tag("v long")
        depends = fl.depends()

        def init(self) -> int:
            return 0

        def update(self, state: int, event: fl.Event, emit: fl.Emit) -> int:
            return state + int(event.v)

        def fork(self, state: int, left: fl.TagSet, right: fl.TagSet) -> tuple[int, int]:
            return state, 0

        def join(self, left: int, right: int) -> int:
            return left + right

    assert Total.__bases__ == (fl.Program,)
    assert fl.KeyedProgram[int] is fl.KeyedProgram
    assert fl.define(Total).kinds["State"].update_batch is None
    for method in ("init", "update", "update_batch", "update_all", "fork", "join"):
        assert not hasattr(fl.Program, method), "declared, not defined: what a class lacks is found when it is made"
        assert not hasattr(fl.KeyedProgram, method)
