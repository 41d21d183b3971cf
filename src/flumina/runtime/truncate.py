"""Truncate a run at a timestamp in the middle of its work.

Events are sent ahead, and states are asked for ahead, so that a worker holds much that lies after any moment. At a
timestamp after which nothing has been processed or answered anywhere, all of that can be taken back: every worker
forgets what lies after it (:meth:`Worker.truncate`), messages that were on their way lose what lies after it
(:func:`truncated`), and to all of them it looks as if every part ended there. So the run ends as always, with the state
at that timestamp, and goes on with new workers that are given what the old ones gave back::

    truncate at the highest ``Worker.passed``    state at the end = fold of all events up to there
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from flumina.model.order import END, LAST, Point, heartbeat
from flumina.runtime.mailbox import Queue
from flumina.runtime.messages import Data, Item, Message, PartId, Request
from flumina.runtime.run import EMPTY, Run, merged


def after(ts: int) -> Point:
    """Return the last point of a timestamp."""
    return Point(ts, LAST, LAST)


def drop_after(items: Iterable[Item], bound: Point) -> list[Item]:
    """Return the requests up to a point, and the request at the end."""
    return [item for item in items if item.point <= bound or item.point == END]


def reaches(frontier: Point, ts: int) -> bool:
    """Return whether a part's frontier has reached a timestamp."""
    return frontier >= heartbeat(ts, frontier.rank)


def truncated(message: Message, ts: int) -> tuple[Message, Data | None]:
    """Return a message as if all parts ended at a timestamp, and the events after it."""
    match message:
        case Data(part, run, frontier) if reaches(frontier, ts):
            head, rest = run.split(after(ts)) if run else (EMPTY, EMPTY)
            return Data(part, head, END), taken_back(part, rest, frontier)
        case Request(items):
            return replace(message, items=tuple(drop_after(items, after(ts)))), None
    return message, None


def truncated_queues(
    queues: Iterable[tuple[PartId, Queue]], ts: int, more: Mapping[PartId, Sequence[Run]] | None = None
) -> list[Data]:
    """Remove the events after a timestamp from queues; return them as messages.

    The messages have the old frontiers; ``more`` are events that were removed from the queues before.
    """
    found: dict[PartId, list[Run]] = {part: list(runs) for part, runs in (more or {}).items()}
    frontiers: dict[PartId, Point] = {}
    for part, queue in queues:
        rest, frontier = queue.truncate(ts)
        if reaches(frontier, ts):
            found.setdefault(part, []).extend(rest)
            frontiers[part] = frontier
    whole = [(part, merged(found[part]), frontier) for part, frontier in frontiers.items()]
    return [data for part, run, frontier in whole if (data := taken_back(part, run, frontier)) is not None]


def taken_back(part: PartId, run: Run, frontier: Point) -> Data | None:
    """Return events after a truncation as a message; sources repeat their end themselves."""
    if frontier == END:
        return Data(part, run, run.last) if run else None
    return Data(part, run, frontier)
