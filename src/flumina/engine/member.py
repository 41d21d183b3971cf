"""A task's line to the driver: where it learns who its peers are, and reports how it goes."""

from __future__ import annotations

import pickle
import selectors
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flumina.engine.transport import Address, Channel, Secret, connect, dumps, loads
from flumina.errors import CalledOffError, FluminaError, GangError, PeerLostError, TaskFailedError

LAST_WORD = 30.0
"""Seconds for a task's last message to get out."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A task says that it is there; ``attempt`` differs for every time that the task is tried."""

    task: int
    attempt: str
    address: Address
    pid: int
    host: str


@dataclass(frozen=True, slots=True)
class Roster:
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
class Progress:
    """How far a task is; only the engine knows what that means."""

    what: object


@dataclass(frozen=True, slots=True)
class Saved:
    """What a task hands in on the way; unlike progress, none of it may be missed."""

    what: object


@dataclass(frozen=True, slots=True)
class Done:
    """A task has done its part."""

    result: object


@dataclass(frozen=True, slots=True)
class Failed:
    """The run cannot go on. The error and its cause are pickled on their own: the driver may not be able to load them.

    ``text`` is the traceback, for when that happens.
    """

    text: str
    pickled: bytes | None

    @classmethod
    def of(cls, error: BaseException) -> Failed:
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


class Member:
    """A task that has been told its peers. Nothing here blocks it but its last word.

    Wait for ``fileno`` to become readable, then ``check``.
    """

    def __init__(self, channel: Channel) -> None:
        self.roster = Roster(0, {})
        self._channel = channel

    @classmethod
    def join(cls, address: Address, secret: Secret, registration: Registration, *, within: float) -> Member:
        """Register with the driver and wait until all the others have done so too."""
        deadline = time.monotonic() + within
        channel = connect(address, secret, registration, within=within)
        channel.name = "the driver"
        channel.unblock()
        member = cls(channel)
        try:
            member._assemble(deadline)
        except BaseException:
            channel.close()
            raise
        if member.generation:
            return member
        channel.close()
        raise GangError(
            f"task {registration.task} registered and was not told its peers within {within:g} s",
            hint="some other task did not come; the driver knows which one",
        )

    @property
    def generation(self) -> int:
        """How many gangs had come together when this one had, itself included."""
        return self.roster.generation

    def _assemble(self, deadline: float) -> None:
        while True:
            self.check()
            if self.generation or not _wait(self._channel, selectors.EVENT_READ, deadline):
                return

    def fileno(self) -> int:
        """For selectors."""
        return self._channel.fileno()

    def check(self) -> None:
        """Raises CalledOffError if the run is over for this task, PeerLostError if the driver is gone."""
        self._channel.flush()
        for frame in self._channel.take():
            message = loads(frame)
            if isinstance(message, CalledOff):
                raise CalledOffError(message.reason, over=message.over)
            if isinstance(message, Roster):
                self.roster = message

    def await_word(self, seconds: float) -> None:
        """Wait for the driver to call this task off, so long at most; raises what it says."""
        deadline = time.monotonic() + seconds
        while _wait(self._channel, selectors.EVENT_READ, deadline):
            self.check()

    def report(self, progress: object) -> None:
        """Tell the driver how it goes; left out while the driver has not read what it was told before."""
        if self._channel.flush():
            self._channel.put(dumps(Progress(progress)))

    def save(self, what: object) -> None:
        """Hand something in for good."""
        self._channel.put(dumps(Saved(what)))

    def fail(self, error: BaseException) -> None:
        """Last word: the run is over, for everyone, because of this error."""
        self._last(Failed.of(error))

    def done(self, result: object) -> None:
        """Last word: this task has done its part."""
        self._last(Done(result))

    def close(self) -> None:
        """Leave; without a last word the driver takes this task for lost."""
        self._channel.close()

    def _last(self, message: object) -> None:
        """Send it, wait until it is sent, and leave: here a task has nothing else to do any more."""
        deadline = time.monotonic() + LAST_WORD
        self._channel.put(dumps(message))  # one that is too large leaves the line open, to say so
        try:
            while not self._channel.flush():
                if not _wait(self._channel, selectors.EVENT_WRITE, deadline):
                    break
            if self._channel.pending or self._channel.lost:
                self.check()  # why, if the driver said so
                raise PeerLostError("PEER_LOST", "the driver went away, or takes no message any more")
        finally:
            self.close()


def _wait(channel: Channel, event: int, deadline: float) -> bool:
    """Whether a channel became ready before the deadline."""
    with selectors.DefaultSelector() as selector:
        selector.register(channel, event)
        while (left := deadline - time.monotonic()) > 0:
            if selector.select(left):
                return True
    return False
