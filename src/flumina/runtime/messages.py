"""Messages between workers, sources and the tree root.

=============  ==================  ==========================================================================
message        from, to            means
=============  ==================  ==========================================================================
Data           source to worker    these events of a part, and its frontier: nothing at or before it is to come
Request        parent to child     give me your state at these points; nothing else at or before ``frontier``
Response       child to parent     the state at a point, and how far the child is ``settled``
ForkState      parent to child     your part of the state; requests up to ``served`` need no answer
KeyStates      either way          responses, or fork states, of single keys that were ready in one pass
Shown          child to parent     an event with this timestamp is there, so that ticks up to it come
Stop           parent to child     the run is over
Credit         worker to source    so many more events may be sent
=============  ==================  ==========================================================================

Messages between two workers arrive in the order in which they were sent (assumption 4 of the paper's proof).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from flumina.model.order import START, Point
from flumina.model.tag_set import Key
from flumina.model.tick import Horizon
from flumina.runtime.run import Run

EVERYTHING = ("*", "*")
"""The cause that depends on all events: snapshots and the end of the run."""

Cause = tuple[str, str]
"""Why a state is asked for: the worker that needs it and the tag of its event; or :data:`EVERYTHING`."""

PartId = tuple[str, int]
"""A stream and the number of one of its parts."""


class Origin(NamedTuple):
    """Part number and key of the event behind an item."""

    part: int
    key: Key


class Item(NamedTuple):
    """A point at which the state (of one key, if ``key`` is given) is requested, and the cause.

    ``origin`` is given where events below may tie with the event that is the cause.
    """

    point: Point
    cause: Cause
    key: Key = None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class Data:
    """Events of one part in order, and the part's frontier after them; ``run`` may be empty."""

    part: PartId
    run: Run
    frontier: Point


@dataclass(frozen=True, slots=True)
class Request:
    """Request states at these points, in order.

    No request at or before ``frontier`` will come any more, and none for everything at or before ``snapshot_frontier``.
    ``shown`` is the highest timestamp of an event that the parent knows of, ``last`` the final horizon, for ticks.
    """

    items: tuple[Item, ...]
    frontier: Point
    snapshot_frontier: Point
    shown: int | None = None
    last: Horizon | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """The state of a subtree (or of one key in it) at a point.

    ``settled[c]``: every event of the subtree that depends on cause c and lies at or before this bound is in the state,
    and no other will come. ``quiet``: up to this bound nothing comes in the subtree that changes the state, ticks that
    do nothing to it included: it holds as long as the state stays as it is.
    """

    point: Point
    state: Any
    settled: Mapping[Cause, Point]
    key: Key = None
    quiet: Point = START


@dataclass(frozen=True, slots=True)
class ForkState:
    """A subtree's part of the state (or of one key's) after all that was asked for up to ``served``."""

    state: Any
    served: Point
    key: Key = None


@dataclass(frozen=True, slots=True)
class KeyStates:
    """Responses or fork states of single keys, in sending order.

    Keys do not depend on each other, so the receiver takes all of them in before it does anything::

        one message of n keys = n messages with nothing in between
    """

    each: tuple[Response, ...] | tuple[ForkState, ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """An event with this timestamp has come somewhere below; sent when it passes a tick of a worker above."""

    ts: int


@dataclass(frozen=True, slots=True)
class Stop:
    """End of the run."""


@dataclass(frozen=True, slots=True)
class Credit:
    """Credit for events of a part that left a worker's buffer."""

    part: PartId
    events: int


Message = Data | Request | Response | ForkState | KeyStates | Shown | Stop | Credit


def one_by_one(message: Message) -> Sequence[Message]:
    """Return the messages that a message consists of."""
    return message.each if isinstance(message, KeyStates) else (message,)
