"""Define programs as in Definition 2.1 of the paper, however they were written."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flumina.errors import FluminaError, OutOfMemoryError, UserCodeError, location, location_of
from flumina.model.decimals import exact_decimals
from flumina.model.tag_set import TagSet
from flumina.state.record import resettable

if TYPE_CHECKING:
    from flumina.model.batch import Batch
    from flumina.model.depends import Dependence
    from flumina.model.emit import Emit
    from flumina.model.event import Event
    from flumina.model.schema import Schema
    from flumina.model.tag import Tag
    from flumina.program.keyed import Lifted
    from flumina.program.ticks import Ticking

State = Any
Update = Callable[[State, "Event", "Emit"], State | None]
UpdateBatch = Callable[[State, "Batch", "Emit"], State | None]

RAISED = (Exception, SystemExit)
"""What users' functions raise, including sys.exit, which would end a worker's process without an error."""


@dataclass(frozen=True, slots=True)
class StateKind:
    """One state type: which events it can process, and how.

    ``update`` may change the state in place and return None, or return another state.
    """

    name: str
    predicate: TagSet
    update: Update
    update_batch: UpdateBatch | None = None
    fresh: Callable[[], State] | None = None
    """Makes the initial state for :func:`flumina.reset`; None where the program never calls it."""


@dataclass(frozen=True, slots=True)
class Fork:
    """``fork: (source, Pred, Pred) -> (left, right)``; it consumes the state."""

    source: str
    left: str
    right: str
    function: Callable[[State, TagSet, TagSet], tuple[State, State]]

    def split(self, state: State, left: TagSet, right: TagSet) -> tuple[State, State]:
        """Divide a state; raise the user's error if the function fails."""
        try:
            with exact_decimals():
                return _two(self.function, self.function(state, left, right))
        except FluminaError:
            raise
        except RAISED as error:
            raise user_error(self.function, error) from error


def _two(function: Callable[..., object], halves: Any) -> tuple[State, State]:  # noqa: ANN401 -- whatever fork returned
    try:
        one, other = halves
    except (TypeError, ValueError):
        what = f"returned {reprlib.repr(halves)}: a fork has to return two states, the left one and the right one"
        raise UserCodeError(function.__qualname__, what, where=location_of(function)) from None
    return one, other


@dataclass(frozen=True, slots=True)
class Join:
    """``join: (left, right) -> target``; it consumes both states."""

    left: str
    right: str
    target: str
    function: Callable[[State, State], State]

    def unite(self, left: State, right: State) -> State:
        """Merge two states; raise the user's error if the function fails."""
        try:
            with exact_decimals():
                return self.function(left, right)
        except FluminaError:
            raise
        except RAISED as error:
            raise user_error(self.function, error) from error


@dataclass(frozen=True)
class Definition:
    """A program: events, dependence, outputs, state types, init, update, forks and joins."""

    name: str
    tags: Mapping[str, Tag]
    depends: Dependence
    outputs: Mapping[str, Schema]
    kinds: Mapping[str, StateKind]
    initial: str
    init: Callable[[], State]
    forks: tuple[Fork, ...]
    joins: tuple[Join, ...]
    adding: frozenset[str] = frozenset()
    """Tags that only add to fields with an identity and read nothing: such a leaf does not wait at joins."""
    is_initial: Callable[[State], bool] | None = None
    """Test whether a state is indistinguishable from the initial one; None if only a comparison can tell."""
    untouched: Callable[[State], bool] | None = None
    """Test whether a state is still the initial one, not even set to an equal value; None if unknown."""
    narrow: Callable[[State, TagSet, TagSet | None], State] | None = None
    """Reduce a state to what a side with these tags needs: forks and joins give this side the same as the whole would.

    One side also owns what no tag observes; it is called with the tags of all. None if unknown.
    """
    lifted: Lifted | None = None
    """The one-key program, where this one was lifted from it."""
    ticking: Ticking | None = None
    """The rules of ticks, for the state of one key where the program is keyed; None without ticks."""
    tolerance: float = 0.0
    examples: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def everything(self) -> TagSet:
        """All events of the program: the predicate ``true``."""
        return TagSet.all_of(self.tags.values())

    def moves_one_key(self, tag: str) -> bool:
        """Return whether a join for an event of this tag moves the state of one key, not all of the state."""
        return self.lifted is not None and self.tags[tag].key is not None

    @property
    def synchronizing(self) -> TagSet:
        """The events that synchronize, whatever the plan; ``syncs`` counts them."""
        return self.depends.synchronizing(self.tags.values())

    def fork_of(self, source: str, left: str, right: str) -> Fork:
        """Return the fork between these state types."""
        return next(fork for fork in self.forks if (fork.source, fork.left, fork.right) == (source, left, right))

    def join_of(self, fork: Fork) -> Join:
        """Return the join that undoes a fork."""
        ends = (fork.left, fork.right, fork.source)
        return next(join for join in self.joins if (join.left, join.right, join.target) == ends)


def initial_state(definition: Definition) -> State:
    """Return a fresh initial state; the user's ``init`` may fail."""
    try:
        return definition.init()
    except FluminaError:
        raise
    except RAISED as error:
        raise user_error(definition.init, error) from error


_UNCHANGED: AbstractContextManager[None] = nullcontext()


def within_update(kind: StateKind) -> AbstractContextManager[None]:
    """Let :func:`flumina.reset` know the initial state of a program while its update runs."""
    return _UNCHANGED if kind.fresh is None else resettable(kind.fresh)


def fold(kind: StateKind, state: State, events: Iterable[Event], emit: Emit) -> State:
    """Apply ``update`` to each event in turn."""
    update = kind.update
    event = None
    try:
        with exact_decimals(), within_update(kind):
            for event in events:
                emit.event = event
                result = update(state, event, emit)
                if result is not None:
                    state = result
    except FluminaError as error:
        if event is not None:
            error.add_note(f"while processing {event!r}")
        raise
    except RAISED as error:
        raise user_error(update, error, event) from error
    finally:
        emit.event = None
    return state


def fold_batch(kind: StateKind, state: State, batch: Batch, emit: Emit) -> State:
    """Apply ``update_batch`` where the program has one, with the result of :func:`fold`."""
    if kind.update_batch is None:
        return fold(kind, state, batch, emit)
    for run in batch.runs():
        emit.batch = run
        try:
            with exact_decimals(), within_update(kind):
                result = kind.update_batch(state, run, emit)
        except FluminaError:
            raise
        except RAISED as error:
            raise user_error(kind.update_batch, error, f"a batch of {len(run)} {run.tag.name} events") from error
        finally:
            emit.batch = None
        if result is not None:
            state = result
    return state


def user_error(function: Callable[..., Any], error: BaseException, event: object = None) -> FluminaError:
    """Return the error for a user's exception, with the innermost line of the user's code.

    A MemoryError becomes :class:`~flumina.errors.OutOfMemoryError`: the user's code is not at fault.
    """
    trace, where = error.__traceback__, "?"
    name = ""
    while trace is not None:
        frame = trace.tb_frame
        module = frame.f_globals.get("__name__", "")
        ours = module.startswith("flumina.") and not module.startswith("flumina.apps")
        users = not (ours or "site-packages" in frame.f_code.co_filename)
        if where == "?" or users:
            where = location(frame.f_code.co_filename, trace.tb_lineno)
        if users and not name:  # the function called may be the library's, with the user's inside
            name = frame.f_code.co_qualname
        trace = trace.tb_next
    called = name or getattr(function, "__qualname__", repr(function))
    text = None if event is None else str(event)
    if isinstance(error, MemoryError):
        return OutOfMemoryError(f"{called}, at {where}", event=text)
    return UserCodeError(called, error, where=where, event=text)
