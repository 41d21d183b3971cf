"""Random input for a plan: events spread over all its parts, with many equal timestamps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from flumina.check.choices import Choices
from flumina.check.values import KEYS, value
from flumina.definition import Definition
from flumina.events import Tag
from flumina.order import Point
from flumina.plan.tree import StreamShape
from flumina.runtime.messages import PartId
from flumina.sim.case import Entry
from flumina.tagsets import Key


def random_input(
    random: Random,
    definition: Definition,
    shapes: Sequence[StreamShape],
    events: int,
    named: Mapping[str, Sequence[Key]] | None = None,
) -> Mapping[PartId, Sequence[Entry]]:
    """Events of every part and tag, if there are enough of them; every point is another.

    ``named`` are keys of each tag that should occur too, where a part can hold them.
    """
    slots = [
        (shape.name, rank, part, definition.tags[name], _keys_here(definition.tags[name], shape, part, named or {}))
        for rank, shape in enumerate(shapes)
        for part in range(shape.parts)
        for name in shape.of_part(part).tags
    ]
    slots = [slot for slot in slots if slot[-1]]
    made: dict[PartId, list[Entry]] = {(shape.name, part): [] for shape in shapes for part in range(shape.parts)}
    weights = [random.choice((1, 1, 4)) for _ in slots]
    chosen = [*random.sample(slots, min(len(slots), events)), *random.choices(slots, weights, k=events)][:events]
    random.shuffle(chosen)
    clock = 0
    for seq, (stream, rank, part, tag, keys) in enumerate(chosen):
        clock += random.choice((0, 0, 1, 2))
        choices = Choices(random.randbytes(8))
        columns = {f.name: value(choices, f, definition.examples.get(f.name)) for f in tag.columns.fields}
        if tag.key is not None:
            columns[tag.key.name] = random.choice(keys)
        event = tag.event(ts=clock, stream=stream, seq=seq, **columns)
        made[stream, part].append((Point(clock, rank, seq), event))
    for entries in made.values():
        entries.sort(key=lambda entry: entry[0])
    return made


def _keys_here(tag: Tag, shape: StreamShape, part: int, named: Mapping[str, Sequence[Key]]) -> Sequence[Key]:
    """The keys that events of a tag on a part are given; that of an unkeyed tag is None."""
    if tag.key is None:
        return (None,)
    held = shape.of_part(part)[tag.name]
    return [key for key in dict.fromkeys((*keys_of(tag), *named.get(tag.name, ()))) if key in held]


def keys_of(tag: Tag) -> Sequence[Key]:
    """The keys that events of a keyed tag are given: few enough that they meet."""
    assert tag.key is not None
    return sorted(tag.finite_keys, key=repr) if tag.finite_keys else KEYS[tag.key.type]
