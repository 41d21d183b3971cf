"""Deliberate bugs of leaves and of what waits in them."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import merge

from flumina.model.order import END, Point
from flumina.runtime import leaf
from flumina.runtime.key_progress import NOTHING
from flumina.runtime.leaf import Leaf
from flumina.runtime.mailbox import Component, Queue, before
from flumina.runtime.messages import Cause, ForkState, Item, PartId, Response
from flumina.runtime.run import EMPTY, Run, merged
from flumina.runtime.topology import ProtocolOptions
from flumina.state.compare import copied
from tests.sim.mutant import mutant

# -- leaves: what they process, and when they answer ---------------------------------------------------------------


@mutant((Leaf, "bound"), seed=33)
def no_parent_frontier(self: Leaf, component: Component) -> Point:
    """A leaf goes on before it knows that no request is on its way."""
    return min([self.snapshot_frontier, *component.stops])


@mutant((Leaf, "bound"), seed=33)
def past_the_request(self: Leaf, component: Component) -> Point:
    """A leaf goes on past the first request that waits, up to the last."""
    bound = self.snapshot_frontier if component.shape.free else min(self.snapshot_frontier, self.parent_frontier)
    return min(bound, component.stops[-1]) if component.stops else bound


@mutant((Leaf, "bound"))
def stops_before_the_point(self: Leaf, component: Component) -> Point:
    """A leaf does not process the independent event at the very point of a request, and so never answers."""
    bound = self.snapshot_frontier if component.shape.free else min(self.snapshot_frontier, self.parent_frontier)
    return min(bound, before(component.stops[0])) if component.stops else bound


@mutant((Leaf, "bound"), seed=306)
def calm_ignored(self: Leaf, component: Component) -> Point:
    """A component on which no ancestor's tag depends runs past a snapshot that is still to come."""
    bound = END if component.shape.free else self.parent_frontier
    return min(bound, component.stops[0]) if component.stops else bound


@mutant((Leaf, "caught_up"), seed=429)
def answers_at_once(self: Leaf, point: Point) -> bool:
    """A leaf gives its state before everything up to the point has come."""
    return True


@mutant((Leaf, "caught_up"), seed=429)
def answers_from_the_buffer(self: Leaf, point: Point) -> bool:
    """A leaf answers when nothing waits in its buffers, whatever is still to come."""
    return all(component.first is None or component.first > point for component in self.components)


@mutant((Leaf, "caught_up"), seed=180)
def answers_for_dependent_itags(self: Leaf, point: Point) -> bool:
    """Rule 4 for the dependent itags only: then a leaf waits for its state while it has events to process."""
    cause = self.requests[0].cause
    return all(c.settled >= point for c in self.components if cause in c.shape.causes)


@mutant((Leaf, "caught_up"), seed=660)
def end_before_all_parts_ended(self: Leaf, point: Point) -> bool:
    """The end is answered when the first part has ended."""
    if point < END:
        return all(component.settled >= point for component in self.components)
    return any(component.settled >= point for component in self.components)


@mutant((Leaf, "settled"), seed=825)
def settled_from_buffer_heads(self: Leaf) -> dict[Cause, Point]:
    """``settled`` looks at the events that wait, and forgets those that are still to come."""
    bounds = [(c.shape.causes, END if c.first is None else before(c.first)) for c in self.components]
    return {cause: min((b for causes, b in bounds if cause in causes), default=END) for cause in self.shape.causes}


@mutant((Leaf, "settled"))
def settled_from_frontiers(self: Leaf) -> dict[Cause, Point]:
    """``settled`` looks at the frontiers, and forgets the events that wait."""
    bounds = [(c.shape.causes, c.frontier) for c in self.components]
    return {cause: min((b for causes, b in bounds if cause in causes), default=END) for cause in self.shape.causes}


@mutant((Leaf, "settled"))
def settled_of_one_component(self: Leaf) -> dict[Cause, Point]:
    """``settled`` is the greatest bound of the components instead of the least."""
    bounds = [(c.shape.causes, c.settled) for c in self.components]
    return {cause: max((b for causes, b in bounds if cause in causes), default=END) for cause in self.shape.causes}


@mutant((Leaf, "on_fork_state"))
def leaf_without_served(self: Leaf, message: ForkState) -> None:
    """A leaf keeps requests that were settled without it, and answers them."""
    self.state = message.state


@mutant((Leaf, "answer"), options=ProtocolOptions(), seed=528)
def hands_over_and_keeps(self: Leaf, item: Item) -> None:
    """A leaf that hands over goes on from what it has given away."""
    state = self.state
    if self.shape.hands_over:
        self.state = copied(state)
    else:
        self.state = NOTHING
    self.send(self.shape.parent, Response(item.point, state, self.settled()))


# -- components, queues and runs -----------------------------------------------------------------------------------


@mutant((Component, "take"), seed=330)
def release_past_the_frontier(self: Component, bound: Point) -> dict[PartId, Run]:
    """A component does not wait for the frontiers of its parts."""
    runs = {part: queue.take(bound) for part, queue in self.queues.items()}
    return {part: run for part, run in runs.items() if run}


@mutant((leaf, "merged"))
def parts_one_after_the_other(runs: Iterable[Run]) -> Run:
    """Runs of several parts are put one after the other instead of merged by O."""
    pairs = [pair for run in runs for pair in run]
    return Run([point for point, _ in pairs], [event for _, event in pairs]) if pairs else EMPTY


@mutant((leaf, "merged"), seed=297)
def merged_by_timestamp(runs: Iterable[Run]) -> Run:
    """Ties are broken by timestamp only: of two streams at one timestamp the wrong one may come first."""
    pairs = list(merge(*reversed(list(runs)), key=lambda pair: pair[0].ts))
    return Run([point for point, _ in pairs], [event for _, event in pairs]) if pairs else EMPTY


@mutant((Queue, "take"))
def take_by_timestamp(self: Queue, bound: Point) -> Run:
    """A queue gives out everything with the timestamp of the bound."""
    taken, left = [], []
    for waiting in self.runs:
        head, rest = waiting.split(Point(bound.ts, END.rank, END.seq))
        taken.append(head)
        left += [rest] if rest else []
    self.runs.clear()
    self.runs.extend(left)
    out = merged(taken)
    self.length -= len(out)
    return out
