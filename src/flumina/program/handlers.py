"""Handle the events of each tag by a method of its own, in place of ``update`` with ``if event.tag``.

The definition underneath is the same::

    update(s, e) = handler[e.tag](s, e)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from flumina.errors import Problem, UsageError, location_of
from flumina.model.event import Event
from flumina.model.tag import Tag, user_line
from flumina.program.analysis.function_source import Tags

if TYPE_CHECKING:
    from flumina.model.emit import Emit

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
HandledT = TypeVar("HandledT")
ProgramT = TypeVar("ProgramT")
StateT = TypeVar("StateT")
ResultT = TypeVar("ResultT")


class _Decorator(Protocol[HandledT]):
    """Accepts handlers of these events, typed by their class or as :class:`~flumina.Event`."""

    @overload
    def __call__(
        self, handler: Callable[[ProgramT, StateT, HandledT, Emit], ResultT]
    ) -> Callable[[ProgramT, StateT, HandledT, Emit], ResultT]: ...
    @overload
    def __call__(
        self, handler: Callable[[ProgramT, StateT, Event, Emit], ResultT]
    ) -> Callable[[ProgramT, StateT, Event, Emit], ResultT]: ...


@overload
def on(tag: Tag[A], /) -> _Decorator[A]: ...
@overload
def on(tag: Tag[A], second: Tag[B], /) -> _Decorator[A | B]: ...
@overload
def on(tag: Tag[A], second: Tag[B], third: Tag[C], /, *more: Tag[Any]) -> _Decorator[A | B | C]: ...
def on(*tags: Tag[Any]) -> Any:
    """Mark ``(self, state, event, emit)`` as the update for events of these tags.

    Every tag of the program has one handler. In a :class:`~flumina.KeyedProgram`, the handler of a tag without a key
    gets the states of all keys, as ``update_all`` does.
    """
    if not tags or not all(isinstance(tag, Tag) for tag in tags):
        raise UsageError("HANDLER_TAGS", f"@fl.on takes tags, got {tags!r} at {user_line()}")

    def note(function: Any) -> Any:  # noqa: ANN401 -- returned as it came
        function.__flumina_on__ = (*getattr(function, "__flumina_on__", ()), *tags)
        return function

    return note


def handlers_of(members: Mapping[str, Any]) -> dict[str, tuple[Tag, ...]]:
    """Return the names of the handlers among the members of a class, with their tags."""
    return {name: m.__flumina_on__ for name, m in members.items() if hasattr(m, "__flumina_on__")}


def handled_by(members: Mapping[str, Any], tags: Mapping[str, Tag], *, keyed: bool | None) -> dict[str, Tags]:
    """Return which method handles events of which tags: ``update`` or handlers.

    ``keyed`` takes only tags with or without a key; None takes all.
    """
    wanted = {name for name, tag in tags.items() if keyed is None or (tag.key is not None) == keyed}
    handlers = handlers_of(members)
    if not handlers:
        return {"update": frozenset(wanted)} if "update" in members else {}
    found = {name: frozenset(wanted.intersection(tag.name for tag in of)) for name, of in handlers.items()}
    return {name: of for name, of in found.items() if of}


def check_handlers(
    members: Mapping[str, Any], tags: Mapping[str, Tag], where: str, *, one_key: bool
) -> Iterator[Problem]:
    """Find tags without a handler or with two, and handlers of other tags or beside ``update``."""
    handlers = handlers_of(members)
    for name in ("update", "update_all"):
        if inspect.isfunction(members.get(name)):
            hint = f"let {name} handle its events, or mark a method for each tag with @fl.on"
            message = f"the program has {name} and the handlers {', '.join(handlers)}"
            yield Problem("MIXED_UPDATE", message, location_of(members[name]), hint)
    for name, of in handlers.items():
        for tag in of:
            if tag not in tags.values():
                message = (
                    f"{name} handles the tag {tag.name!r} (made at {tag.where}), which is not a tag of this program"
                )
                yield Problem("UNDECLARED_TAG", message, location_of(members[name]))
        if one_key and len({tag.key is None for tag in of}) > 1:
            message = f"{name} handles tags with a key, which get one state, and tags without, which get all states"
            yield Problem("HANDLER_KEYS", message, location_of(members[name]), "write two handlers")
    for name, tag in tags.items():
        by = [method for method, of in handlers.items() if tag in of]
        if not by:
            yield Problem("NO_HANDLER", f"tag {name} has no handler", where, f"mark one with @fl.on({name})")
        elif len(by) > 1:
            yield Problem("TWO_HANDLERS", f"tag {name} has the handlers {', '.join(by)}", where, "keep one of them")


class Dispatch:
    """The ``update`` of a program with handlers, as if it was a method of it."""

    def __init__(self, program: object, handlers: Mapping[str, Tags]) -> None:
        self.__self__ = program
        self.functions: dict[str, Callable[..., Any]] = {
            tag: getattr(program, name) for name, tags in handlers.items() for tag in tags
        }

    def __call__(self, state: Any, event: Event, emit: Emit) -> Any:  # noqa: ANN401 -- whatever the state is
        return self.functions[event.tag.name](state, event, emit)
