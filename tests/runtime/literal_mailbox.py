"""The paper's mailbox and worker (section 3.4), taken literally: what goes wrong with them is kept as a test.

A mailbox has a buffer and a timer for each implementation tag. An event, or a join request with the tag of the event
that wants it, is released when the timers of all tags it depends on are past it and no earlier event that it depends on
waits. A worker takes what its mailbox releases one by one; an inner worker joins its children, updates and forks for
each, and takes nothing else in between.

Of heartbeats the paper says that they are "broadcast to all the worker processes that are descendants of the worker
that is responsible for the tag". ``overtaking`` takes that by the word: a heartbeat reaches the descendants by itself.
Without it, a heartbeat goes down after the join requests before it, as it must if it is to promise anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Log = tuple[str, ...]
"""The state of the literal system: the events that are in it, so that a test sees what was left out."""


class Happening(NamedTuple):
    """An event or, with ``beat``, a heartbeat; on its way to a child, the join request for such an event."""

    ts: int
    tag: str
    beat: bool = False

    def __str__(self) -> str:
        return f"{self.tag}@{self.ts}"


@dataclass
class Mailbox:
    """Buffers and timers; ``depends`` are the pairs of dependent tags."""

    depends: frozenset[frozenset[str]]
    tags: Sequence[str]
    buffers: dict[str, deque[Happening]] = field(default_factory=dict)
    timers: dict[str, int] = field(default_factory=dict)
    released: deque[Happening] = field(default_factory=deque)

    def put(self, happening: Happening) -> None:
        """Insert, move the timer, and release in cascade what has become free."""
        if not happening.beat:
            self.buffers.setdefault(happening.tag, deque()).append(happening)
        self.timers[happening.tag] = happening.ts
        work = [tag for tag in self.tags if tag == happening.tag or self.dependent(tag, happening.tag)]
        while work:
            tag = work.pop()
            buffer = self.buffers.get(tag)
            while buffer and self.free(buffer[0]):
                self.released.append(buffer.popleft())
                work += [other for other in self.tags if self.dependent(other, tag)]

    def dependent(self, one: str, other: str) -> bool:
        """Whether two tags depend on each other."""
        return frozenset((one, other)) in self.depends

    def free(self, first: Happening) -> bool:
        """The two conditions of the paper."""
        near = [tag for tag in self.tags if tag != first.tag and self.dependent(tag, first.tag)]
        seen = all(self.timers.get(tag, -1) > first.ts for tag in near)
        return seen and all(not self.buffers.get(tag) or self.buffers[tag][0].ts > first.ts for tag in near)


@dataclass
class LiteralWorker:
    """A worker with its mailbox; ``tags`` are its own, ``above`` those of its ancestors."""

    name: str
    tags: Sequence[str]
    children: Sequence[LiteralWorker]
    mailbox: Mailbox
    state: Log | None = ()
    parent: LiteralWorker | None = None
    joining: Happening | None = None
    answers: dict[str, Log] = field(default_factory=dict)
    seen: dict[str, Log] = field(default_factory=dict)
    """For each own event what the state held when it was processed."""
    given: dict[str, Log] = field(default_factory=dict)
    """For each join request what this worker answered with."""

    def work(self) -> None:
        """Take what the mailbox has released, until something has to be waited for."""
        while self.mailbox.released and self.joining is None and (self.children or self.state is not None):
            happening = self.mailbox.released.popleft()
            if self.children:
                self.joining = happening
                for child in self.children:
                    child.mailbox.put(happening)
                    child.work()
                return
            if happening.tag in self.tags:
                self.update(happening)
            else:
                assert self.parent is not None
                state, self.state = self.state, None
                assert state is not None
                self.given[str(happening)] = state
                self.parent.answer(self, state)

    def update(self, happening: Happening) -> None:
        """Process an event of this worker."""
        assert self.state is not None
        self.seen[str(happening)] = self.state
        self.state = (*self.state, str(happening))

    def answer(self, child: LiteralWorker, state: Log) -> None:
        """A child gives its state; with both, join, update, and fork (the left child keeps the log)."""
        self.answers[child.name] = state
        if len(self.answers) < len(self.children) or self.joining is None:
            return
        left, right = (self.answers.pop(each.name) for each in self.children)
        self.state, happening, self.joining = (*left, *right), self.joining, None
        self.update(happening)
        for child_, half in zip(self.children, (self.state, ()), strict=True):
            child_.state = half
        for child_ in self.children:
            child_.work()
        self.work()


class LiteralSystem:
    """A root with two leaves; ``send`` is one step of a schedule."""

    def __init__(
        self, own: Sequence[str], leaves: Mapping[str, Sequence[str]], depends: Sequence[str], *, overtaking: bool
    ) -> None:
        pairs = frozenset(frozenset(pair) for pair in depends)
        made = [LiteralWorker(name, tags, (), Mailbox(pairs, [*tags, *own])) for name, tags in leaves.items()]
        self.root = LiteralWorker("root", own, made, Mailbox(pairs, own))
        self.leaves = {worker.name: worker for worker in made}
        for worker in made:
            worker.parent = self.root
        self.overtaking = overtaking
        self.waiting_beats: deque[Happening] = deque()

    def send(self, tag: str, ts: int, *, beat: bool = False) -> None:
        """A source sends an event or a heartbeat, and everything that follows from it happens."""
        happening = Happening(ts, tag, beat)
        worker = next((w for w in self.leaves.values() if tag in w.tags), self.root)
        worker.mailbox.put(happening)
        if worker is self.root and beat:
            self.waiting_beats.append(happening)
        worker.work()
        self.pass_heartbeats_down()

    def pass_heartbeats_down(self) -> None:
        """Heartbeats of the root's tags reach the leaves: at once, or when the root has done what lies before them."""
        while self.waiting_beats and (self.overtaking or not self.outstanding(self.waiting_beats[0])):
            beat = self.waiting_beats.popleft()
            for leaf in self.leaves.values():
                leaf.mailbox.put(beat)
                leaf.work()

    def outstanding(self, beat: Happening) -> bool:
        """Whether the root has still to ask for something that lies before a heartbeat."""
        mailbox = self.root.mailbox
        waiting = [*mailbox.released, *(h for buffer in mailbox.buffers.values() for h in buffer)]
        return any(happening.tag == beat.tag and happening.ts <= beat.ts for happening in waiting)

    @property
    def stuck(self) -> bool:
        """Whether the root waits for a state that no leaf will ever give: all is sent, and nothing moves."""
        return self.root.joining is not None
