"""A part on its way to its workers: read and routed ahead by a thread of its own, sent when there is room.

A worker is sent nothing new of a part while more than a window of that part's events waits in its buffer. Windows are
never shared, and the part that lags behind most always has room: what lies at or before the lowest frontier has been
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
"""How many pieces are read before the first of them is asked for."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A piece of a part: the events of each worker that has some, and the frontier behind them."""

    runs: dict[str, Run]
    frontier: Point
    events: int

    def cut(self, ts: int) -> tuple[Delivery, Delivery | None]:
        """What lies up to a timestamp (with the end behind it, if no more is to come up to there), and what behind."""
        if not reaches(self.frontier, ts):
            return self, None
        before: dict[str, Run] = {}
        behind: dict[str, Run] = {}
        for name, run in self.runs.items():
            assert run.batch is not None, "engines work on columns"
            upto = int(np.searchsorted(run.batch.ts, ts, "right"))
            if upto:
                before[name] = Run(batch=run.batch.slice(0, upto))
            if upto < len(run.batch):
                behind[name] = Run(batch=run.batch.slice(upto, len(run.batch)))
        events = sum(map(len, before.values()))
        rest = Delivery(behind, self.frontier, self.events - events) if behind else None
        return Delivery(before, END, events), rest


class Read(Protocol):
    """How a part is read."""

    def __call__(self, *, stop: threading.Event) -> Iterator[EventBatch]:
        """All that arrives, until ``stop`` is set."""


class ReaderThread(threading.Thread):
    """Read one part ahead; a daemon, as it may sit in a user's generator that nothing can wake."""


class SourceReader:
    """One part, read in this task; ``close`` wakes a reader that waits for its source, where that can be done."""

    def __init__(
        self,
        part: PartId,
        arrivals: Read,
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
        """How far the receivers have been told to be."""
        self.exhausted = False
        """Whether nothing more is to be read."""
        self.sent = 0
        self.promised = START
        """How far that is, ends of segments aside."""
        self.highest: int | None = None
        """The timestamp of the last event that was sent."""
        self.paused = False
        self.limit: int | None = None
        """Up to which timestamp it may go in this segment."""
        self._queue: queue.Queue[Delivery | BaseException] = queue.Queue(AHEAD)
        self._next: Delivery | None = None
        self._stop = threading.Event()
        self._close = close
        self._thread = ReaderThread(target=self._read, args=(arrivals,), name=f"feed {part[0]}[{part[1]}]", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Have the thread read no further, wherever it waits; this never waits itself."""
        self._stop.set()
        if self._close is not None:
            self._close()
        with suppress(queue.Empty):  # room for the piece that the thread may be about to hand over
            while True:
                self._queue.get_nowait()

    def join(self, seconds: float) -> bool:
        """Wait for the thread to end, so long at most; whether it has. One in a user's code may take for ever."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, seconds))
        return not self._thread.is_alive()

    @property
    def ended(self) -> bool:
        """Whether everything of this segment has been sent, the end included."""
        return self.frontier == END

    @property
    def over(self) -> bool:
        """Whether nothing is left for another segment."""
        return self.ended and self.exhausted and self._next is None

    def reopen(self) -> None:
        """Begin another segment, behind the limit of the one before."""
        if self.exhausted and self._next is None:
            self._next = Delivery({}, END, 0)
        self.frontier, self.limit, self.paused = START, None, False

    @property
    def rests(self) -> bool:
        """Whether its thread has nothing to do at the moment."""
        return self._queue.full() or not self._thread.is_alive()

    def ready(self) -> bool:
        """Whether a piece has been read and all its receivers have room."""
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
        """The next piece, for each receiver what is for it; the frontier goes to all."""
        if self.at_limit:
            delivery = Delivery({}, END, 0)
        else:
            assert self._next is not None, "asked for when it is ready"
            delivery, self._next = self._next, None
            if self.limit is not None:
                delivery, self._next = delivery.cut(self.limit)
        self.frontier = delivery.frontier
        self.promised = self.promised if self.frontier == END else self.frontier
        self.sent += delivery.events
        for name, run in delivery.runs.items():
            self.outstanding[name] += len(run)
            self.highest = run.last.ts if self.highest is None else max(self.highest, run.last.ts)
        return [(name, Data(self.part, delivery.runs.get(name, EMPTY), self.frontier)) for name in self.receivers]

    @property
    def at_limit(self) -> bool:
        """Whether nothing up to the limit of this segment is left."""
        return self.limit is not None and reaches(self.promised, self.limit)

    def credit(self, worker: str, events: int) -> None:
        """A worker has taken events out of its buffer."""
        self.outstanding[worker] -= events
        assert self.outstanding[worker] >= 0, f"{worker} took more of {self.part} than it was sent"

    # -- the thread -------------------------------------------------------------------------------------------

    def _read(self, arrivals: Read) -> None:
        try:
            for arrival in arrivals(stop=self._stop):
                if not self._put(self._routed(arrival)):
                    return
        except BaseException as error:  # noqa: BLE001 -- raised again where the task can report it
            self._put(error)

    def _routed(self, arrival: EventBatch) -> Delivery:
        batch = arrival.batch
        if batch is None or not len(batch):
            return Delivery({}, arrival.frontier, 0)
        places = self.router.split(*self.part, batch)
        runs = {
            self.names[number]: Run(batch=batch if rows is None else batch.take(rows))
            for number, rows in places.items()
        }
        return Delivery(runs, arrival.frontier, len(batch))

    def _put(self, found: Delivery | BaseException) -> bool:
        while not self._stop.is_set():
            try:
                self._queue.put(found, timeout=0.1)
            except queue.Full:
                continue
            self.wake()
            return True
        return False
