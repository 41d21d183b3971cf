"""Host a task in a process: connect to its peers, run its loop, report to the driver.

The task reports first. The cleanup (stopping readers, deleting files, closing connections) comes after that, and waits
for user code for a limited time.
"""

from __future__ import annotations

import gc
import os
import socket
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

from flumina.engine.event_stream import event_stream
from flumina.engine.job import Job, TaskReport
from flumina.engine.liveness import INTERVAL
from flumina.engine.meter import peak_memory
from flumina.engine.source_reader import ReaderThread, SourceReader
from flumina.engine.task import Task
from flumina.engine.transport.client import DriverClient, Registration
from flumina.engine.transport.listener import Address, Channel, Listener, Secret, connect
from flumina.errors import (
    CalledOffError,
    GangError,
    HandshakeError,
    OutOfMemoryError,
    PeerLostError,
    location,
)
from flumina.plan.routing import Router
from flumina.program import pickling
from flumina.program.base import define
from flumina.program.definition import Definition

Data = Mapping[str, object]
"""The data of each stream of which a task reads parts."""


LOST = 5.0
"""Seconds that a task waits for the driver's message after it has lost a peer."""

LEAVE = 1.0
"""Seconds that a task waits for its source readers to end, after it has reported to the driver."""


@dataclass(frozen=True)
class TaskAssignment:
    """The packed job, the address of the rendezvous and its secret; sent to the task over a private channel."""

    job: bytes
    rendezvous: Address
    secret: Secret
    bind: str
    patience: float
    interval: float = INTERVAL
    """Seconds between two signs of life."""


@runtime_checkable
class Closing(Protocol):
    """A source whose waiting readers can be woken and ended."""

    def close(self) -> None:
        """End all reading, from any thread; never waits."""


def host(assignment: TaskAssignment, number: int, attempt: str, packed: bytes, frame_rows: Data | None = None) -> bool:
    """Run one task; return False if the run is over without it.

    ``packed`` are the :data:`Data` that the driver has packed for this task, ``frame_rows`` the data from other places.

    Errors of the program or its input are sent to the driver, and the task ends without raising: a retry would not
    help. Errors of machines and networks are raised, so that the backend can start the task again.

    A process in which this has left threads behind (:func:`left_behind`) must not run another task.
    """
    try:
        with ExitStack() as leaving:
            return _host(assignment, number, attempt, packed, frame_rows or {}, leaving)
    except CalledOffError as called_off:
        if not called_off.over:
            raise
        return False


def _host(
    assignment: TaskAssignment, number: int, attempt: str, packed: bytes, frame_rows: Data, leaving: ExitStack
) -> bool:
    peers = _Peers()
    leaving.callback(peers.close)
    listener = Listener(assignment.bind, assignment.secret, peers.arrived)
    leaving.callback(listener.close)
    registration = Registration(number, attempt, listener.address, os.getpid(), socket.gethostname())
    client = DriverClient.join(
        assignment.rendezvous,
        assignment.secret,
        registration,
        within=assignment.patience,
        interval=assignment.interval,
    )
    leaving.callback(client.close)
    try:
        with _few_collections():
            report = _run(assignment, number, client, peers, packed, frame_rows, leaving)
        client.done(report)
    except (PeerLostError, HandshakeError):
        client.wait_for_message(LOST)  # a peer that failed has reported its error, which the driver passes on
        raise
    except (CalledOffError, GangError):
        raise
    except Exception as error:  # noqa: BLE001 -- the driver raises it
        client.fail(error)
        return False
    return True


def left_behind() -> list[str]:
    """Return the names of threads of earlier tasks that are blocked in user code."""
    return [thread.name for thread in threading.enumerate() if isinstance(thread, ReaderThread)]


@contextmanager
def _few_collections() -> Iterator[None]:
    """Collect garbage less often: events and rows by the hundred thousand have no cycles, and live briefly."""
    before = gc.get_threshold()
    gc.set_threshold(200_000, 10, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)


class _Peers:
    """Connections that other tasks have opened."""

    def __init__(self) -> None:
        self.channels: dict[tuple[int, int], Channel] = {}
        self.changed = threading.Condition()
        self.closed = False

    def arrived(self, hello: object, channel: Channel) -> None:
        """Add the connection of another task; ``hello`` is the generation of its gang and its number."""
        assert isinstance(hello, tuple)
        with self.changed:
            if self.closed:
                channel.close()
                return
            self.channels[hello] = channel
            self.changed.notify_all()

    def close(self) -> None:
        """Close all connections, and refuse new ones."""
        with self.changed:
            self.closed = True
            for channel in self.channels.values():
                channel.close()

    def expect(self, generation: int, task: int, client: DriverClient) -> Channel:
        """Wait for the connection of one task, and return it; raise what the driver reports if the task is lost.

        A task may take long to connect: it loads the user's modules first.
        """
        with self.changed:
            while (generation, task) not in self.channels:
                self.changed.wait(0.1)
                client.check()
            return self.channels[generation, task]


def _run(
    assignment: TaskAssignment,
    number: int,
    client: DriverClient,
    peers: _Peers,
    packed: bytes,
    frame_rows: Data,
    leaving: ExitStack,
) -> TaskReport:
    """Run the task and return its report; the cleanup for after the report is added to ``leaving``."""
    job: Job = pickling.loads(assignment.job)
    definition = define(job.program)
    data: Data = {**pickling.loads(packed), **frame_rows}
    channels: dict[int, Channel] = {}
    start = client.peer_table.start or job.start
    for peer in job.placement.peers(number):
        if peer < number:
            channels[peer] = connect(
                client.peer_table.addresses[peer],
                assignment.secret,
                (client.generation, number),
                within=assignment.patience,
                between=client.check,
            )
        else:
            channels[peer] = peers.expect(client.generation, peer, client)
        leaving.callback(channels[peer].close)
    for channel in channels.values():
        channel.unblock()
    task = Task(job, definition, number, client, channels, start)
    failing = leaving.enter_context(ExitStack())
    failing.callback(task.abandon)
    leaving.callback(task.leave, LEAVE)
    try:
        stats = task.run(list(_readers(job, definition, number, data, task)))
        manifest = task.close_outputs() if task.participant is None else task.participant.manifest
        if task.dead_letter_writer is not None:
            manifest = task.dead_letter_writer.added_to(manifest)
    except (MemoryError, OutOfMemoryError) as error:
        named = error if isinstance(error, OutOfMemoryError) else OutOfMemoryError(_innermost(error))
        detailed = named.of_task(number, peak_memory(), task.meter.largest_state)
        for note in getattr(error, "__notes__", ()):
            detailed.add_note(note)
        raise detailed from (error.__cause__ if isinstance(error, OutOfMemoryError) else error)
    failing.pop_all()
    final = job.final_state_policy.keep(task.packed()) if job.final_state_policy is not None and task.final else None
    return TaskReport(manifest, stats, final)


def _innermost(error: BaseException) -> str:
    """Return the function, file and line that raised an error."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.name}, at {location(frame.filename, frame.lineno or 0)}"


def _readers(job: Job, definition: Definition, number: int, data: Data, task: Task) -> Iterator[SourceReader]:
    started = task.start.began(task.client.peer_table.started)
    router = Router(job.plan, definition)
    for part, home in job.placement.parts.items():
        if home == number:
            rank = list(job.names).index(part[0])
            source = data[part[0]]
            stream = job.stream_descriptions[rank].bind(definition, source)
            read = partial(
                event_stream,
                stream,
                rank,
                part[1],
                job.names,
                started=lambda: started,
                chunk_rows=job.settings.chunk_rows,
                depends=definition.depends,
                after=task.start.after,
                on_bad_rows=None if task.dead_letter_writer is None else task.dead_letter_writer.put,
            )
            close = source.close if isinstance(source, Closing) else None
            yield SourceReader(part, read, router, job.settings.window, task.wake, close)
