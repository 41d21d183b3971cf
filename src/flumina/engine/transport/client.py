"""Connect a task to the driver: receive the peer table, report progress and results.

A thread beside the task's loop serves the connection: it sends signs of life and receives the driver's messages while
the loop is busy. Messages for the loop wait until it checks for them; a socket pair wakes it.
"""

from __future__ import annotations

import pickle
import selectors
import socket
import time
import traceback
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Condition, Thread
from typing import Any

from flumina.engine.liveness import INTERVAL
from flumina.engine.transport.listener import Address, Channel, Secret, connect, dumps, loads
from flumina.errors import CalledOffError, FluminaError, PeerLostError, TaskFailedError


@dataclass(frozen=True, slots=True)
class Registration:
    """Registration of a task at the rendezvous; ``attempt`` is unique among the attempts of the task."""

    task: int
    attempt: str
    address: Address
    pid: int
    host: str


@dataclass(frozen=True, slots=True)
class PeerTable:
    """All tasks are there; ``generation`` counts how often that was so."""

    generation: int
    addresses: Mapping[int, Address]
    started: float = 0.0
    """When that was, as ``time.time()`` counts: the start of the run."""
    start: Any = None
    """Where this gang begins, if that is not where the first one did; only the engine knows what that means."""


@dataclass(frozen=True, slots=True)
class CalledOff:
    """The run is over for the receiver: for good, or until it is tried again."""

    reason: str
    over: bool = False


@dataclass(frozen=True, slots=True)
class ControlMessage:
    """Carry what the driver says to a task that runs; the thread of the line deals with what needs no loop."""

    what: object


@dataclass(frozen=True, slots=True)
class Ping:
    """Tell the driver that the process of a task is alive; ``number`` counts these messages."""

    number: int


@dataclass(frozen=True, slots=True)
class PingReply:
    """Answer :class:`Ping`, as a word: the driver has dealt with all that came before it on this line."""

    number: int


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """Progress of a task; its content is defined by the engine."""

    what: object


@dataclass(frozen=True, slots=True)
class CheckpointPart:
    """A task's part of a snapshot; unlike progress, every one is delivered."""

    what: object


@dataclass(frozen=True, slots=True)
class TaskDone:
    """The result of a task that has succeeded."""

    result: object


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """The run cannot go on. The error and its cause are pickled on their own: the driver may not be able to load them.

    ``text`` is the traceback, for when that happens.
    """

    text: str
    pickled: bytes | None

    @classmethod
    def of(cls, error: BaseException) -> TaskFailure:
        """The message for an error of any kind."""
        text = "".join(traceback.format_exception(error)).strip()
        for chain in ((error, error.__cause__), (error, None)):
            try:
                pickled = pickle.dumps(chain)
                pickle.loads(pickled)  # noqa: S301 -- what we just wrote; some errors only fail here
            except Exception:  # noqa: BLE001, S112 -- user classes can fail in any way
                continue
            return cls(text, pickled)
        return cls(text, None)

    def error(self, task: int) -> BaseException:
        """The error as it was if it can be had, or else one with its text."""
        error: object = None
        if self.pickled is not None:
            try:
                error, cause = pickle.loads(self.pickled)  # noqa: S301 -- an authenticated task wrote it
            except Exception:  # noqa: BLE001 -- its class may not exist here
                error = None
        if not isinstance(error, BaseException):
            last = self.text.rpartition("\n")[2]
            return TaskFailedError("TASK_FAILED", f"task {task} raised {last}\n{self.text}")
        error.__cause__ = cause
        if not isinstance(error, FluminaError):  # ours say themselves where things went wrong
            error.add_note(f"in task {task}:\n{self.text}")
        return error


class DriverClient:
    """Keep the line of a task that has been told its peers; nothing here blocks its loop but :meth:`done` and the like.

    Wait for ``fileno`` to become readable, then ``check``.
    """

    def __init__(self, channel: Channel, interval: float = INTERVAL) -> None:
        self.peer_table = PeerTable(0, {})
        self._channel, self._interval = channel, interval
        self._changed = Condition()
        """Guards everything below and the channel, which one thread at a time may use."""
        self._messages: deque[object] = deque()
        self._error: BaseException | None = None
        """Why no more words will come."""
        self._alive = self._heard = 0
        self._closed = False
        self._bell, self._rope = _socket_pair()
        self._nudged, self._nudge = _socket_pair()
        self._thread = Thread(target=self._keep, name="line to the driver", daemon=True)
        self._thread.start()

    @classmethod
    def join(
        cls, address: Address, secret: Secret, registration: Registration, *, within: float, interval: float = INTERVAL
    ) -> DriverClient:
        """Register with the driver, and wait for as long as it takes the driver to call the gang complete, or off.

        ``within`` is for the connection alone: how long a gang may take to assemble is the driver's to decide.
        """
        channel = connect(address, secret, registration, within=within)
        channel.name = "the driver"
        channel.unblock()
        client = cls(channel, interval)
        try:
            while not client.generation:
                with client._changed:
                    while not client._told:
                        client._changed.wait()
                client.check()
        except BaseException:
            client.close()
            raise
        return client

    @property
    def generation(self) -> int:
        """The number of gangs that have been complete so far, this one included."""
        return self.peer_table.generation

    def fileno(self) -> int:
        """For selectors; -1 once closed."""
        return self._bell.fileno()

    def check(self) -> None:
        """Raise CalledOffError if the run is over for this task, PeerLostError if the driver is gone."""
        with self._changed:
            if not self._closed:
                self._receive()
                with suppress(OSError):  # all that it rang for is taken now
                    self._bell.recv(64)
            words, self._messages = self._messages, deque()
            error = self._error
        for message in words:
            if isinstance(message, CalledOff):
                raise CalledOffError(message.reason, over=message.over)
            if isinstance(message, PeerTable):
                self.peer_table = message
        if error is not None:
            raise error

    def wait_for_message(self, seconds: float) -> None:
        """Wait until the driver has said why a peer is gone; return if it does not know.

        It does not know if it has answered twice from here on, and said nothing else for so many seconds: a driver
        that is busy for longer gets the time that it takes.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            for _ in range(2):
                number = self._tell_alive()
                while self._heard < number and not self._over:
                    self._changed.wait()
            while not self._over and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
        self.check()

    def report(self, progress: object) -> None:
        """Send progress to the driver; skipped while the driver has not read the progress before."""
        with self._changed:
            if self._channel.flush():
                self._put(dumps(ProgressReport(progress)))

    def save(self, what: object) -> None:
        """Send the driver this task's part of a snapshot."""
        buffers = dumps(CheckpointPart(what))
        with self._changed:
            self._put(buffers)

    def fail(self, error: BaseException) -> None:
        """Send the error that ends the run, and disconnect."""
        self._last(TaskFailure.of(error))

    def done(self, result: object) -> None:
        """Send the result of this task, and disconnect."""
        self._last(TaskDone(result))

    def close(self) -> None:
        """Disconnect; without :meth:`done` or :meth:`fail` before, the driver considers this task lost."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._wake()
        self._thread.join()
        self._channel.close()
        for end in (self._bell, self._rope, self._nudged, self._nudge):
            end.close()

    def _last(self, message: object) -> None:
        """Send it, wait until it is sent, and leave: here a task has nothing else to do any more.

        Nothing bounds that but the driver's end: a driver that is busy is not gone.
        """
        buffers = dumps(message)
        with self._changed:
            self._put(buffers)  # one that is too large leaves the line open, to say so
        try:
            with self._changed:
                while self._channel.pending and not self._over:
                    self._changed.wait()
                unsent = self._channel.pending or self._channel.lost
            if unsent:
                self.check()  # why, if the driver said so
                raise _driver_lost()
        finally:
            self.close()

    # With the condition held.

    @property
    def _told(self) -> bool:
        """Whether there is something for the loop to look at."""
        return bool(self._messages) or self._error is not None

    @property
    def _over(self) -> bool:
        """Tell whether the task has been called off, or has lost the driver."""
        return self._error is not None or any(isinstance(word, CalledOff) for word in self._messages)

    def _put(self, buffers: Any) -> None:  # noqa: ANN401 -- what channels take
        self._channel.put(buffers)
        if self._channel.pending:
            self._wake()  # the thread sends the rest

    def _tell_alive(self) -> int:
        self._alive += 1
        self._put(dumps(Ping(self._alive)))
        return self._alive

    def _wake(self) -> None:
        with suppress(OSError):  # full: it wakes already
            self._nudge.send(b"!")

    def _receive(self) -> None:
        """Take in what the driver has said, and send what is queued."""
        if self._error is not None:
            return
        before = len(self._messages)
        try:
            self._channel.flush()
            for frame in self._channel.take():
                message = loads(frame)
                if isinstance(message, ControlMessage):
                    self._hear(message.what)
                else:
                    self._messages.append(message)
        except PeerLostError:
            self._error = _driver_lost()
        except Exception as error:  # noqa: BLE001 -- raised in the loop: a task can't go on without the driver
            self._error = error
        if len(self._messages) > before or self._error is not None:
            with suppress(OSError):  # full: it rings already
                self._rope.send(b"!")
        self._changed.notify_all()

    def _hear(self, what: object) -> None:
        """Deal with a word, or leave it to the loop."""
        if isinstance(what, PingReply):
            self._heard = what.number
        else:
            self._messages.append(what)

    # The thread.

    def _keep(self) -> None:
        """Give signs of life and take in words until the line is closed, here or by the driver."""
        due = time.monotonic() + self._interval
        with selectors.DefaultSelector() as selector:
            selector.register(self._nudged, selectors.EVENT_READ)
            selector.register(self._channel, selectors.EVENT_READ)
            while True:
                selector.select(max(0.0, due - time.monotonic()))
                with self._changed:
                    with suppress(OSError):
                        self._nudged.recv(64)
                    if self._closed:
                        return
                    self._receive()
                    if self._error is not None:
                        return
                    if time.monotonic() >= due:
                        if not self._channel.pending:  # else the driver hears from us anyway, or reads nothing
                            self._tell_alive()
                        due = time.monotonic() + self._interval
                    write = selectors.EVENT_WRITE if self._channel.pending else 0
                    selector.modify(self._channel, selectors.EVENT_READ | write)


def _driver_lost() -> PeerLostError:
    return PeerLostError("DRIVER_LOST", "the driver went away")


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    """A bell and its rope; neither ever blocks."""
    bell, rope = socket.socketpair()
    bell.settimeout(0)
    rope.settimeout(0)
    return bell, rope
