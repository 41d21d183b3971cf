import textwrap
from typing import Any

import flumina as fl
from flumina.apps import Fraud
from flumina.check.constants import constants
from flumina.program.base import define
from tests.check.broken import ChangesItsMindAtAWord
from tests.check.lawful import Houses


def test_constants_and_their_neighbors_are_found_but_no_docstrings() -> None:
    found = constants(define(ChangesItsMindAtAWord))
    assert found[str] == ["refund"]
    assert constants(define(Fraud))[int] == [-1, 0, 1, 999, 1000, 1001]


def test_keyed_programs_too() -> None:
    assert 0 in constants(define(Houses))[int]


def test_code_without_source_has_none() -> None:
    scope: dict[str, Any] = {"fl": fl}
    exec("def update(self, state, event, emit):\n    return 77\n", scope)  # noqa: S102
    body = dict(vars(ChangesItsMindAtAWord)) | {"update": scope["update"]}
    names = ("move", "depends", "output", "init", "update", "fork", "join")
    program = type("NoSource", (fl.Program,), {name: body[name] for name in names})
    assert constants(define(program))[int] == []


LIMIT = 4_000
KINDS = {"refund": 77}


def outer(cents: int) -> bool:
    return cents > 31_000 and inner(cents)


def inner(cents: int) -> bool:
    return cents % 60_000 == 0


class Named(ChangesItsMindAtAWord):
    word = "storno"

    def __init__(self, most: int = 9_000) -> None:
        self.most = most

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        if event.kind == self.word or event.cents in (LIMIT, self.most) or event.kind in KINDS or outer(event.cents):
            emit(state)
        return state + max(event.cents, -5 * 60, self.least())

    def least(self) -> int:
        return 51_000


def test_constants_behind_names_and_in_what_update_calls_are_found() -> None:
    found = constants(define(Named(most=8_000)))
    assert {4_000, 8_000, 31_000, 60_000, 51_000, -300, 77} < set(found[int])
    assert {"storno", "refund"} == set(found[str])


def test_what_libraries_name_is_not_the_programs() -> None:
    class Parses(ChangesItsMindAtAWord):
        def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
            return state + len(textwrap.dedent(event.kind or ""))

    assert set(constants(define(Parses))[str]) == {""}
