"""Sample state sizes in a process of the pool, so that ``update`` can't harm the driver; the run reuses it."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

from flumina.input.dead_letters import BadRows
from flumina.local.pool import POOL
from flumina.local.sample_request import SampleRequest
from flumina.plan.state_sizes import StateSize
from flumina.plan.survey import Survey
from flumina.program.base import AnyProgram

STARTS_WITHIN = 60.0
"""Seconds for the process to start up; the run would wait for it as well."""

ENDS_WITHIN = 10.0
"""Seconds for the sample, which limits itself to less; it is given up if one ``update`` takes longer."""

FEW = 1_000
"""Least number of events for a sample: with fewer, every plan is fast."""


def sampled(program: AnyProgram, survey: Survey, bad_rows: BadRows, distinct: float) -> StateSize | None:
    """Sample the size of states; return None if the events are few, or ``update`` fails or takes too long."""
    if survey.rows(unknown=FEW) < FEW:
        return None
    with tempfile.TemporaryDirectory(prefix="flumina-") as folder, POOL.borrow(1) as (worker,):
        order = SampleRequest.of(program, survey.heads, distinct, bad_rows, Path(folder) / "size.json")
        if not worker.waits_within(STARTS_WITHIN):
            return None
        worker.give(pickle.dumps(order, protocol=5))
        if not worker.waits_within(ENDS_WITHIN):
            worker.process.kill()
            return None
        return order.result()
