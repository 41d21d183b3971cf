"""Assemble the tasks of a run in the driver, and collect their reports.

Tasks that have to run together are a *gang*. It assembles from registrations; when it is complete, all members get the
peer table: a *generation*. A generation that loses a member is over, and a new gang may assemble, since Spark retries a
stage as a whole. One thread owns this state; other threads send it requests.
"""

from __future__ import annotations

import logging
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Event, Thread
from types import TracebackType
from typing import Protocol, Self

from flumina.engine.liveness import Liveness, LivenessMonitor, Silence
from flumina.engine.transport.client import (
    CalledOff,
    CheckpointPart,
    ControlMessage,
    PeerTable,
    Ping,
    PingReply,
    ProgressReport,
    Registration,
    TaskDone,
    TaskFailure,
)
from flumina.engine.transport.listener import Address, Channel, Listener, Secret, dumps, loads
from flumina.errors import ClusterError, FluminaError, GangError, TaskLostError, TaskSilentError

log = logging.getLogger("flumina")

OnProgress = Callable[[int, object], None]
OnSilent = Callable[[Registration, str], None]


class SnapshotCommitter(Protocol):
    """Store checkpoint parts and supply the resume point of a restarted gang."""

    def begin(self) -> object:
        """Return the resume point of a gang that is complete; drop the parts of an incomplete snapshot."""

    def add_checkpoint(self, task: int, what: object) -> None:
        """Add a part of a snapshot from a task of the running gang."""


GRACE = 5.0
"""Seconds for a task that was called off to leave, before its connection is closed."""


@dataclass(eq=False, slots=True)
class _Peer:
    """A task that registered. ``leaves_by`` is set once it was called off."""

    registration: Registration
    channel: Channel
    monitor: LivenessMonitor
    generation: int = 0
    done: bool = False
    waits_to_write: bool = False
    leaves_by: float | None = None


class Rendezvous:
    """Server that assembles ``tasks`` tasks, and collects their progress and results.

    With ``retry`` a lost task does not end the run: the backend may start a new gang, within the same time as the first
    one. ``on_progress(task, progress)`` is called in the thread of the rendezvous.

    A task without signs of life is logged as a warning, and counts as lost after the timeout of ``liveness``, if there
    is one; ``on_silent(registration, why)`` then ends its process where the backend has to do that.
    """

    def __init__(
        self,
        tasks: int,
        secret: Secret,
        host: str = "127.0.0.1",
        *,
        assemble_within: float = 60.0,
        on_progress: OnProgress | None = None,
        committer: SnapshotCommitter | None = None,
        retry: bool = True,
        liveness: Liveness | None = None,
        on_silent: OnSilent | None = None,
    ) -> None:
        self._committer = committer
        self._liveness, self._on_silent = liveness or Liveness(), on_silent
        self._silent: TaskSilentError | None = None
        """Why the last generation was over, if that was silence."""
        self._tasks, self._within, self._on_progress, self._retry = tasks, assemble_within, on_progress, retry
        self._generation = 0
        self._gang: dict[int, _Peer] = {}
        """Registered tasks by number, in order of registration: of the assembling gang, or of the running one."""
        self._running = False
        self._deadline = time.monotonic() + assemble_within
        self._leaving: set[_Peer] = set()
        self._results: dict[int, object] = {}
        self._error: BaseException | None = None
        self._over = Event()
        self._closing = False
        self._requests: deque[Callable[[], None]] = deque()
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.settimeout(0)
        self._wake_sender.settimeout(0)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_receiver, selectors.EVENT_READ)
        try:
            self._listener = Listener(host, secret, self._on_connection)
        except BaseException:
            self._clear_up()
            raise
        self.address: Address = self._listener.address
        self._thread = Thread(target=self._serve, name="rendezvous", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def wait(self, timeout: float | None = None) -> dict[int, object]:
        """Wait for the results of all tasks of one generation; raise the error that ended the run otherwise."""
        if not self._over.wait(timeout):
            raise TimeoutError(f"the run is not over after {timeout} s")
        if self._error is not None:
            raise self._error
        return dict(sorted(self._results.items()))

    @property
    def over(self) -> bool:
        """Tell whether ``wait`` would return or raise at once."""
        return self._over.is_set()

    @property
    def generation(self) -> int:
        """The number of gangs that have been complete so far."""
        return self._generation

    @property
    def assembled(self) -> bool:
        """Tell whether a gang is complete and runs."""
        return self._running

    def restart_deadline(self) -> None:
        """Count the time to assemble from now on, unless a task has registered; callable from any thread."""
        self._request(self._restart_deadline)

    def cancel(self, error: BaseException) -> None:
        """End the run from any thread: all tasks are called off, and ``wait`` raises the error."""
        self._request(lambda: self._end(error))

    def close(self) -> None:
        """Call off the remaining tasks, and end the thread and all sockets."""
        self._listener.close()
        self.cancel(GangError("the rendezvous was closed before the run was over"))
        self._request(self._start_closing)
        self._thread.join()

    # Called by other threads.

    def _on_connection(self, hello: object, channel: Channel) -> None:
        self._request(lambda: self._register(hello, channel))

    def _request(self, action: Callable[[], None]) -> None:
        self._requests.append(action)
        with suppress(OSError):  # full: the thread is being woken already; closed: the thread has ended
            self._wake_sender.send(b"!")

    # Called by the thread of the rendezvous.

    def _serve(self) -> None:
        try:
            while not (self._closing and not self._leaving):
                self._turn()
        except BaseException as error:
            self._end(error)  # no caller may wait for a thread that has ended
            raise
        finally:
            self._clear_up()

    def _turn(self) -> None:
        listened_until = time.monotonic()  # before we listen: that this process stood still is no silence of others
        for key, _ in self._selector.select(self._seconds_until_due()):
            if isinstance(key.data, _Peer):
                self._receive(key.data)
            else:
                self._wake_receiver.recv(4096)
        while self._requests:
            self._requests.popleft()()
        self._check_liveness(listened_until)
        now = time.monotonic()
        if not self._running and not self._over.is_set() and now >= self._deadline:
            self._end(self._incomplete_gang())
        for peer in [peer for peer in self._leaving if peer.leaves_by is not None and now >= peer.leaves_by]:
            self._remove(peer)

    def _clear_up(self) -> None:
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, _Peer):
                key.data.channel.close()
        self._selector.close()
        self._wake_receiver.close()
        self._wake_sender.close()

    def _seconds_until_due(self) -> float | None:
        """Return the seconds until a deadline of the gang or of a task; None if there is none."""
        due = [peer.leaves_by for peer in self._leaving if peer.leaves_by is not None]
        if not self._running and not self._over.is_set():
            due.append(self._deadline)
        due += [at for peer in self._gang.values() if not peer.done and (at := peer.monitor.due) is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _register(self, hello: object, channel: Channel) -> None:
        channel.unblock()
        if not isinstance(hello, Registration) or not 0 <= hello.task < self._tasks:
            channel.close()
            return
        channel.name = f"task {hello.task}"
        peer = _Peer(hello, channel, LivenessMonitor(self._liveness, time.monotonic()))
        self._selector.register(channel, selectors.EVENT_READ, peer)
        if self._over.is_set():
            self._call_off(peer, "the run is over")
            return
        self._call_off_earlier_attempts(hello.task)
        self._gang[hello.task] = peer
        if len(self._gang) == self._tasks:
            self._generation += 1
            self._running, self._silent = True, None
            addresses = {task: s.registration.address for task, s in sorted(self._gang.items())}
            start = None if self._committer is None else self._committer.begin()
            peer_table = PeerTable(self._generation, addresses, time.time(), start)
            for client in self._gang.values():
                client.generation = self._generation
                self._send(client, peer_table)

    def _restart_deadline(self) -> None:
        if not self._running and not self._gang:
            self._deadline = time.monotonic() + self._within

    def _call_off_earlier_attempts(self, task: int) -> None:
        """Call off a task that registers again, and all that registered before it: Spark has retried the stage."""
        if task not in self._gang:
            return
        reason = f"task {task} was tried again"
        if self._running:
            self._disband(reason)
            return
        while task in self._gang:
            earliest = next(iter(self._gang))
            self._call_off(self._gang.pop(earliest), reason)

    def _check_liveness(self, now: float) -> None:
        """Warn of silent tasks, and lose the ones that have reached the timeout."""
        for peer in [peer for peer in self._gang.values() if not peer.done]:
            match peer.monitor.check(now):
                case Silence.WARN:
                    log.warning(_silence(peer.registration, now - peer.monitor.last_sign, self._liveness.timeout))
                case Silence.TIMEOUT:
                    self._time_out(peer, now - peer.monitor.last_sign)
                    return  # the gang is another one now

    def _time_out(self, peer: _Peer, seconds: float) -> None:
        whom = peer.registration
        assert self._liveness.timeout is not None
        timeout = self._liveness.timeout
        error = TaskSilentError(whom.task, pid=whom.pid, host=whom.host, seconds=seconds, timeout=timeout)
        self._lose(peer, error)
        if self._retry and not self._over.is_set():
            self._silent = error
            log.warning("%s; the tasks of the run are called off, and may be tried again", error.message)
        if self._on_silent is not None:
            self._on_silent(whom, error.message)

    def _receive(self, peer: _Peer) -> None:
        silence = peer.monitor.record(time.monotonic())
        if silence is not None:
            log.warning("task %d is heard again, after %.0f s", peer.registration.task, silence)
        try:
            if peer.waits_to_write and peer.channel.flush():
                self._watch(peer, selectors.EVENT_READ)
            messages = [loads(frame) for frame in peer.channel.take()]
        except FluminaError:  # the connection is gone, or what came is no message
            self._lose(peer)
            return
        except Exception as error:  # noqa: BLE001 -- a result whose class does not exist here can fail in any way
            self._end(error)
            return
        for message in messages:
            if peer.leaves_by is not None:
                return
            self._handle(peer, message)

    def _handle(self, peer: _Peer, message: object) -> None:
        task = peer.registration.task
        if isinstance(message, Ping):
            self._send(peer, ControlMessage(PingReply(message.number)))
        elif isinstance(message, TaskFailure):
            self._end(message.error(task))
        elif isinstance(message, ProgressReport) and self._on_progress is not None:
            try:
                self._on_progress(task, message.what)
            except Exception as error:  # noqa: BLE001 -- the caller's own function
                self._end(error)
        elif isinstance(message, CheckpointPart):
            try:
                assert self._committer is not None
                self._committer.add_checkpoint(task, message.what)
            except Exception as error:  # noqa: BLE001 -- the run must not go on without
                self._end(error)
        elif isinstance(message, TaskDone):
            assert peer.generation == self._generation, "only members of the gang that runs are still listened to"
            peer.done = True
            self._results[task] = message.result
            if len(self._results) == self._tasks:
                self._end(None)

    def _lose(self, peer: _Peer, why: TaskSilentError | None = None) -> None:
        """Drop a task whose connection is gone; end its gang unless the task was done or called off."""
        wanted = peer.leaves_by is None and not peer.done
        self._remove(peer)
        if not wanted or self._over.is_set():
            return
        whom = peer.registration
        if not self._retry:
            self._end(why or TaskLostError(whom.task, pid=whom.pid, host=whom.host))
            return
        self._gang.pop(whom.task, None)
        self._disband(f"task {whom.task} was lost" if why is None else why.message)

    def _disband(self, reason: str) -> None:
        """Call off the gang, and give a new one the time to assemble."""
        for peer in self._gang.values():
            self._call_off(peer, reason)
        self._gang.clear()
        self._results.clear()
        self._running = False
        self._deadline = time.monotonic() + self._within

    def _end(self, error: BaseException | None) -> None:
        """End the run, for good; only the first error counts."""
        if self._over.is_set():
            return
        if self._silent is not None and isinstance(error, ClusterError):
            self._silent.__cause__ = error  # Spark gave up because the silent task was ended
            error = self._silent
        self._error = error
        self._over.set()
        reason = "the run is done" if error is None else f"{type(error).__name__}: {error}".partition("\n")[0][:500]
        for peer in self._gang.values():
            self._call_off(peer, reason)
        self._gang.clear()

    def _call_off(self, peer: _Peer, reason: str) -> None:
        """Send a task the message that it is called off, and ignore its messages from now on."""
        if peer.channel.fileno() < 0:
            return  # it was done, and has left
        peer.leaves_by = time.monotonic() + GRACE
        self._leaving.add(peer)
        self._send(peer, CalledOff(reason, over=self._over.is_set()))

    def _send(self, peer: _Peer, message: object) -> None:
        peer.channel.put(dumps(message))
        if peer.channel.pending:
            self._watch(peer, selectors.EVENT_READ | selectors.EVENT_WRITE)

    def _watch(self, peer: _Peer, events: int) -> None:
        peer.waits_to_write = events != selectors.EVENT_READ
        self._selector.modify(peer.channel, events, peer)

    def _remove(self, peer: _Peer) -> None:
        self._leaving.discard(peer)
        with suppress(KeyError, ValueError):
            self._selector.unregister(peer.channel)
        peer.channel.close()

    def _start_closing(self) -> None:
        self._closing = True
        for peer in self._leaving:
            peer.leaves_by = min(peer.leaves_by or 0.0, time.monotonic() + 0.5)

    def _incomplete_gang(self) -> GangError:
        missing = [task for task in range(self._tasks) if task not in self._gang]
        names = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
        before = "" if not self._generation else f" again after generation {self._generation} was lost"
        return GangError(
            f"the tasks of the run did not come together{before} within {self._within:g} s: "
            f"{len(self._gang)} of {self._tasks} came, missing: {names}",
            missing=missing,
            hint="are there as many free slots as tasks, and can every machine reach the driver?",
        )


def _silence(whom: Registration, seconds: float, timeout: float | None) -> str:
    wait = "without limit, as no task_timeout= is set" if timeout is None else f"up to task_timeout={timeout:g} s"
    return (
        f"task {whom.task} has given no sign of life for {seconds:.0f} s (process {whom.pid} on {whom.host}): it is "
        f"stopped, its machine hangs or is gone, or one call in C holds Python's lock; the run waits for it {wait}"
    )
