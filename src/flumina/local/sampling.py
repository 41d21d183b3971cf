"""Sizes of states, sampled in a process of the pool, which the run then uses."""

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
"""Seconds for the process to start up; the run would wait for it, too."""

ENDS_WITHIN = 2.0
"""Seconds for the sample: an ``update`` that takes longer is not waited for."""

FEW = 1_000
"""With fewer events than this no sample is taken: no plan is slow with them."""


def sampled(program: AnyProgram, streams: Sequence[Stream], bad_rows: BadRows, distinct: float) -> StateSize | None:
    """Sample how large states become; None if the events are few, or ``update`` fails or does not end."""
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
    """How many rows there are, as far as sources know; a generator counts as many."""
    total = 0.0
    for stream in streams:
        source = stream.source()
        for part in range(source.parts):
            rows = source.rows(part)
            total += FEW if rows is None else rows
    return total
