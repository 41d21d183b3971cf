"""Declare state types and decorate their methods (level (c))."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from flumina.errors import UsageError
from flumina.model.tag import Tag, user_line

Function = TypeVar("Function", bound=Callable[..., Any])

PARAMETERS = {
    "init": ("self",),
    "update": ("self", "state", "event", "emit"),
    "update_batch": ("self", "state", "batch", "emit"),
    "update_all": ("self", "states", "event", "emit"),
    "fork": ("self", "state", "left", "right"),
    "join": ("self", "left", "right"),
    "on_expire": ("self", "state", "event", "emit"),
}


class StateType:
    """A state type of level (c), for events of these tags; without tags, for all events.

    The first one in the class is the type of the initial state and takes all events.
    """

    def __init__(self, *tags: Tag) -> None:
        self.name = "?"
        self.tags = tags
        self.where = user_line()

    def __set_name__(self, owner: type, name: str) -> None:
        """Learn the type's name from the class body it stands in."""
        self.name = name


class Decoration:
    """The mark of a decorator on a method of level (c)."""

    def __init__(self, role: str, *types: StateType) -> None:
        self.role, self.types = role, types


def _decorator(role: str, *types: StateType) -> Callable[[Function], Function]:
    if not types or not all(isinstance(t, StateType) for t in types):
        raise UsageError("STATE_TYPES", f"@fl.{role} takes state types, got {types!r} at {user_line(2)}")

    def note(function: Function) -> Function:
        decorations = [*getattr(function, "__flumina__", ()), Decoration(role, *types)]
        function.__flumina__ = decorations  # type: ignore[attr-defined]
        return function

    return note


def update(*types: StateType) -> Callable[[Function], Function]:
    """Mark ``(self, state, event, emit)`` as the update of these state types."""
    return _decorator("update", *types)


def update_batch(*types: StateType) -> Callable[[Function], Function]:
    """Mark ``(self, state, batch, emit)`` as the batch update of these state types."""
    return _decorator("update_batch", *types)


def fork(source: StateType, into: tuple[StateType, StateType]) -> Callable[[Function], Function]:
    """Mark ``(self, state, left, right)`` as a fork of one state type into two."""
    return _decorator("fork", source, *_pair("fork", into))


def join(parts: tuple[StateType, StateType], into: StateType) -> Callable[[Function], Function]:
    """Mark ``(self, left, right)`` as the join of two state types into one."""
    return _decorator("join", *_pair("join", parts), into)


def _pair(role: str, types: object) -> tuple[StateType, StateType]:
    if not (isinstance(types, tuple) and len(types) == 2):
        raise UsageError("STATE_TYPES", f"@fl.{role} takes a pair of state types, got {types!r} at {user_line(2)}")
    return types


def members_of(cls: type, root: type) -> dict[str, Any]:
    """Return all class attributes below ``root``, inherited ones first, each name as the class sees it."""
    members: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base not in root.__mro__:
            members.update(vars(base))
    return members


def state_types(members: dict[str, Any]) -> dict[str, StateType]:
    """Return the declared state types by name."""
    return {name: member for name, member in members.items() if isinstance(member, StateType)}


def decorations(members: dict[str, Any]) -> list[tuple[str, Decoration]]:
    """Return (method name, mark) for every decorator of level (c)."""
    return [(name, decoration) for name, m in members.items() for decoration in getattr(m, "__flumina__", ())]
