"""Read a part ahead in a thread, route its events, and send them when workers have room.

A worker gets no new events of a part while more than a window of that part's events waits in its buffer. Windows are
never shared, and the part that lags behind most always has room: all events at or before the lowest frontier have been
processed.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from flumina.engine.event_stream import EventBatch
from flumina.model.order import END, START, Point
from flumina.plan.routing import Router
from flumina.runtime.messages import Data, PartId
from flumina.runtime.run import EMPTY, Run
from flumina.runtime.truncate import reaches

AHEAD = 4
"""Number of batches that are read ahead."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A routed batch of a part: the events by worker, and the frontier after them."""

    runs: dict[str, Run]
    frontier: Point
    events: int

    def truncate(self, ts: int) -> tuple[Delivery, Delivery | None]:
        """Divide at a timestamp: return the events up to it (with the end, if it is reached), and the rest."""
        if not reaches(self.frontier, ts):
            return self, None
        before: dict[str, Run] = {}
        later: dict[str, Run] = {}
        for name, run in self.runs.items():
            assert run.batch is not None, "engines work on columns"
            upto = int(np.searchsorted(run.batch.ts, ts, "right"))
            if upto:
                before[name] = Run(batch=run.batch.slice(0, upto))
            if upto < len(run.batch):
                later[name] = Run(batch=run.batch.slice(upto, len(run.batch)))
        events = sum(map(len, before.values()))
        rest = Delivery(later, self.frontier, self.events - events) if later else None
        return Delivery(before, END, events), rest


class Read(Protocol):
    """Function that reads a part."""

    def __call__(self, *, stop: threading.Event) -> Iterator[EventBatch]:
        """Yield the batches of the part, until ``stop`` is set."""


class ReaderThread(threading.Thread):
    """Thread that reads one part ahead; a daemon, as a user's generator may block it for ever."""


class SourceReader:
    """Reader of one part in this task; ``close`` wakes it where it waits for its source, if the source supports it."""

    def __init__(
        self,
        part: PartId,
        read: Read,
        router: Router,
        window: int,
        wake: Callable[[], None],
        close: Callable[[], None] | None = None,
    ) -> None:
        self.part, self.router, self.window, self.wake = part, router, window, wake
        self.names = [worker.id for worker in router.plan.workers]
        self.receivers = [self.names[number] for number in router.receivers(*part)]
        self.outstanding = dict.fromkeys(self.receivers, 0)
        self.frontier = START
        """The frontier that was sent to the receivers."""
        self.exhausted = False
        """Whether the part has been read to its end."""
        self.sent = 0
        self.promised = START
        """The last frontier that was sent, without the ends of epochs."""
        self.highest: int | None = None
        """The highest timestamp of an event that was sent."""
        self.paused = False
        self.limit: int | None = None
        """The timestamp at which this epoch is truncated, if it is known."""
        self._queue: queue.Queue[Delivery | BaseException] = queue.Queue(AHEAD)
        self._next: Delivery | None = None
        self._stop = threading.Event()
        self._close = close
        self._thread = ReaderThread(target=self._read, args=(read,), name=f"reader {part[0]}[{part[1]}]", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end, and wake it where it waits; never waits itself."""
        self._stop.set()
        if self._close is not None:
            self._close()
        with suppress(queue.Empty):  # room for the batch that the thread may be about to put
            while True:
                self._queue.get_nowait()

    def join(self, seconds: float) -> bool:
        """Wait for the thread to end, for a limited time, since user's code may block it; return whether it has."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, seconds))
        return not self._thread.is_alive()

    @property
    def ended(self) -> bool:
        """Tell whether all events of this epoch have been sent, and its end."""
        return self.frontier == END

    @property
    def over(self) -> bool:
        """Tell whether no events are left for another epoch."""
        return self.ended and self.exhausted and self._next is None

    def reopen(self) -> None:
        """Begin another epoch, after the limit of the one before."""
        if self.exhausted and self._next is None:
            self._next = Delivery({}, END, 0)
        self.frontier, self.limit, self.paused = START, None, False

    @property
    def rests(self) -> bool:
        """Tell whether the thread is idle."""
        return self._queue.full() or not self._thread.is_alive()

    def ready(self) -> bool:
        """Tell whether a batch has been read and all its receivers have room."""
        if self.paused or self.ended:
            return False
        if self.at_limit:
            return True
        if self._next is None:
            try:
                found = self._queue.get_nowait()
            except queue.Empty:
                return False
            if isinstance(found, BaseException):
                raise found
            self._next = found
            self.exhausted = found.frontier == END
        return all(self.outstanding[name] < self.window for name in self._next.runs)

    def take(self) -> list[tuple[str, Data]]:
        """Return the next batch as messages, one for each receiver; the frontier goes to all."""
        if self.at_limit:
            delivery = Delivery({}, END, 0)
        else:
            assert self._next is not None, "take() is called when ready() is true"
            delivery, self._next = self._next, None
            if self.limit is not None:
                delivery, self._next = delivery.truncate(self.limit)
        self.frontier = delivery.frontier
        self.promised = self.promised if self.frontier == END else self.frontier
        self.sent += delivery.events
        for name, run in delivery.runs.items():
            self.outstanding[name] += len(run)
            self.highest = run.last.ts if self.highest is None else max(self.highest, run.last.ts)
        return [(name, Data(self.part, delivery.runs.get(name, EMPTY), self.frontier)) for name in self.receivers]

    @property
    def at_limit(self) -> bool:
        """Tell whether all events up to the limit of this epoch have been sent."""
        return self.limit is not None and reaches(self.promised, self.limit)

    def credit(self, worker: str, events: int) -> None:
        """Record that a worker has taken events out of its buffer."""
        self.outstanding[worker] -= events
        assert self.outstanding[worker] >= 0, f"{worker} took more of {self.part} than it was sent"

    # -- the thread -------------------------------------------------------------------------------------------

    def _read(self, read: Read) -> None:
        try:
            for found in read(stop=self._stop):
                if not self._put(self._routed(found)):
                    return
        except BaseException as error:  # noqa: BLE001 -- raised again where the task can report it
            self._put(error)

    def _routed(self, found: EventBatch) -> Delivery:
        batch = found.batch
        if batch is None or not len(batch):
            return Delivery({}, found.frontier, 0)
        places = self.router.split(*self.part, batch)
        runs = {
            self.names[number]: Run(batch=batch if rows is None else batch.take(rows))
            for number, rows in places.items()
        }
        return Delivery(runs, found.frontier, len(batch))

    def _put(self, found: Delivery | BaseException) -> bool:
        while not self._stop.is_set():
            try:
                self._queue.put(found, timeout=0.1)
            except queue.Full:
                continue
            self.wake()
            return True
        return False
