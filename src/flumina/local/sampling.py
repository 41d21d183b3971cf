"""Sample state sizes in a process of the pool, which the run reuses."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Sequence
from pathlib import Path

from flumina.engine.sampling import Sampling
from flumina.input.dead_letters import BadRows
from flumina.input.stream import Stream
from flumina.local.pool import POOL
from flumina.plan.state_sizes import StateSize
from flumina.program.base import AnyProgram

STARTS_WITHIN = 60.0
"""Seconds for the process to start up; the run would wait for it as well."""

ENDS_WITHIN = 2.0
"""Seconds for the sample; it is given up if ``update`` takes longer."""

FEW = 1_000
"""Least number of events for a sample: with fewer, every plan is fast."""


def sampled(program: AnyProgram, streams: Sequence[Stream], bad_rows: BadRows, distinct: float) -> StateSize | None:
    """Sample the size of states; return None if the events are few, or ``update`` fails or takes too long."""
    if _rows(streams) < FEW:
        return None
    with tempfile.TemporaryDirectory(prefix="flumina-") as folder, POOL.borrow(1) as (worker,):
        order = Sampling.of(program, streams, distinct, bad_rows, Path(folder) / "size.json")
        if not worker.waits_within(STARTS_WITHIN):
            return None
        worker.give(pickle.dumps(order, protocol=5))
        if not worker.waits_within(ENDS_WITHIN):
            worker.process.kill()
            return None
        return order.result()


def _rows(streams: Sequence[Stream]) -> float:
    """Return the number of rows as far as sources know it; an unknown number counts as :data:`FEW`."""
    total = 0.0
    for stream in streams:
        source = stream.source()
        for part in range(source.parts):
            rows = source.rows(part)
            total += FEW if rows is None else rows
    return total
