"""Run one task: host some of a plan's workers, and read some of its parts.

A single thread handles messages of other tasks, batches of parts (read ahead by :mod:`flumina.engine.source_reader`),
and messages of the driver; it never waits for one of these alone. Messages for the same task are sent together.
"""

from __future__ import annotations

import pickle
import selectors
import socket
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from flumina.checkpoint.coordinator import Control, Tally
from flumina.checkpoint.participant import CheckpointParticipant, TaskCheckpoint, TaskControl
from flumina.checkpoint.resume_point import Start
from flumina.engine.job import Job, TaskStats
from flumina.engine.message_codec import Codec, EncodedMessage
from flumina.engine.meter import TaskMeter
from flumina.engine.progress import TaskProgress
from flumina.engine.source_reader import SourceReader
from flumina.engine.transport.channel import Channel
from flumina.engine.transport.client import DriverClient
from flumina.errors import FluminaError, PeerLostError
from flumina.output.dead_letter_writer import DeadLetterWriter
from flumina.output.staged_outputs import Manifest
from flumina.output.writer import OutputWriter
from flumina.plan.forest import Forest
from flumina.program.definition import Definition, initial_state
from flumina.runtime.build import workers as build
from flumina.runtime.messages import Credit, PartId
from flumina.runtime.stats import WorkerStats
from flumina.runtime.topology import TREE_ROOT
from flumina.runtime.tree_root import TreeRoot
from flumina.runtime.worker import Address, Effects, Worker

BYE = b"bye"
"""The last frame that a task sends to another."""

CONTROL = b"control"
"""The first of the two buffers of a frame with a control message for the task itself."""

REPORT_EVERY = 1.0
_SLEEP = 0.5


class Task(TaskControl):
    """The loop of one task."""

    def __init__(
        self,
        job: Job,
        definition: Definition,
        number: int,
        client: DriverClient,
        channels: Mapping[int, Channel],
        start: Start,
    ) -> None:
        self.job, self.definition, self.number, self.client = job, definition, number, client
        self.placement = job.placement
        self.attempt = f"{job.term}.{client.generation}-{number}"
        """Unique among the attempts of this task."""
        self.codec = Codec(definition, job.names)
        self.channels = dict(channels)
        self.workers: dict[str, Worker] = {}
        self.past: dict[str, WorkerStats] = {}
        """Statistics of the workers in earlier epochs."""
        self.past_syncs = 0
        """Number of synchronizing events in earlier epochs, where they are counted."""
        self.start = start
        self.participant = self._participant()
        self.sink = self._sink(0)
        self.dead_letter_writer = DeadLetterWriter(job.outputs, number, self.attempt) if job.outputs.aside else None
        self.mine = frozenset(name for name, home in self.placement.workers.items() if home == number)
        self._build(self._first())
        self.readers: dict[PartId, SourceReader] = {}
        self.inbox: deque[EncodedMessage] = deque()
        self.outgoing: dict[int, list[EncodedMessage]] = {peer: [] for peer in channels}
        self.unsent: set[int] = set()
        """Peers whose sockets have not taken all bytes yet."""
        self.gone: set[int] = set()
        """Peers that have sent :data:`BYE`."""
        self.selector = selectors.DefaultSelector()
        self.wake_receiver, self.wake_sender = socket.socketpair()
        self.asleep = False
        self.rows = 0
        """Rows of outputs in earlier epochs."""
        self.meter = TaskMeter()
        self.next_report = 0.0

    def _participant(self) -> CheckpointParticipant | None:
        if self.job.snapshots is None:
            return None
        return CheckpointParticipant(
            self,
            self.job.snapshots,
            number=self.number,
            coordinator_task=self.placement.workers[self.job.plan.root.id],
            tasks=self.placement.tasks,
            peers=self.channels,
            first=self.start.number,
        )

    def _first(self) -> dict[str, Any]:
        """Return the initial states of the trees whose roots are here."""
        forest = Forest.of(self.job.plan.root)
        trees = [tree.id for tree in forest.trees if tree.id in self.mine]
        if self.start.state is not None:
            return self.start.state.under(forest, trees, self.definition, self.codec) if trees else {}
        states = forest.divide(self.definition, initial_state(self.definition))
        return {tree: states[tree] for tree in trees}

    def _build(self, states: Mapping[str, Any]) -> None:
        self.workers = build(self.job.plan, self.definition, self.job.settings.protocol, only=self.mine)
        self.tree_root = TreeRoot(states, ends=self.job.snapshots is None)

    def _sink(self, epoch: int) -> OutputWriter:
        return OutputWriter(self.job.outputs, self.number, f"{self.attempt}-{epoch}")

    # -- from the outside -------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Wake the loop; called by the threads that read parts."""
        if self.asleep:
            self.asleep = False
            with suppress(OSError):  # closed: the run is over, and this reader ended late
                self.wake_sender.send(b"!")

    def run(self, readers: Iterable[SourceReader]) -> TaskStats:
        """Run the loop until every worker here has stopped and every part has been read; return statistics."""
        self.readers = {reader.part: reader for reader in readers}
        self.wake_receiver.settimeout(0)
        self.selector.register(self.wake_receiver, selectors.EVENT_READ, self.drain_wakes)
        self.selector.register(self.client, selectors.EVENT_READ, self.client.check)
        for peer, channel in self.channels.items():
            self.selector.register(channel, selectors.EVENT_READ, peer)
        self.meter.start()
        try:
            for reader in self.readers.values():
                reader.start()
            self.open()
            while not self.over():
                self.turn()
            self.meter.stop()
            self.disconnect()
        finally:
            for reader in self.readers.values():  # all are stopped before any is joined: one may block another
                reader.stop()
            self.selector.close()
            self.wake_receiver.close()
            self.wake_sender.close()
        read, dead = (
            sum(reader.sent for reader in self.readers.values()),
            0 if self.dead_letter_writer is None else self.dead_letter_writer.rows,
        )
        return self.meter.stats(self.totals(), read=read, rows=self.rows + self.sink.rows, dead_letters=dead)

    def leave(self, seconds: float) -> None:
        """Wait for the readers to end, for a limited time in all; readers blocked in user code are left behind."""
        deadline = time.monotonic() + seconds
        for reader in self.readers.values():
            reader.join(deadline - time.monotonic())

    def abandon(self) -> None:
        """Delete the staged files."""
        self.sink.abandon()
        if self.dead_letter_writer is not None:
            self.dead_letter_writer.abandon()

    def open(self) -> None:
        """Start the trees whose roots are here."""
        self.perform(TREE_ROOT, self.tree_root.begin())
        self.send_posted()

    # -- for the checkpoint participant: see TaskControl ---------------------------------------------------

    def tally(self) -> Tally:
        events = sum(s.events for s in self.past.values()) + sum(w.counting.events for w in self.workers.values())
        return Tally(events, self.past_syncs + sum(w.counted for w in self.workers.values()))

    def sources_ended(self) -> bool:
        return all(reader.ended for reader in self.readers.values())

    def sources_exhausted(self, ts: int | None) -> bool:
        readers = self.readers.values()
        return all(f.over and (ts is None or f.highest is None or f.highest <= ts) for f in readers)

    def pause(self) -> int | None:
        for reader in self.readers.values():
            reader.paused = True
        return max((w.passed for w in self.workers.values() if w.passed is not None), default=None)

    def truncate(self, ts: int | None) -> list[EncodedMessage]:
        truncated_messages: list[EncodedMessage] = []
        for reader in self.readers.values():
            reader.paused, reader.limit = False, ts
        if ts is not None:
            for name, worker in self.workers.items():
                effects, found = worker.truncate(ts)
                truncated_messages += [(name, data.part, data) for data in found]
                self.perform(name, effects)
        return truncated_messages

    def drain(self) -> None:
        self.perform(TREE_ROOT, self.tree_root.end())

    def close_outputs(self) -> Manifest:
        return self.sink.close()

    def restart(self, epoch: int) -> None:
        self.rows += self.sink.rows
        self.past_syncs, self.past = self.tally().syncs, self.totals()
        final = self.final
        self.sink = self._sink(epoch)
        self._build(final)
        for reader in self.readers.values():
            reader.reopen()
        self.open()

    def requeue(self, messages: Iterable[EncodedMessage]) -> None:
        self.inbox.extend(messages)

    def decode(self, frame: Any) -> Iterable[EncodedMessage]:  # noqa: ANN401 -- what channels carry
        return self.codec.decode(frame)

    def send_checkpoint(self, saved: TaskCheckpoint) -> None:
        self.client.save(saved)

    # -- the loop ---------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Deliver all messages, then send a batch or wait."""
        while self.inbox and not (self.participant is not None and self.participant.paused):
            self.deliver(*self.inbox.popleft())
            self.send_posted()  # first: a leaf here may fold for long while a peer waits for its state
        if self.any_ready():
            if not self.poll(0):  # messages first: a parent may wait for the response
                self.pump()
        elif not self.over() and not (self.inbox and self.participant is not None and not self.participant.paused):
            self.idle()

    def over(self) -> bool:
        """Tell whether the run is over for this task; with checkpoints, this may begin the next epoch."""
        return self.finished() and (self.participant is None or self.participant.advance())

    def finished(self) -> bool:
        """Tell whether this task has processed the current epoch."""
        return (
            not self.inbox
            and all(worker.stopped for worker in self.workers.values())
            and self.sources_ended()
            and self.tree_root.finished
        )

    def idle(self) -> None:
        """Poll for messages for a moment, then sleep; count the time as waiting of the stalled workers."""
        began = time.perf_counter()
        # While readers are busy, polling would take processor time from them.
        spin = self.job.settings.spin if all(reader.rests for reader in self.readers.values()) else 0.0
        spin_until = began + spin
        found = False
        while not found and time.perf_counter() < spin_until:
            found = self.poll(0) or self.any_ready()
        if not found:
            self.asleep = True
            if not self.any_ready():
                self.poll(_SLEEP)
            self.asleep = False
        now = time.perf_counter()
        self.meter.idle += now - began
        for worker in self.workers.values():
            stall = worker.stall()
            if stall is not None:
                worker.counting.waited[stall.wait] += now - began
        self.report(now)
        if self.participant is not None:
            self.participant.report_progress(time.monotonic())

    def any_ready(self) -> bool:
        """Tell whether a source reader has a batch to send."""
        return any(reader.ready() for reader in self.readers.values())

    def pump(self) -> bool:
        """Send the next batch of the part that lags behind most; return False if no part has one."""
        ready = [reader for reader in self.readers.values() if reader.ready()]
        if not ready:
            return False
        reader = min(ready, key=lambda reader: reader.frontier)
        for receiver, data in reader.take():
            self.post(receiver, reader.part, data)
        self.send_posted()
        now = time.perf_counter()
        if now >= self.next_report:
            self.report(now)
        if self.participant is not None:
            self.participant.report_progress(time.monotonic())
        return True

    def poll(self, timeout: float) -> bool:
        """Handle the sockets that are ready; return whether a message or a wake-up was received."""
        found = False
        for key, events in self.selector.select(timeout):
            if callable(key.data):
                key.data()
                found = found or key.data == self.drain_wakes
                continue
            if events & selectors.EVENT_WRITE:
                self.flush(key.data)
            if events & selectors.EVENT_READ:
                found = self.receive(key.data) or found
        return found

    def receive(self, peer: int) -> bool:
        """Receive the frames of another task; return whether there were any."""
        try:
            frames = self.channels[peer].take()
        except PeerLostError:
            if peer in self.gone:
                self.selector.unregister(self.channels[peer])
                return False
            raise
        for frame in frames:
            if bytes(frame[0][: len(BYE)]) == BYE and len(frame) == 1 and len(frame[0]) == len(BYE):
                self.gone.add(peer)
            elif len(frame) == 2 and bytes(frame[0][: len(CONTROL)]) == CONTROL:
                assert self.participant is not None
                self.participant.handle(peer, pickle.loads(frame[1]))  # noqa: S301 -- from a task that knows the secret
            else:
                decode = self.decode(frame) if self.participant is None else self.participant.decode_frame(peer, frame)
                self.inbox.extend(decode)
        return bool(frames)

    def drain_wakes(self) -> None:
        """Read the bytes that woke the loop."""
        with suppress(BlockingIOError):
            self.wake_receiver.recv(64)

    # -- messages ---------------------------------------------------------------------------------------------

    def post(self, to: Address, sender: Address, message: Any) -> None:  # noqa: ANN401 -- any message
        """Queue a message for a worker, tree root or source, here or in another task."""
        home = self.number if to == TREE_ROOT else self.placement.home(to)
        if home == self.number:
            self.inbox.append((to, sender, message))
        else:
            self.outgoing[home].append((to, sender, message))

    def deliver(self, to: Address, sender: Address, message: Any) -> None:  # noqa: ANN401
        """Deliver a message to its receiver in this task."""
        if isinstance(message, Credit):
            assert isinstance(sender, str)
            self.readers[message.part].credit(sender, message.events)
        elif to == TREE_ROOT:
            self.perform(TREE_ROOT, self.tree_root.handle(sender, message))
        else:
            assert isinstance(to, str)
            if self.participant is not None:
                message = self.participant.truncate_message(to, message)
            try:
                effects = self.workers[to].handle(sender, message)
            except FluminaError as error:
                error.add_note(f"in worker {to}, task {self.number}")
                raise
            self.perform(to, effects)

    def perform(self, sender: Address, effects: Effects) -> None:
        """Write the outputs and send the messages of a worker."""
        if effects.outputs:
            if self.job.paced:
                self.meter.time_outputs(effects.outputs, self.start.began(self.client.peer_table.started))
            self.sink.write(effects.outputs)
        for to, message in effects.sends:
            self.post(to, sender, message)

    def send_posted(self) -> None:
        """Encode the queued messages for other tasks, and send them."""
        for peer, messages in self.outgoing.items():
            if messages:
                sizes: dict[str, int] = {}
                buffers = self.codec.encode(messages, sizes)
                for sender, size in sizes.items():
                    if sender in self.workers:
                        self.workers[sender].counting.state_bytes += size
                self.meter.sent(len(messages), sum(map(len, buffers)), sizes.values())
                self.outgoing[peer] = []
                self.put(peer, buffers)

    def control(self, peer: int, message: Control) -> None:
        self.send_posted()
        self.put(peer, [CONTROL, pickle.dumps(message)])

    def put(self, peer: int, buffers: list[Any]) -> None:
        """Send a frame, now or when the socket takes it."""
        channel = self.channels[peer]
        channel.put(buffers)
        if channel.pending and peer not in self.unsent:
            self.unsent.add(peer)
            self.selector.modify(channel, selectors.EVENT_READ | selectors.EVENT_WRITE, peer)

    def flush(self, peer: int) -> None:
        """Send more bytes to a peer whose socket is writable."""
        if self.channels[peer].flush():
            self.unsent.discard(peer)
            self.selector.modify(self.channels[peer], selectors.EVENT_READ, peer)

    def disconnect(self) -> None:
        """Send :data:`BYE` to all peers and wait for theirs, so that no message in flight is lost."""
        self.send_posted()
        for peer in self.channels:
            self.put(peer, [BYE])
        while self.unsent or len(self.gone) < len(self.channels):
            self.poll(_SLEEP)
            self.inbox.clear()

    # -- reports ----------------------------------------------------------------------------------------------

    def report(self, now: float) -> None:
        """Report the progress of this task to the driver, at most once a second."""
        if now < self.next_report:
            return
        self.next_report = now + REPORT_EVERY
        stats = self.totals()
        stall = next((s for w in self.workers.values() if (s := w.stall()) is not None), None)
        self.client.report(
            TaskProgress(
                events=sum(s.events for s in stats.values()),
                joins=sum(s.joins for s in stats.values()),
                read=sum(reader.sent for reader in self.readers.values()),
                frontier=min((reader.frontier for reader in self.readers.values()), default=None),
                stall=None if stall is None else str(stall),
            )
        )

    @property
    def final(self) -> dict[str, Any]:
        """The final states of the trees whose roots are here, where they are requested."""
        return self.tree_root.final

    def packed(self) -> dict[str, bytes]:
        return {tree: self.codec.pack(state) for tree, state in self.final.items()}

    def totals(self) -> dict[str, WorkerStats]:
        """Return the statistics of the workers here, over all epochs; workers above the trees have zeros."""
        now = {name: worker.stats for name, worker in self.workers.items()}
        nothing = WorkerStats()
        return {name: self.past.get(name, nothing) + now.get(name, nothing) for name in sorted(self.mine)}
