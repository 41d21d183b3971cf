# ruff: noqa: B007, B018, C416, F401, F841, I001 -- names are bound for their own sake
import ast
import builtins
import functools
import math
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

import flumina as fl
from flumina.state import fields
from flumina.errors import location
from flumina.model.tag import Tag
from flumina.program.analysis.function_source import (
    MISSING,
    Scope,
    FunctionSource,
    SourceMissingError,
    enclosed,
    event_columns,
    is_plain,
    written,
)


def read(function: Callable[..., Any]) -> FunctionSource:
    assert isinstance(function, FunctionType)
    return FunctionSource.of(function)


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def binder(given: Any) -> None:
    """Bind every letter in another way."""
    a = 1
    (b, *c), given.attribute = (1, 2), 3
    d: int = 1
    e = f = 0
    f += 1
    for g in given:
        pass
    with given as h:
        pass
    try:
        pass
    except ValueError as i:
        del i
    import os.path as j  # noqa: PLC0415
    import math  # noqa: PLC0415

    def k(m: int, *n: int, o: int = 0, **p: int) -> None: ...

    class q: ...  # noqa: N801

    [r for r in given]
    (lambda s: s)
    if t := 3:
        pass
    match given:
        case {"x": u, **v}:
            pass
        case [w, *x]:
            pass
        case y:
            pass


def test_every_way_to_bind_a_name_is_counted() -> None:
    bound = read(binder).bound
    assert set(bound) == {*"abcdefghijkmnopqrstuvwxy", "math"}
    assert bound["f"] == 2
    assert bound["i"] == 2
    assert "given" not in bound


def test_lines_and_parameters() -> None:
    source = read(binder)
    assert source.parameters == ["given"]
    first = binder.__code__.co_firstlineno
    assert source.line(source.tree.body[1]) == location(__file__, first + 2)


def test_meaning() -> None:
    local = object()

    def function(parameter: int) -> object:
        length = len
        return (parameter, length, local, math, fl)

    source = read(function)
    meanings = {
        "math": math,
        "math.pi": math.pi,
        "fl.greatest": fields.greatest,
        "max": builtins.max,
        "local": local,
        "parameter": None,
        "length": None,
        "parameter.x": None,
        "nowhere": None,
        "math.nowhere": None,
        "f(x)": None,
    }
    for text, meaning in meanings.items():
        assert source.meaning(expression(text)) is meaning, text


def test_source_that_is_missing() -> None:
    namespace: dict[str, Any] = {}
    exec("def function(): pass", namespace)  # noqa: S102 -- our own text
    with pytest.raises(SourceMissingError, match="<string>:1"):
        read(namespace["function"])
    with pytest.raises(SourceMissingError, match="is not a plain function"):
        _ = read(lambda: None).tree

    async def later() -> None: ...

    with pytest.raises(SourceMissingError, match="is not a plain function"):
        _ = read(later).tree


def test_plain_functions() -> None:
    @functools.wraps(binder)
    def wrapper() -> None: ...

    assert is_plain(binder)
    assert not is_plain(wrapper)
    assert not is_plain(staticmethod(binder))
    assert not is_plain(len)
    assert not is_plain(None)


class Program:
    view = Tag(key="page string")
    tick = Tag()

    def update(self, state: Any, event: Any, emit: Any) -> None:
        tag = event.tag
        page = event.page
        twice = event.tag
        twice = None
        if (walrus := event.key) and twice:
            emit(tag, page, walrus)


def scope() -> Scope:
    source = read(Program.update)
    return Scope(
        source,
        Program,
        {"view": Program.view, "tick": Program.tick},
        {"total": fields.Sum(), "counts": fields.PerKey(fields.Count()), "deep": fields.Replicated("array<long>")},
        dict(zip(("self", "state", "event", "emit"), source.parameters, strict=True)),
        event_columns(source, "event", {}),
        replaces=True,
    )


def test_names_for_columns_of_the_event() -> None:
    assert scope().columns == {"tag": "tag", "page": "page", "walrus": "key"}
    assert scope().is_event_tag(expression("tag"))
    assert not scope().is_event_tag(expression("twice"))
    assert scope().event_column(expression("(x := event.key)")) == "key"


def test_places() -> None:
    places = {
        "state.total": ("total", None, False),
        "state.counts": ("counts", None, False),
        "state.counts[event.key]": ("counts", "key", False),
        "state.counts[page]": ("counts", "page", False),
        "state.counts['x']": ("counts", None, False),
        "state.deep[0]": ("deep", None, True),
    }
    for text, (name, column, inside) in places.items():
        place = scope().place(expression(text))
        assert place is not None
        assert (place.field, place.key_column, place.inside) == (name, column, inside), text
    for text in ("state", "state.other", "other.total", "state.deep[0][1]", "state.total.real"):
        assert scope().place(expression(text)) is None, text
    assert scope().unknown_field(expression("state.other")) == "other"
    assert scope().unknown_field(expression("state.total")) is None


def test_roles_and_tags() -> None:
    roles = {
        "state": "state",
        "event": "event",
        "emit": "emit",
        "event.key": "event.key",
        "tag": "event.tag",
        "x": None,
    }
    assert {text: scope().role(expression(text)) for text in roles} == roles
    named = {"self.view": "view", "Program.tick": "tick", "self.other": None, "Other.view": None, "view": None}
    assert {text: scope().named_tag(expression(text)) for text in named} == named
    assert scope().is_emit(expression("emit.flagged"))
    assert not scope().is_emit(expression("event.emit"))
    assert scope().is_clear


def test_a_function_is_read_once_and_below_what_is_wrapped_around_it() -> None:
    @functools.wraps(binder)
    def wrapper() -> None: ...

    assert FunctionSource.of(wrapper).module is FunctionSource.of(binder).module
    assert FunctionSource.of(wrapper).function is binder
    assert FunctionSource.of(wrapper).wrapped
    assert not FunctionSource.of(binder).wrapped
    assert FunctionSource.of(Program().update).function is Program.update
    assert not FunctionSource.of(Program().update).wrapped
    assert written(len) is None
    with pytest.raises(SourceMissingError, match="not written in Python"):
        FunctionSource.of(len)
    wrapper.__wrapped__ = wrapper  # type: ignore[assignment]
    assert written(wrapper) is None


def test_a_text_may_begin_further_left_than_its_function() -> None:
    def function() -> str:
        return """
left
"""

    source = read(function)
    assert source.parameters == []
    assert source.line(source.tree.body[0]) == location(__file__, function.__code__.co_firstlineno + 1)


def test_names_of_functions_around_may_have_no_value_yet() -> None:
    def function() -> object:
        return early, late

    early = 1
    assert isinstance(function, FunctionType)
    assert enclosed(function) == {"early": 1}
    assert read(function).outer("early") == 1
    assert read(function).outer("late") is MISSING
    assert read(function).meaning(expression("late")) is None
    assert read(function).outer("math") is math
    assert read(function).outer("nowhere") is MISSING
    late = 2
    assert enclosed(function) == {"early": 1, "late": 2}


def test_a_class_in_a_function_may_name_itself() -> None:
    class Named(fl.Program):
        view = Tag()
        depends = fl.depends((view, view))
        total = fl.Sum()

        def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
            state.total += Named.step(1)

        @staticmethod
        def step(by: int) -> int:
            return by

    assert fl.define(Named).tags == {"view": Named.view}
