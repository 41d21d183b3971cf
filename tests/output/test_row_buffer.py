"""Collecting what is emitted, without keeping its input alive."""

import numpy as np
import pyarrow as pa
import pytest

from flumina.model.batch import Batch
from flumina.model.emit import Chunk, Emit
from flumina.model.order import Point
from flumina.output import row_buffer as pieces
from flumina.output.row_buffer import RowBuffer, in_order
from tests.engine.writing import ONE, TICK, batch, emitted, expected, listed, make


def collect(items: list[Chunk]) -> RowBuffer:
    found = RowBuffer(make(None), "output")
    for item in items:
        found.add_chunk(item)
    return found


def test_views_into_large_input_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row of each large batch: what is held is what was emitted, not what was read."""
    monkeypatch.setattr(pieces, "PINNED_BYTES", 1 << 20)
    before = pa.total_allocated_bytes()
    found = RowBuffer(make(None), "output")
    wanted = []
    for number in range(200):
        label = pa.array([f"{number}"] * 10_000)
        values = pa.array(np.full(10_000, number).tolist())
        columns = pa.record_batch([label.slice(5, 1), values.slice(5, 1)], schema=ONE["output"].arrow)
        found.add_chunk(Chunk("output", columns, batch([number], 0, [0]), np.array([0])))
        wanted.append((f"{number}", number, number, "left"))
        del label, values, columns
    assert pa.total_allocated_bytes() - before < 3 << 20
    assert listed(found.take()) == wanted


def test_rows_and_chunks_together() -> None:
    items = emitted(1)
    found = RowBuffer(make(None), "output")
    for item in items:
        if isinstance(item, Chunk):
            found.add_chunk(item)
        else:
            found.single.append(item)
    found.convert_rows()
    assert sorted(listed(found.take()), key=repr) == sorted(expected(items), key=repr)
    assert (found.rows, found.size, found.single) == (0, 0, [])


def test_streams_that_a_batch_counts_otherwise() -> None:
    emit = Emit(ONE)
    events = [TICK.event(ts=1, stream="right", n=1), TICK.event(ts=2, stream="left", n=1)]
    emit.batch = Batch.of_events(events)
    assert emit.batch.streams == ("right", "left")
    emit.columns(["a", "b"], [1, 2])
    assert listed(collect(emit.drain()).take()) == [("a", 1, 1, "right"), ("b", 2, 2, "left")]  # type: ignore[arg-type]


def test_sorting_leaves_equal_places_as_they_were() -> None:
    schema = make(None, ordered=True).staged("output")
    table = pa.table([["a", "b", "c", "d"], [0, 1, 2, 3], [5, 3, 5, 3], [1, 0, 0, 0], [9, 1, 9, 1]], schema=schema)
    found, run = in_order(table)
    assert found.column("name").to_pylist() == ["b", "d", "c", "a"]
    assert (run.first, run.last, run.rows) == (Point(3, 0, 1), Point(5, 1, 9), 4)
    again, _ = in_order(found)
    assert again is found


def test_the_last_part_of_a_place_counts() -> None:
    schema = make(None, ordered=True).staged("output")
    table = pa.table([["a", "b"], [0, 1], [5, 5], [1, 1], [9, 8]], schema=schema)
    assert in_order(table)[0].column("name").to_pylist() == ["b", "a"]
