"""Random input for a plan: events spread over all its parts, with many equal timestamps and equal points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from random import Random
from typing import NamedTuple

import pyarrow as pa

from flumina.check.choices import Choices
from flumina.check.values import KEYS, POWERS, value
from flumina.model.order import Point
from flumina.model.tag import Tag
from flumina.model.tag_set import Key, KeySet, TagSet
from flumina.plan.tree import StreamShape
from flumina.program.definition import Definition
from flumina.runtime.messages import PartId
from flumina.sim.case import Entry

_COLD_KEYS: Mapping[pa.DataType, Sequence[Key]] = {
    pa.int32(): range(4, 10),
    pa.int64(): range(4, 10),
    pa.string(): tuple("defghi"),
    pa.binary(): (b"d", b"e", b"f", b"g", b"h", b"i"),
}
"""More keys for programs that are written for one: each has few events, beside the keys of :func:`keys_of`."""


_ECHOES = 0.2
"""How often the like of an event comes at its timestamp on another part, in streams whose events share points."""

_JUMPS = 0.05
"""How often time jumps, in half of the inputs: programs look at which minute or day it is."""


_SILENCES = (5, 12, 30, 70, 400)
"""How far time jumps in programs with ticks: each tick that does something is a step."""


class _Slot(NamedTuple):
    """A place for events: a tag on a part, and the keys that they can have there."""

    stream: str
    rank: int
    part: int
    tag: Tag
    keys: Sequence[Key]


class _Numbers:
    """Numbers for the events of streams, so low that events of several parts share points wherever they may.

    O has no order for events at one point, so they do not depend on each other.
    """

    def __init__(self, definition: Definition) -> None:
        self.depends = cache(definition.depends.between)
        self.last: dict[tuple[PartId, int], int] = {}
        self.at: dict[tuple[str, int, int], list[TagSet]] = {}

    def next(self, part: PartId, ts: int, event: TagSet) -> int:
        """The least number after the part's last at which nothing depends on an event."""
        seq = self.last.get((part, ts), -1) + 1
        while any(self.depends(event, other) for other in self.at.get((part[0], ts, seq), ())):
            seq += 1
        self.last[part, ts] = seq
        self.at.setdefault((part[0], ts, seq), []).append(event)
        return seq


def random_input(
    random: Random,
    definition: Definition,
    shapes: Sequence[StreamShape],
    events: int,
    named: Mapping[str, Sequence[Key]] | None = None,
) -> Mapping[PartId, Sequence[Entry]]:
    """Events of every part and tag, if there are enough of them.

    In half of the streams every point is another; in the others independent events of several parts share points.
    ``named`` are keys of each tag that should occur too, where a part can hold them.
    """
    slots = [
        _Slot(shape.name, rank, part, tag, _keys_here(definition, tag, shape, part, named or {}))
        for rank, shape in enumerate(shapes)
        if not shape.ticks
        for part in range(shape.parts)
        for tag in map(definition.tags.__getitem__, shape.of_part(part).tags)
    ]
    slots = [slot for slot in slots if slot.keys]
    given = [shape for shape in shapes if not shape.ticks]
    made: dict[PartId, list[Entry]] = {(shape.name, part): [] for shape in given for part in range(shape.parts)}
    weights = [random.choice((1, 1, 4)) for _ in slots]
    chosen = [*random.sample(slots, min(len(slots), events)), *random.choices(slots, weights, k=events)][:events]
    random.shuffle(chosen)
    tied = {shape.name for shape in shapes if random.random() < 0.5}
    numbers = _Numbers(definition)
    leaps = _leaps(random, events, POWERS if definition.ticking is None else _SILENCES)
    clock, key, echoes = 0, None, list[_Slot]()
    for place, fresh in enumerate(chosen):
        if echoes and random.random() < _ECHOES:
            stream, rank, part, tag, _ = random.choice(echoes)
        else:
            stream, rank, part, tag, keys = fresh
            key = random.choice(keys)
            clock += random.choice((0, 0, 1, 2)) + leaps[place]
        like = [slot for slot in slots if (slot.stream, slot.tag) == (stream, tag) and key in slot.keys]
        echoes = [slot for slot in like if slot.part != part] if stream in tied else []
        choices = Choices(random.randbytes(8))
        columns = {f.name: value(choices, f, definition.examples.get(f.name)) for f in tag.columns.fields}
        if tag.key is not None:
            columns[tag.key.name] = key
        one = TagSet([(tag.name, KeySet.of(key))])
        seq = numbers.next((stream, part), clock, one) if stream in tied else place
        event = tag.event(ts=clock, stream=stream, seq=seq, **columns)
        made[stream, part].append((Point(clock, rank, seq), event))
    return made


def _leaps(random: Random, events: int, lengths: Sequence[int]) -> Sequence[int]:
    """How far time jumps before each event, mostly 0.

    They take nothing from ``random``: but for the timestamps a seed stands for the same input with them and without.
    """
    own = Random(random.getstate()[1][0])
    if own.random() < 0.5:
        return [0] * events
    return [own.choice(lengths) if own.random() < _JUMPS else 0 for _ in range(events)]


def _keys_here(
    definition: Definition, tag: Tag, shape: StreamShape, part: int, named: Mapping[str, Sequence[Key]]
) -> Sequence[Key]:
    """The keys that events of a tag on a part are given, frequent ones twice; that of an unkeyed tag is None."""
    if tag.key is None:
        return (None,)
    part_keys = shape.of_part(part)[tag.name]
    keys = dict.fromkeys((*keys_of(tag), *named.get(tag.name, ())))
    cold = _COLD_KEYS[tag.key.type] if definition.lifted is not None else ()
    return [key for key in (*keys, *keys, *cold) if key in part_keys]


def keys_of(tag: Tag) -> Sequence[Key]:
    """The keys that many events of a keyed tag are given: few enough that they meet."""
    assert tag.key is not None
    return sorted(tag.finite_keys, key=repr) if tag.finite_keys else KEYS[tag.key.type]
