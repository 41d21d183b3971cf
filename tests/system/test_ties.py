"""Ties in whole runs: what spec refuses, processes that never see all the data refuse, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

import flumina as fl
from flumina import local
from flumina.apps import KeyCounter
from flumina.engine.options import EngineOptions
from flumina.errors import OrderError
from flumina.model.tag_set import KeySet, TagSet
from flumina.plan.tree import Itag, Plan, PlanWorker, StreamShape
from flumina.program.base import define

Rows = Sequence[tuple[int, int]]
"""(timestamp, key)"""


def stream(name: str, parts: Sequence[Rows], *, seq: bool = False) -> fl.Stream:
    tables = [
        pa.table(
            {
                "ts": pa.array([ts for ts, _ in rows], pa.int64()),
                "k": pa.array([key for _, key in rows], pa.int64()),
                "n": pa.array([2 * row + part * seq for row in range(len(rows))], pa.int64()),
            }
        )
        for part, rows in enumerate(parts)
    ]
    return fl.Stream(name, getattr(KeyCounter, name), tables, seq="n" if seq else None)


def plan_of(*above: int) -> Plan:
    """These parts of the reads are handled by the root, the other by leaves, one of them in another process."""
    kind = define(KeyCounter).initial
    below = {0, 1} - set(above)
    leaves = []
    for place, keys in (("b", KeySet.everything() - KeySet.of(99)), ("a", KeySet.of(99))):
        own = [("inc", {0, 1}), *([("read", below)] if below else [])]
        itags = tuple(Itag(tag, frozenset(parts), TagSet({tag: keys})) for tag, parts in own)
        leaves.append(PlanWorker(f"leaf {place}", kind, itags, (), place))
    shapes = [StreamShape(name, 2, TagSet.all_of([tag])) for name, tag in define(KeyCounter).tags.items()]
    reads = Itag("read", frozenset(above), shapes[1].tags)
    return Plan.of(KeyCounter, shapes, PlanWorker("root", kind, (reads,), tuple(leaves), "a"))


LONG = [(ts, ts % 7) for ts in range(0, 4000, 2)]
INCS = [[(ts, ts % 7) for ts in range(part, 4000, 3)] for part in range(2)]
PLANS = [plan_of(0, 1), plan_of(0)]


@pytest.mark.parametrize("plan", PLANS, ids=["one worker", "above and below"])
@pytest.mark.parametrize("by_key", [True, False])
def test_a_dependent_tie_between_parts_is_refused(plan: Plan, *, by_key: bool) -> None:
    other = [(ts + 1, key) for ts, key in LONG]
    other[700] = (LONG[701][0], LONG[701][1])  # a tie with the next of the other part
    options = replace(EngineOptions().protocol, by_key=by_key)
    given = [stream("inc", INCS), stream("read", [LONG, other])]
    with pytest.raises(OrderError) as expected:
        fl.spec(KeyCounter, given)
    with pytest.raises(OrderError) as caught:
        local.run(
            KeyCounter, given, plan=plan, progress=False, engine_options=EngineOptions(chunk_rows=64, protocol=options)
        )
    assert (caught.value.condition, caught.value.hint) == (expected.value.condition, expected.value.hint)
    said = str(caught.value).replace(", ...", "")
    assert said == str(expected.value)


@pytest.mark.parametrize("plan", PLANS, ids=["one worker", "above and below"])
@pytest.mark.parametrize("by_key", [True, False])
def test_ties_of_other_keys_and_of_numbered_events_are_none(plan: Plan, *, by_key: bool) -> None:
    apart = [(ts, key + 7) for ts, key in LONG]
    engine_options = EngineOptions(chunk_rows=64, protocol=replace(EngineOptions().protocol, by_key=by_key))
    for given in (
        [stream("inc", INCS), stream("read", [LONG, apart])],
        [stream("inc", INCS), stream("read", [LONG, LONG], seq=True)],
    ):
        result = local.run(KeyCounter, given, plan=plan, progress=False, engine_options=engine_options, ordered=True)
        assert result.output.equals(fl.spec(KeyCounter, given).output)


@pytest.mark.parametrize("plan", PLANS, ids=["one worker", "above and below"])
def test_equal_numbers_are_refused(plan: Plan) -> None:
    read = stream("read", [LONG, LONG], seq=True)
    same = replace(read, data=[read.data[0], read.data[0]])
    with pytest.raises(OrderError, match="timestamp 0 with the same seq"):
        local.run(KeyCounter, [stream("inc", INCS), same], plan=plan, progress=False)
