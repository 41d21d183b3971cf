from typing import Any

import flumina as fl
from flumina.apps import Fraud
from flumina.check.constants import constants
from flumina.program import define
from tests.check.broken import ChangesItsMindAtAWord
from tests.check.lawful import Houses


def test_constants_and_their_neighbours_are_found_but_no_docstrings() -> None:
    found = constants(define(ChangesItsMindAtAWord))
    assert found[str] == ["refund"]
    assert constants(define(Fraud))[int] == [-1, 0, 1]


def test_keyed_programs_too() -> None:
    assert 0 in constants(define(Houses))[int]


def test_code_without_source_has_none() -> None:
    scope: dict[str, Any] = {"fl": fl}
    exec("def update(self, state, event, emit):\n    return 77\n", scope)  # noqa: S102
    body = dict(vars(ChangesItsMindAtAWord)) | {"update": scope["update"]}
    names = ("move", "depends", "output", "init", "update", "fork", "join")
    program = type("NoSource", (fl.Program,), {name: body[name] for name in names})
    assert constants(define(program))[int] == []
