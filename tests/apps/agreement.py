"""Random streams for a program, and ways to say that two programs do the same with them."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

import flumina as fl
from flumina.model.batch import Batch
from flumina.model.emit import Emit, rows
from flumina.program.base import define
from flumina.program.definition import fold, fold_batch
from flumina.spec import read

Given = dict[str, dict[str, list[Any]]]
"""For each tag the columns of its stream."""

SEEDS = range(25)


def random_columns(program: type[fl.Program], seed: int, keys: Sequence[object]) -> Given:
    """A stream for each tag, with few enough timestamps that streams tie."""
    rng = random.Random(seed)
    given: Given = {}
    for name, tag in define(program).tags.items():
        count = rng.randrange(30)
        columns: dict[str, list[Any]] = {"ts": sorted(rng.randrange(40) for _ in range(count))}
        if tag.key is not None:
            columns[tag.key.name] = [rng.choice(keys) for _ in range(count)]
        for field in tag.columns.fields:
            numbers = pa.types.is_integer(field.type)
            columns[field.name] = [
                rng.randrange(3000) if numbers else rng.choice(["x", "y", None]) for _ in range(count)
            ]
        given[name] = columns
    return given


def streams(program: type[fl.Program], given: Given) -> list[fl.Stream]:
    """The columns as streams of a program, ranked by the names of the tags."""
    tags = define(program).tags
    return [fl.Stream(name, tags[name], pa.table(given[name], tags_schema(tags[name]))) for name in sorted(given)]


def tags_schema(tag: fl.Tag) -> pa.Schema:
    return pa.schema([("ts", pa.int64()), *tag.schema])


def outputs(program: type[fl.Program], given: Given) -> dict[str, list[dict[str, Any]]]:
    return {name: table.to_pylist() for name, table in fl.spec(program, streams(program, given)).outputs.items()}


def assert_batches_agree(program: type[fl.Program], given: Given, seed: int) -> None:
    """``update_batch`` over batches of any size is ``update`` over all events."""
    definition = define(program)
    kind = definition.kinds[definition.initial]
    assert kind.update_batch is not None
    merged = Batch.merge([part.batch for part in read(definition, streams(program, given))])
    one, other = Emit(definition.outputs), Emit(definition.outputs)
    expected = fold(kind, definition.init(), merged, one)
    rng, state, start = random.Random(seed), definition.init(), 0
    while start < len(merged):
        stop = start + rng.randrange(1, 20)
        state = fold_batch(kind, state, merged.slice(start, stop), other)
        start = stop
    assert state == expected
    found, wanted = (Counter(map(repr, rows(emit.drain()))) for emit in (other, one))
    assert found == wanted


def assert_empty_batches_do_nothing(program: type[fl.Program], tags: Sequence[fl.Tag]) -> None:
    """Called by itself, ``update_batch`` may be given nothing."""
    definition = define(program)
    one = definition if definition.lifted is None else definition.lifted.one
    kind = one.kinds[one.initial]
    assert kind.update_batch is not None
    for tag in tags:
        emit = Emit(one.outputs)
        state = one.init()
        emit.batch = Batch.empty(tag)
        returned = kind.update_batch(state, emit.batch, emit)
        assert (state if returned is None else returned) == one.init()
        assert rows(emit.drain()) == []
