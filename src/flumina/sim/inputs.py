"""Random input for a plan: events spread over all its parts, with many equal timestamps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from flumina.check.choices import Choices
from flumina.check.values import value
from flumina.definition import Definition
from flumina.order import Point
from flumina.plan.tree import StreamShape
from flumina.runtime.messages import PartId
from flumina.sim.case import Case, Entry
from flumina.sim.plans import keys_of, random_plan, random_streams

_TRIES = 6
"""How often other streams are tried before a plan of a single leaf is taken."""


def random_case(random: Random, definition: Definition, events: int = 60) -> Case:
    """A random plan for a program and random input for it; seldom a plan with nobody to talk to."""
    for _ in range(_TRIES):
        shapes = random_streams(random, definition)
        plan = random_plan(random, definition, shapes)
        if len(plan) > 1 or random.random() < 0.05:
            break
    return Case(definition, plan, random_input(random, definition, shapes, events))


def random_input(
    random: Random, definition: Definition, shapes: Sequence[StreamShape], events: int
) -> Mapping[PartId, Sequence[Entry]]:
    """Events of every part and tag, if there are enough of them; every point is another."""
    slots = [
        (shape.name, rank, part, definition.tags[name])
        for rank, shape in enumerate(shapes)
        for part in range(shape.parts)
        for name in shape.tags.tags
    ]
    made: dict[PartId, list[Entry]] = {(shape.name, part): [] for shape in shapes for part in range(shape.parts)}
    weights = [random.choice((1, 1, 4)) for _ in slots]
    chosen = [*random.sample(slots, min(len(slots), events)), *random.choices(slots, weights, k=events)][:events]
    random.shuffle(chosen)
    clock = 0
    for seq, (stream, rank, part, tag) in enumerate(chosen):
        clock += random.choice((0, 0, 1, 2))
        choices = Choices(random.randbytes(8))
        columns = {f.name: value(choices, f, definition.examples.get(f.name)) for f in tag.columns.fields}
        if tag.key is not None:
            columns[tag.key.name] = random.choice(keys_of(tag))
        event = tag.event(ts=clock, stream=stream, seq=seq, **columns)
        made[stream, part].append((Point(clock, rank, seq), event))
    for entries in made.values():
        entries.sort(key=lambda entry: entry[0])
    return made
