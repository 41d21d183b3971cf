"""Deliberate bugs of inner workers, of the tree_root, of sources, and of what is worked out from the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from flumina.model.order import END, START, Point
from flumina.plan.tree import PlanWorker as Place
from flumina.program.definition import Definition, Join
from flumina.runtime import topology
from flumina.runtime import tree_root as tree_root_module
from flumina.runtime.child import Child
from flumina.runtime.inner import Inner
from flumina.runtime.key_progress import NOTHING
from flumina.runtime.mailbox import before
from flumina.runtime.messages import EVERYTHING, Cause, Data, ForkState, PartId, Request
from flumina.runtime.topology import ProtocolOptions
from flumina.runtime.worker import Worker
from flumina.sim.network import Delivery, PartSource
from flumina.sim.scheduler import Simulation
from flumina.state.compare import copied
from tests.sim.mutant import mutant

ADMIT, SERVE, SEND_FORK_STATE, COLLECT = Inner.admit, Inner.serve, Inner.send_fork_state, Child.collect
ADVANCE, SOURCE, GIVE_CREDIT, CONTRIBUTION = (
    PartSource.advance,
    Simulation._source,
    Worker.give_credit,
    topology._contribution,
)
ONE_AT_A_TIME = ProtocolOptions(pipeline=False, hand_over=False)
HANDING_OVER = ProtocolOptions()


# -- the sequence, and what the children are told --------------------------------------------------------------------


@mutant((Inner, "limit"), is_property=True)
def own_events_before_requests(self: Inner) -> Point:
    """An inner worker does not wait for its parent's requests before it takes its own events."""
    return self.known


@mutant((Inner, "known"), is_property=True)
def requests_before_own_events(self: Inner) -> Point:
    """An inner worker does not wait for its own parts."""
    return END


@mutant((Inner, "admit"), seed=33)
def requests_unordered(self: Inner) -> None:
    """Requests come after own events, whatever their points."""
    ADMIT(self)
    settled = [self.sequence[i] for i in range(self.announced)]
    new = [self.sequence[i] for i in range(self.announced, len(self.sequence))]
    self.sequence.clear()
    self.sequence.extend([*settled, *sorted(new, key=lambda entry: entry[1] is None)])


@mutant((Inner, "admit"))
def sequence_by_timestamp(self: Inner) -> None:
    """Ties are broken by timestamp only: a request can come before an own event that is before it."""
    ADMIT(self)
    settled = [self.sequence[i] for i in range(self.announced)]
    new = [self.sequence[i] for i in range(self.announced, len(self.sequence))]
    self.sequence.clear()
    self.sequence.extend([*settled, *sorted(new, key=lambda entry: (entry[0].point.ts, entry[1] is not None))])


@mutant((Inner, "send"), options=ONE_AT_A_TIME)
def frontier_past_unsent_requests(self: Inner, to: str, message: object) -> None:
    """Children are told of more than the requests that they were sent."""
    if isinstance(message, Request):
        message = replace(message, frontier=self.limit)
    self.effects.sends.append((to, message))  # type: ignore[arg-type]


@mutant((Inner, "send"), options=ONE_AT_A_TIME, seed=25)
def calm_past_unsent_snapshots(self: Inner, to: str, message: object) -> None:
    """Children are not told that a request for everything is held back."""
    if isinstance(message, Request):
        message = replace(message, snapshot_frontier=END)
    self.effects.sends.append((to, message))  # type: ignore[arg-type]


@mutant((Inner, "send"))
def frontier_never_sent(self: Inner, to: str, message: object) -> None:
    """Children are told of requests, but not how far they are complete."""
    if isinstance(message, Request) and message.frontier < END:
        message = replace(message, frontier=START)
    self.effects.sends.append((to, message))  # type: ignore[arg-type]


@mutant((Inner, "drop_first"), seed=33)
def announced_for_ever(self: Inner) -> None:
    """What is done still counts as announced, so that something later is never asked for."""
    self.sequence.popleft()


# -- joining, serving and handing back -------------------------------------------------------------------------------


def _is_settled(self: Inner, child: Child, for_requests: Cause | None = EVERYTHING) -> bool:
    """The rule as it is, for one child; to answer a request this must be settled (None: the request's cause)."""
    point = self.sequence[0][0].point
    causes = [item.cause if event is not None else for_requests or item.cause for item, event in self.first_group()]
    return point == self.served or all(child.settled.get(cause, START) >= point for cause in causes)


@mutant((Inner, "may_coalesce"))
def coalesces_always(self: Inner) -> bool:
    """An inner worker serves the next of its sequence while its children may have events before it."""
    return True


@mutant((Inner, "may_coalesce"))
def coalesces_what_one_child_allows(self: Inner) -> bool:
    """One child is settled, and the other is not asked."""
    return any(_is_settled(self, child) for child in self.children)


@mutant((Inner, "may_coalesce"), options=HANDING_OVER, seed=528)
def coalesces_with_hand_over(self: Inner) -> bool:
    """A child that goes on after its answer is not asked whether it is settled."""
    return all(_is_settled(self, child) for child in self.children if not child.shape.hands_over)


@mutant((Inner, "may_coalesce"), seed=None)
def answers_without_everything(self: Inner) -> bool:
    """Rule 6 without ``*``: a subtree's state is given away while an independent event of it could be processed."""
    return all(_is_settled(self, child, for_requests=None) for child in self.children)


@mutant((Inner, "may_coalesce"))
def ties_apart(self: Inner) -> bool:
    """Events at one point are served one by one, though the children drop all requests of that point together."""
    return False


@mutant((Inner, "serve"))
def stale_fork_state(self: Inner) -> None:
    """What is forked is the state from before the event that was served."""
    event, old = self.sequence[0][1], copied(self.state)
    SERVE(self)
    if event is not None:
        self.state = old


@mutant((Inner, "send_fork_state"))
def hands_back_to_one_child(self: Inner) -> None:
    """The right child never gets its state back."""
    SEND_FORK_STATE(self)
    states = [i for i, (_, message) in enumerate(self.effects.sends) if isinstance(message, ForkState)]
    if self.served > START:
        del self.effects.sends[states[-1]]


@mutant((Inner, "send_fork_state"), seed=33)
def hands_back_the_wrong_halves(self: Inner) -> None:
    """Each child gets what is for the other."""
    SEND_FORK_STATE(self)
    sends = self.effects.sends
    places = [n for n, (_, message) in enumerate(sends) if isinstance(message, ForkState)]
    if len(places) == len(self.children):
        (one, to_one), (other, to_other) = (sends[n] for n in places)
        sends[places[0]], sends[places[1]] = (one, to_other), (other, to_one)


@mutant((Inner, "send_fork_state"))
def served_too_much(self: Inner) -> None:
    """Children are told that the next request is settled too."""
    if self.sequence and self.served > START:
        self.served = self.sequence[0][0].point
    SEND_FORK_STATE(self)


@mutant((Inner, "on_fork_state"), seed=33)
def inner_without_served(self: Inner, message: ForkState) -> None:
    """An inner worker keeps requests that were settled without it, and answers them."""
    self.away, self.state = False, message.state
    self.served = max(self.served, message.served)


@mutant((Inner, "send_fork_state"), options=HANDING_OVER, seed=957)
def keeps_nothing_for_the_child(self: Inner) -> None:
    """What the fork gives to a child that hands over is lost."""
    started = [child.shape.hands_over and child.started for child in self.children]
    SEND_FORK_STATE(self)
    for child, kept in zip(self.children, started, strict=True):
        if kept:
            child.state = NOTHING


@mutant((Inner, "settled"), seed=33)
def settled_ignores_the_children(self: Inner) -> dict[Cause, Point]:
    """An inner worker speaks for itself only."""
    points = [item.point for item, event in self.sequence if event is not None]
    points += [queue.first for queue in self.queues.values() if queue.first is not None]
    own = min([self.known, *(before(point) for point in points)])
    return dict.fromkeys(self.shape.causes, own)


@mutant((Inner, "settled"), seed=165)
def settled_ignores_own_events(self: Inner) -> dict[Cause, Point]:
    """An inner worker speaks for its children only."""
    return {c: min(child.settled.get(c, START) for child in self.children) for c in self.shape.causes}


@mutant((Child, "collect"), options=HANDING_OVER, seed=957)
def contribution_too_early(self: Child, point: Point) -> bool:
    """What a child has added up to a later point is joined before the earlier event is served."""
    return COLLECT(self, point if self.shape.contribution is None else END) or self.answered >= point


@mutant((Inner, "on_stop"))
def stop_is_not_passed_on(self: Inner) -> None:
    """The last join may have been coalesced, so that leaves wait for a state that never comes."""


# -- the tree_root, sources, and what follows from the plan ----------------------------------------------------------


@mutant((tree_root_module, "copied"), seed=33)
def snapshot_of_a_live_state(state: object) -> object:
    """A snapshot shares its state with the run, which goes on to change it."""
    return state


@mutant((PartSource, "advance"), seed=132)
def frontier_with_events_only(self: PartSource, delivery: Delivery) -> list[tuple[str, Data]]:
    """A worker for which a batch holds nothing is not told the frontier."""
    return [(to, data) for to, data in ADVANCE(self, delivery) if data.run or data.frontier == END]


@mutant((PartSource, "advance"))
def frontier_ahead_of_events(self: PartSource, delivery: Delivery) -> list[tuple[str, Data]]:
    """A source promises the point of the next event, which it has not sent."""
    sends = ADVANCE(self, delivery)
    if self.next < len(self.entries):
        self.frontier = self.entries[self.next][0]
    return [(to, replace(data, frontier=self.frontier)) for to, data in sends]


@mutant((Simulation, "_source"), seed=66)
def shared_credits(self: Simulation, part: PartId) -> PartSource:
    """The parts share the credits of a worker, so that one uses up those that another needs to go on."""
    source = SOURCE(self, part)
    pool = self.__dict__.setdefault("pool", {})
    for receiver, number in source.credits.items():
        pool.setdefault(receiver, number)
    source.credits = pool
    return source


@mutant((Worker, "give_credit"))
def a_credit_is_lost(self: Worker, taken: Mapping[PartId, int]) -> None:
    """Of a run of several events one less is given back."""
    GIVE_CREDIT(self, {part: max(1, events - 1) for part, events in taken.items()})


@mutant((topology, "_contribution"), options=HANDING_OVER, seed=33)
def hands_over_what_reads(definition: Definition, options: ProtocolOptions, worker: Place) -> Join | None:
    """A leaf hands over though its tags read the state."""
    return CONTRIBUTION(replace(definition, adding=frozenset(definition.tags)), options, worker)
