"""Deliberate bugs of ticks: of cursors, of workers that make them, and of what they see of the input."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flumina.model.order import END, LAST, START, Point
from flumina.model.tag import Tag
from flumina.model.tick import NOWHERE, AtEnd, Every, Horizon, Tick, tick_ranks
from flumina.program.ticks import ALWAYS_DUE
from flumina.runtime import inner as inner_module
from flumina.runtime import keyed_inner as keyed_module
from flumina.runtime import leaf as leaf_module
from flumina.runtime import topology, worker
from flumina.runtime.inner import Inner
from flumina.runtime.keyed_inner import KeyedInner
from flumina.runtime.keyed_leaf import KeyedLeaf
from flumina.runtime.leaf import Leaf
from flumina.runtime.mailbox import Component
from flumina.runtime.messages import ForkState, Request
from flumina.runtime.run import Run
from flumina.runtime.tick_cursor import Place, Seen, TickCursor
from flumina.runtime.tick_maker import TickMaker
from flumina.runtime.topology import ProtocolOptions
from flumina.runtime.worker import Worker
from tests.sim.mutant import Function, Mutant

TICK_MUTANTS: dict[str, Mutant] = {}


def mutant(*targets: tuple[object, str], is_property: bool = False) -> Callable[[Function], Function]:
    """Put the decorated function in the place of these; its docstring says which rule is broken."""

    def register(function: Function) -> Function:
        assert function.__doc__ is not None
        new = property(function) if is_property else function
        changes = tuple((owner, name, new) for owner, name in targets)
        bug = Mutant(function.__name__, function.__doc__, changes, ProtocolOptions(), None)
        TICK_MUTANTS[function.__name__] = bug
        return function

    return register


# -- where ticks are, and how far they come ----------------------------------------------------------------------------


@mutant((topology, "tick_ranks"))
def on_the_wrong_side_of_its_timestamp(tags: Mapping[str, Tag], streams: int) -> dict[str, int]:
    """A tick comes behind the events of its timestamp, or before them: the other way round."""
    ranks = tick_ranks(tags, streams)
    every = {name for name in ranks if isinstance(tags[name], Every)}
    return {n: rank if n not in every else rank + 50 if rank < 0 else rank - 50 for n, rank in ranks.items()}


@mutant((leaf_module, "within"))
def before_an_earlier_event(place: Place, point: Point) -> bool:
    """A leaf lets a tick come before everything up to it has come."""
    return True


DUE = TickCursor.due


@mutant((TickCursor, "due"))
def one_tick_late(self: TickCursor, state: Any) -> int | None:
    """A tick comes one period after it is due; one that comes early does nothing, by the rule of update."""
    due = DUE(self, state)
    return due if due in (None, ALWAYS_DUE) else due + 1


BEGIN = TickCursor.begin


@mutant((TickCursor, "begin"))
def twice_after_a_snapshot(self: TickCursor, point: Point) -> None:
    """Ticks begin from the start where a run goes on from a snapshot."""
    BEGIN(self, START)


@mutant((TickCursor, "begin"))
def lost_after_a_snapshot(self: TickCursor, point: Point) -> None:
    """The first tick behind a snapshot is left out."""
    BEGIN(self, point)
    if point != START and self.ts is not None:
        self.ts = self.following(self.ts)


@mutant((Seen, "limit"))
def up_to_any_time(self: Seen, tag: Tick) -> int:
    """Ticks come as far as heartbeats reach, with no event behind them."""
    return (LAST if self.last is not None and self.last.closed else NOWHERE.ts) if isinstance(tag, AtEnd) else LAST


@mutant((Seen, "limit"))
def none_behind_the_last_event(self: Seen, tag: Tick) -> int:
    """The first tick behind the last event is left out."""
    if isinstance(tag, AtEnd):
        return LAST if self.last is not None and self.last.closed else NOWHERE.ts
    return self.ts if self.last is None else self.last.ts


LIMIT = Seen.limit


@mutant((Seen, "limit"))
def no_end(self: Seen, tag: Tick) -> int:
    """AtEnd never comes."""
    return NOWHERE.ts if isinstance(tag, AtEnd) else LIMIT(self, tag)


@mutant((Seen, "limit"))
def the_end_of_every_epoch(self: Seen, tag: Tick) -> int:
    """AtEnd comes where a run is truncated."""
    return LAST if isinstance(tag, AtEnd) and self.last is not None else LIMIT(self, tag)


# -- what is seen of the input -----------------------------------------------------------------------------------------


@mutant((Worker, "on_shown"))
def nothing_is_shown_to_parents(self: Worker, ts: int) -> None:
    """A parent does not hear of the events below."""
    self.seen.raise_to(ts)


@mutant((Worker, "on_horizon"))
def requests_show_nothing(self: Worker, message: Request) -> None:
    """A leaf does not take a request for a sign of an event, and waits."""
    if message.last is not None:
        self.seen.ends_at(message.last)


@mutant((worker, "Horizon"))
def windows_close_at_the_cut(ts: int) -> Horizon:
    """An epoch that is truncated closes its windows."""
    return Horizon(ts, closed=True)


@mutant((TickMaker, "truncate"))
def made_ticks_survive_the_cut(self: TickMaker, bound: Point) -> None:
    """An inner worker waits for ticks behind the cut."""
    self.ready = [entry for entry in self.ready if entry.item.point <= bound]


# -- leaves ------------------------------------------------------------------------------------------------------------


@mutant((Leaf, "changed"))
def events_make_no_candidates(self: Leaf, run: Run | None) -> None:
    """A key whose state has changed is not looked at again."""


KEYED_FORK_STATE = KeyedLeaf.on_fork_state


@mutant((KeyedLeaf, "on_fork_state"))
def no_candidate_after_a_join(self: KeyedLeaf, message: ForkState) -> None:
    """A key that has come back from its parent is not looked at again."""
    cursors, self.cursors = self.cursors, [] if message.key is not None else self.cursors
    KEYED_FORK_STATE(self, message)
    self.cursors = cursors


@mutant((KeyedLeaf, "tick_limit"))
def ticks_do_not_wait_for_keys(self: KeyedLeaf, component: Component, limit: Point) -> Point | None:
    """A leaf leaves out ticks while the state of a key is away."""
    return limit


@mutant((KeyedLeaf, "tick_limit"))
def ticks_overtake_lined_events(self: KeyedLeaf, component: Component, limit: Point) -> Point | None:
    """A tick comes before an event of its key that waits in a line."""
    return None if self.gone else limit


FIRE = Leaf.fire


@mutant((Leaf, "fire"))
def ticks_wake_no_others(self: Leaf, cursor: TickCursor, ts: int) -> None:
    """A tick that gives another one something to do does not enter its keys there."""
    fresh = {id(other): set(other.candidates.fresh) for other in self.cursors if other.candidates is not None}
    FIRE(self, cursor, ts)
    for other in self.cursors:
        if other.candidates is not None and other is not cursor:
            other.candidates.fresh = fresh[id(other)]


SKIP = TickCursor.skip


@mutant((TickCursor, "skip"))
def one_more_is_left_out(self: TickCursor, point: Point) -> bool:
    """A silent range is one tick too long."""
    found = SKIP(self, point)
    if found and self.ts is not None and point.ts > START.ts:
        self.ts = self.following(self.ts)
    return found


@mutant((Component, "frontier"), is_property=True)
def events_do_not_wait_for_ticks(self: Component) -> Point:
    """A leaf processes events behind a tick that is still to come."""
    return self.arrived


# -- inner workers -----------------------------------------------------------------------------------------------------


@mutant((Inner, "known"), is_property=True)
def requests_do_not_wait_for_ticks(self: Inner) -> Point:
    """An inner worker announces a frontier behind its next tick."""
    return min([queue.frontier for queue in self.queues.values()], default=END)


@mutant((Inner, "undisturbed"), (KeyedInner, "undisturbed"))
def left_out_past_own_events(self: Inner, waiting: Sequence[Point]) -> Point:
    """An inner worker leaves out ticks behind its own events and the parent's requests."""
    return END


@mutant((Leaf, "quiet"))
def leaves_are_always_quiet(self: Leaf) -> Point:
    """A leaf says that nothing comes, though events wait."""
    return END


@mutant((KeyedLeaf, "quiet_of"))
def keys_are_always_quiet(self: KeyedLeaf, key: Any) -> Point:
    """A leaf says that nothing comes of a key, though events wait."""
    return END


@mutant((Inner, "quiet"), (KeyedInner, "quiet"))
def subtrees_are_always_quiet(self: Inner, state: Any) -> Point:
    """An inner worker says that nothing comes below it."""
    return END


@mutant((KeyedInner, "quiet_of"))
def keys_of_subtrees_are_always_quiet(self: KeyedInner, key: Any, busy: Any, state: Any) -> Point:
    """An inner worker says that nothing comes of a key below it."""
    return END


@mutant((inner_module, "leave_out"), (keyed_module, "leave_out"))
def all_are_left_out(cursors: Sequence[tuple[TickCursor, int | None]], bound: Point) -> None:
    """An inner worker leaves out ticks that have something to do."""
    for cursor, _ in cursors:
        cursor.skip(bound)


@mutant((Inner, "first_tick"), is_property=True)
def settled_past_own_ticks(self: Inner) -> None:
    """An inner worker counts as settled up to behind ticks that it has made and not served."""


@mutant((KeyedInner, "store"))
def initial_states_are_lost(self: KeyedInner, states: Any, key: Any, state: Any) -> None:
    """A key's half is dropped though it is not initial."""
    states.pop(key, None)
