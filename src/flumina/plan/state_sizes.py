"""Sample the size of a program's state, which joins and forks move.

The program's ``update`` is folded over the first events, in O, and the state that results is packed as it would be for
a message. Entries of dicts, at the top of the state or one level below, count as keyed::

    bytes of a state with n keys  =  rest_bytes + n x key_bytes
    keys at the end of the input  =  different keys of the input x entries / different keys, both in the sample

A key that is merely looked up has no entry, so not every key that was counted counts here.
"""

from __future__ import annotations

import io
import pickle
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from flumina.errors import UsageError
from flumina.input.dead_letters import BadRows, RejectedRows, makes_dead_letters
from flumina.input.decode import Decoder
from flumina.input.stream import Stream
from flumina.model.batch import Batch
from flumina.model.emit import Emit
from flumina.model.event import Event
from flumina.model.tag_set import Key
from flumina.program.base import AnyProgram, define
from flumina.program.definition import Definition, fold, initial_state
from flumina.state.keyed_map import KeyedMap

EVENTS = 4_000
"""How many events are folded, at most."""

SECONDS = 0.25
"""Seconds of processor time after which no further event is folded."""

PATIENCE = 8
"""An ``update`` that waits is given this many times as long."""


@dataclass(frozen=True)
class StateSize:
    """Size of a program's state as the cost model knows it.

    ``keys``        how many keys have an entry in it, on average over the input or at its end
    ``key_bytes``   packed size of one such entry
    ``rest_bytes``  packed size of what does not grow with keys
    """

    keys: float = 0.0
    key_bytes: float = 0.0
    rest_bytes: float = 0.0

    def __post_init__(self) -> None:
        """Refuse an invalid size."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
                raise UsageError("STATE_SIZE", f"Expected a number from 0 on as {field.name}=, got {value!r}")

    @property
    def bytes(self) -> float:
        """Packed size of the whole state."""
        return self.rest_bytes + self.keys * self.key_bytes


def sample_states(
    program: AnyProgram,
    streams: Iterable[Stream],
    *,
    distinct: float = 0.0,
    events: int = EVENTS,
    seconds: float = SECONDS,
    bad_rows: BadRows = "error",
) -> StateSize:
    """Fold the program over the first events and measure the state.

    ``distinct`` is how many different keys the whole input has, if that is known. At most ``events`` events are folded,
    and none after ``seconds`` of processor time, so that a busy machine gives the same sample (the one that is under
    way is not interrupted). What ``update`` raises is raised.
    """
    definition, given = define(program), tuple(streams)
    state = initial_state(definition)
    empty = _split(state)
    kind = definition.kinds[definition.initial]
    emit = Emit(definition.outputs)
    keys: set[Key] = set()
    first = _first(definition, given, events, on_bad_rows=makes_dead_letters(bad_rows))
    if first is not None:
        state = fold(kind, state, _until(first, seconds, keys, emit), emit)
    entries, keyed, rest = _split(state)
    if not entries:
        return StateSize(rest_bytes=rest)
    each = max(0.0, keyed - empty[1]) / entries
    return StateSize(max(1.0, distinct / max(1, len(keys))) * entries, each, rest)


def _first(definition: Definition, streams: Sequence[Stream], events: int, *, on_bad_rows: bool) -> Batch | None:
    """Return the first events of all streams, in O; not more than so many."""
    names = [stream.name for stream in streams]
    batches: list[Batch] = []
    for rank, stream in enumerate(streams):
        for tag in stream.tags:
            assert tag.name in definition.tags, "an estimate was made of these streams"
        source = stream.source()
        for number in range(source.parts):
            decoder = Decoder(stream, rank, number, names, _forget if on_bad_rows else None)
            chunk = next(iter(source.chunks(number, stream.columns, events)), None)
            batch = None if chunk is None else decoder.decode(chunk.slice(0, events))
            if batch is not None and len(batch):
                batches.append(batch if stream.sorted else Batch.merge([batch]))
    if not batches:
        return None
    merged = Batch.merge(batches)
    return merged.slice(0, min(events, len(merged)))


def _forget(_: RejectedRows) -> None:
    """Leave out a bad row: the run handles it."""


def _until(batch: Batch, seconds: float, keys: set[Key], emit: Emit) -> Iterator[Event]:
    """Yield events for so many seconds of processor time; collect their keys and drop their outputs."""
    deadline, patience = time.thread_time() + seconds, time.monotonic() + PATIENCE * seconds
    for number, event in enumerate(batch):
        if time.thread_time() > deadline or time.monotonic() > patience:
            return
        if event.tag.key is not None:
            keys.add(event.key)
        yield event
        if number % 256 == 0:
            emit.drain()


def _split(state: Any) -> tuple[int, float, float]:  # noqa: ANN401 -- a state can be anything
    """Return how many keys a state has, the packed size of what belongs to them, and the packed size of the rest."""
    if isinstance(state, dict):  # of a KeyedMap, entries that equal the identity do not count
        return len(state), _packed(state), 0.0
    held: Mapping[str, object] = getattr(state, "__dict__", {})
    maps = {name: value for name, value in held.items() if isinstance(value, dict)}
    keyed = sum(map(_packed, maps.values()))
    return max(map(len, maps.values()), default=0), keyed, max(0.0, _packed(state) - keyed)


def _packed(state: object) -> float:
    file = io.BytesIO()
    _Pickler(file, protocol=5).dump(state)
    return float(file.tell())


class _Pickler(pickle.Pickler):
    """Packs states as messages between tasks do: without the program, which every task has."""

    def reducer_override(self, obj: object) -> Any:  # noqa: ANN401
        """Return how to pickle an object, or NotImplemented for the default."""
        return (dict, (obj.pruned(),)) if isinstance(obj, KeyedMap) else NotImplemented
