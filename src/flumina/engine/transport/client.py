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
    """Addresses of all tasks of a complete gang; ``generation`` counts the gangs."""

    generation: int
    addresses: Mapping[int, Address]
    started: float = 0.0
    """The ``time.time()`` at which the gang was complete: the start of the run."""
    start: Any = None
    """The resume point of this gang, if it has one; its type is defined by the engine."""


@dataclass(frozen=True, slots=True)
class CalledOff:
    """The run is over for the receiver: for good, or until it is tried again."""

    reason: str
    over: bool = False


@dataclass(frozen=True, slots=True)
class ControlMessage:
    """A message of the driver to a running task; the client's thread handles replies to pings itself."""

    what: object


@dataclass(frozen=True, slots=True)
class Ping:
    """Sign of life of a task; ``number`` counts these messages."""

    number: int


@dataclass(frozen=True, slots=True)
class PingReply:
    """Reply to a :class:`Ping`: the driver has handled all messages before it on this connection."""

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
        """Return the message for an error of any kind."""
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
        """Return the error if it can be unpickled, else a :class:`TaskFailedError` with its text."""
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
    """Connection of a task to the driver; only :meth:`done` and :meth:`fail` block the task's loop.

    Wait for ``fileno`` to become readable, then ``check``.
    """

    def __init__(self, channel: Channel, interval: float = INTERVAL) -> None:
        self.peer_table = PeerTable(0, {})
        self._channel, self._interval = channel, interval
        self._changed = Condition()
        """Guards everything below and the channel, which one thread at a time may use."""
        self._messages: deque[object] = deque()
        self._error: BaseException | None = None
        """The reason why no more messages will be received."""
        self._pings = self._replied = 0
        self._closed = False
        self._wake_loop_receiver, self._wake_loop_sender = _socket_pair()
        self._wake_thread_receiver, self._wake_thread_sender = _socket_pair()
        self._thread = Thread(target=self._serve, name="line to the driver", daemon=True)
        self._thread.start()

    @classmethod
    def join(
        cls, address: Address, secret: Secret, registration: Registration, *, within: float, interval: float = INTERVAL
    ) -> DriverClient:
        """Register with the driver, and wait until the gang is complete or called off.

        ``within`` limits the seconds for the connection; the driver limits the time to assemble a gang.
        """
        channel = connect(address, secret, registration, within=within)
        channel.name = "the driver"
        channel.unblock()
        client = cls(channel, interval)
        try:
            while not client.generation:
                with client._changed:
                    while not client._has_message:
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
        return self._wake_loop_receiver.fileno()

    def check(self) -> None:
        """Raise CalledOffError if the run is over for this task, PeerLostError if the driver is gone."""
        with self._changed:
            if not self._closed:
                self._receive()
                with suppress(OSError):  # every message that it announced is taken now
                    self._wake_loop_receiver.recv(64)
            messages, self._messages = self._messages, deque()
            error = self._error
        for message in messages:
            if isinstance(message, CalledOff):
                raise CalledOffError(message.reason, over=message.over)
            if isinstance(message, PeerTable):
                self.peer_table = message
        if error is not None:
            raise error

    def wait_for_message(self, seconds: float) -> None:
        """Wait for the driver's reason why a peer is gone; return if it has none.

        It has none if it has replied to two pings from here on, and sent nothing else for so many seconds; the wait for
        a driver that is busy is not limited.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            for _ in range(2):
                number = self._ping()
                while self._replied < number and not self._over:
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
        self._send_last(TaskFailure.of(error))

    def done(self, result: object) -> None:
        """Send the result of this task, and disconnect."""
        self._send_last(TaskDone(result))

    def close(self) -> None:
        """Disconnect; without :meth:`done` or :meth:`fail` before, the driver considers this task lost."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._wake_thread()
        self._thread.join()
        self._channel.close()
        for end in (
            self._wake_loop_receiver,
            self._wake_loop_sender,
            self._wake_thread_receiver,
            self._wake_thread_sender,
        ):
            end.close()

    def _send_last(self, message: object) -> None:
        """Send the last message of this task, wait until it is sent, and disconnect.

        Only the end of the driver bounds the wait: a driver that is busy is not gone.
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
                self.check()  # raises the driver's reason, if it has sent one
                raise _driver_lost()
        finally:
            self.close()

    # Called with the condition held.

    @property
    def _has_message(self) -> bool:
        """Tell whether there is a message or an error for the loop."""
        return bool(self._messages) or self._error is not None

    @property
    def _over(self) -> bool:
        """Tell whether the task has been called off, or has lost the driver."""
        return self._error is not None or any(isinstance(message, CalledOff) for message in self._messages)

    def _put(self, buffers: Any) -> None:  # noqa: ANN401 -- what channels take
        self._channel.put(buffers)
        if self._channel.pending:
            self._wake_thread()  # the thread sends the rest

    def _ping(self) -> int:
        self._pings += 1
        self._put(dumps(Ping(self._pings)))
        return self._pings

    def _wake_thread(self) -> None:
        with suppress(OSError):  # full: the thread is being woken already
            self._wake_thread_sender.send(b"!")

    def _receive(self) -> None:
        """Receive the messages of the driver, and send the queued ones."""
        if self._error is not None:
            return
        before = len(self._messages)
        try:
            self._channel.flush()
            for frame in self._channel.take():
                message = loads(frame)
                if isinstance(message, ControlMessage):
                    self._handle(message.what)
                else:
                    self._messages.append(message)
        except PeerLostError:
            self._error = _driver_lost()
        except Exception as error:  # noqa: BLE001 -- raised in the loop: a task can't go on without the driver
            self._error = error
        if len(self._messages) > before or self._error is not None:
            with suppress(OSError):  # full: the loop is being woken already
                self._wake_loop_sender.send(b"!")
        self._changed.notify_all()

    def _handle(self, what: object) -> None:
        """Handle a reply to a ping; queue other messages for the loop."""
        if isinstance(what, PingReply):
            self._replied = what.number
        else:
            self._messages.append(what)

    # Called by the thread.

    def _serve(self) -> None:
        """Send pings and receive messages until the connection is closed, here or by the driver."""
        due = time.monotonic() + self._interval
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_thread_receiver, selectors.EVENT_READ)
            selector.register(self._channel, selectors.EVENT_READ)
            while True:
                selector.select(max(0.0, due - time.monotonic()))
                with self._changed:
                    with suppress(OSError):
                        self._wake_thread_receiver.recv(64)
                    if self._closed:
                        return
                    self._receive()
                    if self._error is not None:
                        return
                    if time.monotonic() >= due:
                        if not self._channel.pending:  # else the driver hears from us anyway, or reads nothing
                            self._ping()
                        due = time.monotonic() + self._interval
                    write = selectors.EVENT_WRITE if self._channel.pending else 0
                    selector.modify(self._channel, selectors.EVENT_READ | write)


def _driver_lost() -> PeerLostError:
    return PeerLostError("DRIVER_LOST", "the driver went away")


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return the receiver and the sender of wake-ups; neither blocks."""
    receiver, sender = socket.socketpair()
    receiver.settimeout(0)
    sender.settimeout(0)
    return receiver, sender
