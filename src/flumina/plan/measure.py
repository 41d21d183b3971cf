"""Measure the costs of a program on a sample of its data.

Costs of the program are measured: events, forks, joins and the size of states. Costs of the network are taken from the
given :mod:`flumina.plan.cost_model`.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement
from typing import Any

from flumina.errors import UsageError
from flumina.input.decode import Decoder
from flumina.input.sources import CHUNK_ROWS, head
from flumina.input.stream import Stream
from flumina.model.batch import Batch
from flumina.model.emit import Emit
from flumina.model.tag_set import UNKEYED, TagSet
from flumina.plan.cost_model import DEFAULT, CostModel
from flumina.program.base import AnyProgram, define
from flumina.program.definition import Definition, Fork, Join, fold_batch

_SECONDS = 0.05
_ROUNDS = 10_000
"""How long forks and joins are measured, or how often."""


def measure(
    program: AnyProgram, streams: Iterable[Stream], *, rows: int = 100_000, model: CostModel = DEFAULT
) -> CostModel:
    """Return the model with this program's own costs, from the first rows of each part."""
    definition, given = define(program), tuple(streams)
    if not given:
        raise UsageError("NO_STREAMS", "there is no stream to measure with")
    kind = definition.kinds[definition.initial]
    state, names = definition.init(), [stream.name for stream in given]
    spent: dict[str, float] = {}
    counts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for rank, stream in enumerate(given):
        for run in _first_runs(stream, rank, names, rows):
            tag, emit = run.tag.name, Emit(definition.outputs)
            start = time.perf_counter()
            state = fold_batch(kind, state, run, emit)
            spent[tag] = spent.get(tag, 0.0) + time.perf_counter() - start
            counts[tag] = counts.get(tag, 0) + len(run)
            sizes[tag] = sizes.get(tag, 0) + run.tables[0].nbytes + run.ts.nbytes + run.seq.nbytes
    if not counts:
        raise UsageError("NO_EVENTS", "the streams hold no event to measure with")
    total = sum(counts.values())
    return replace(
        model,
        event=sum(spent.values()) / total,
        by_tag={tag: spent[tag] / counts[tag] for tag in counts},
        event_bytes=sum(sizes.values()) / total,
        **_state_costs(definition, state),
    )


def _first_runs(stream: Stream, rank: int, names: Sequence[str], rows: int) -> Iterator[Batch]:
    """Yield the first events of each part, tag by tag."""
    source = stream.source()
    for number in range(source.parts):
        chunks = source.chunks(number, stream.columns, min(rows, CHUNK_ROWS))
        for batch in Decoder(stream, rank, number, names).batches(head(chunks, rows), rows):
            yield from batch.runs()


def _state_costs(definition: Definition, state: Any) -> dict[str, float]:  # noqa: ANN401 -- a state can be anything
    """Return the costs of forking and joining this state, and its size; no forks without independent events.

    For a keyed program, measure the state of one key, which is what moves.
    """
    lifted = definition.lifted
    if lifted is not None:
        definition, state = (
            lifted.one,
            max(state.values(), key=lambda one: len(pickle.dumps(one)), default=lifted.identity()),
        )
    found: dict[str, float] = {"state_bytes": float(len(pickle.dumps(state)))}
    sides = _independent(definition, one_key=lifted is not None)
    for fork in definition.forks if sides is not None else ():
        join = next(
            (j for j in definition.joins if (j.left, j.right, j.target) == (fork.left, fork.right, fork.source)), None
        )
        if fork.source == definition.initial and join is not None and sides is not None:
            found["fork"], found["join"] = _timed(fork, join, sides, state)
            break
    return found


def _timed(fork: Fork, join: Join, sides: tuple[TagSet, TagSet], state: Any) -> tuple[float, float]:  # noqa: ANN401
    """Return the mean times of a fork and the join that undoes it."""
    forking = joining = 0.0
    rounds = 0
    while forking + joining < _SECONDS and rounds < _ROUNDS:
        rounds += 1
        start = time.perf_counter()
        halves = fork.split(state, *sides)
        middle = time.perf_counter()
        state = join.unite(*halves)
        forking += middle - start
        joining += time.perf_counter() - middle
    return forking / rounds, joining / rounds


def _independent(definition: Definition, *, one_key: bool) -> tuple[TagSet, TagSet] | None:
    """Return two sets of events that a fork could divide; as a one-key program sees them, if it is one."""
    for one, other in combinations_with_replacement(definition.tags.values(), 2):
        left, right = (TagSet([(t.name, UNKEYED)]) if one_key else TagSet.all_of([t]) for t in (one, other))
        if not definition.depends.between(left, right):
            return left, right
    return None
