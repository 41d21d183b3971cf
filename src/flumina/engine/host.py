"""What a process does that is given a task: find the others, run the task's loop, and tell how it went."""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from flumina.definition import Definition
from flumina.engine import pickling
from flumina.engine.arrivals import arrivals
from flumina.engine.feed import Feed
from flumina.engine.job import Job, TaskReport
from flumina.engine.member import Member, Registration
from flumina.engine.task import Task
from flumina.engine.transport import Address, Channel, Listener, Secret, connect
from flumina.errors import CalledOffError, GangError, HandshakeError, PeerLostError
from flumina.plan.routing import Router
from flumina.program import define

Data = Mapping[str, object]
"""For each stream of which a task reads parts: where to read them."""


LOST = 5.0
"""Seconds for the driver to say what has become of a peer that is gone."""


@dataclass(frozen=True)
class Invitation:
    """Where a task reports, and what it takes to be let in; it reaches the task on a way that nobody else can read."""

    job: bytes
    rendezvous: Address
    secret: Secret
    bind: str
    patience: float


def host(invitation: Invitation, number: int, attempt: str, packed: bytes, brought: Data | None = None) -> bool:
    """Run one task; False if the run is over without it.

    ``packed`` are the :data:`Data` that the driver has packed for this task, ``brought`` those that it has otherwise.

    What is wrong with the program or its input goes to the driver, and the task ends quietly: trying again would not
    help. What is wrong with the machines is raised, so that whoever started the task can start it again.
    """
    peers = _Peers()
    listener = Listener(invitation.bind, invitation.secret, peers.arrived)
    member = None
    try:
        registration = Registration(number, attempt, listener.address, os.getpid(), socket.gethostname())
        member = Member.join(invitation.rendezvous, invitation.secret, registration, within=invitation.patience)
        try:
            with _few_collections():
                report = _run(invitation, number, member, peers, packed, brought or {})
            member.done(report)
        except (PeerLostError, HandshakeError):
            member.await_word(LOST)  # a peer that has failed has told the driver, who tells why
            raise
        except (CalledOffError, GangError):
            raise
        except Exception as error:  # noqa: BLE001 -- the driver tells the user
            member.fail(error)
            return False
    except CalledOffError as called_off:
        if not called_off.over:
            raise
        return False
    finally:
        listener.close()
        peers.close()
        if member is not None:
            member.close()
    return True


@contextmanager
def _few_collections() -> Iterator[None]:
    """Have Python look for cycles less often: events and rows by the hundred thousand have none, and live briefly."""
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
        """Another task has been let in; it says in which generation of the gang it is, and which task."""
        assert isinstance(hello, tuple)
        with self.changed:
            if self.closed:
                channel.close()
                return
            self.channels[hello] = channel
            self.changed.notify_all()

    def close(self) -> None:
        """Close what is left."""
        with self.changed:
            self.closed = True
            for channel in self.channels.values():
                channel.close()

    def expect(self, generation: int, task: int, deadline: float, member: Member) -> Channel:
        """The connection of one task, once it has come."""
        with self.changed:
            while (generation, task) not in self.channels:
                if time.monotonic() > deadline:
                    raise PeerLostError("PEER_LOST", f"task {task} did not connect")
                self.changed.wait(0.1)
                member.check()
            return self.channels[generation, task]


def _run(
    invitation: Invitation, number: int, member: Member, peers: _Peers, packed: bytes, brought: Data
) -> TaskReport:
    job: Job = pickling.loads(invitation.job)
    definition = define(job.program)
    data: Data = {**pickling.loads(packed), **brought}
    deadline = time.monotonic() + invitation.patience
    channels: dict[int, Channel] = {}
    start = member.roster.start or job.start
    task: Task | None = None
    try:
        for peer in job.layout.peers(number):
            if peer < number:
                hello = (member.generation, number)
                left = max(0.1, deadline - time.monotonic())
                channels[peer] = connect(member.roster.addresses[peer], invitation.secret, hello, within=left)
            else:
                channels[peer] = peers.expect(member.generation, peer, deadline, member)
        for channel in channels.values():
            channel.unblock()
        task = Task(job, definition, number, member, channels, start)
        stats = task.run(list(_feeds(job, definition, number, data, task)))
        manifest = task.sink.close() if task.follower is None else task.follower.manifest
        if task.box is not None:
            manifest = task.box.added_to(manifest)
    except BaseException:
        if task is not None:
            task.sink.abandon()
            if task.box is not None:
                task.box.abandon()
        raise
    finally:
        for channel in channels.values():
            channel.close()
    final = job.ending.keep(task.packed()) if job.ending is not None and task.final else None
    return TaskReport(manifest, stats, final)


def _feeds(job: Job, definition: Definition, number: int, data: Data, task: Task) -> Iterator[Feed]:
    started = task.start.began(task.member.roster.started)
    router = Router(job.plan, definition)
    for part, home in job.layout.parts.items():
        if home == number:
            rank = list(job.names).index(part[0])
            stream = job.cards[rank].bind(definition, data[part[0]])
            read = partial(
                arrivals,
                stream,
                rank,
                part[1],
                job.names,
                started=lambda: started,
                chunk_rows=job.settings.chunk_rows,
                depends=definition.depends,
                after=task.start.after,
                aside=None if task.box is None else task.box.put,
            )
            yield Feed(part, read, router, job.settings.window, task.wake)
