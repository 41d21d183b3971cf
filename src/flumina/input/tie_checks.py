"""Check that O orders all dependent events of a stream."""

from __future__ import annotations

from collections.abc import Sequence

from flumina.input.decode import Part
from flumina.input.stream import Stream
from flumina.model.tag_set import TagSet
from flumina.program.definition import Definition
from flumina.program.tie_finder import TieFinder, TieRule


def matter(definition: Definition, stream: Stream) -> bool:
    """Return whether events of a stream depend on each other, so that O has to order them."""
    events = TagSet.all_of(stream.tags)
    return definition.depends.between(events, events)


def check_ties(definition: Definition, parts: Sequence[Part]) -> None:
    """Raise :class:`~flumina.errors.OrderError` at the first pair of dependent events of one stream that tie."""
    for rank in sorted({part.rank for part in parts}):
        mine = [part for part in parts if part.rank == rank and len(part.batch)]
        if not mine:
            continue
        stream = mine[0].stream
        if not matter(definition, stream) or (stream.seq is None and len(mine) == 1):
            continue  # no tie matters
        finder = TieFinder(TieRule.of(definition.depends, stream.tags, sequenced=stream.seq is not None))
        finder.look([part.batch for part in mine], [part.number for part in mine])


def must_be_one_part(definition: Definition, stream: Stream) -> bool:
    """Return whether events depend on each other and only their position orders equal timestamps."""
    return stream.seq is None and matter(definition, stream)
