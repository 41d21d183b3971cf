"""Hold the state of a program with declared fields."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from flumina.errors import UsageError

_init: ContextVar[Callable[[], Record] | None] = ContextVar("init", default=None)
"""Makes the initial state of the program whose ``update`` runs."""


@contextmanager
def resettable(init: Callable[[], Record] | None) -> Iterator[None]:
    """Let :func:`reset` set states back to what ``init`` returns; a state does not know its fields."""
    token = _init.set(init)
    try:
        yield
    finally:
        _init.reset(token)


def reset(state: Record) -> None:
    """Set all declared fields of a state back to their initial values.

    Called in ``update``, ``update_batch`` and ``update_all`` of a program with declared fields.
    """
    init = _init.get()
    if init is None or not isinstance(state, Record):
        message = f"expected the state of a program with declared fields, within its update, got {state!r}"
        raise UsageError("RESET", message, hint="call fl.reset(state) in update; own states are reset by hand")
    state.__dict__.update(init().__dict__)


class Record:
    """The state of a program with declared fields: one attribute for each field."""

    def __init__(self, fields: Mapping[str, object]) -> None:
        self.__dict__.update(fields)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 -- called for unknown names only
        raise AttributeError(f"the state has no field {name!r}; declared: {list(self.__dict__)}")

    if TYPE_CHECKING:  # the fields of a program are known at run time only

        def __setattr__(self, name: str, value: Any) -> None: ...  # noqa: ANN401

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __deepcopy__(self, memo: dict[int, Any]) -> Record:
        return Record({name: copy.deepcopy(value, memo) for name, value in self.__dict__.items()})

    def __repr__(self) -> str:
        return f"({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"
