"""What an event costs does not depend on how many keys are under way: steps are counted, not seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from benchmarks.keys_bench import LEVELS, Flight
from flumina.runtime.keyed_leaf import KeyedLeaf
from flumina.runtime.topology import ProtocolOptions

FEW, TURNS, MORE = 100, 12, 1.5
PROTOCOLS = {
    "hands over": ProtocolOptions(),
    "waits": ProtocolOptions(hand_over=False),
    "one at a time": ProtocolOptions(coalesce=False, pipeline=False, hand_over=False),
}
protocols = pytest.mark.parametrize("options", PROTOCOLS.values(), ids=PROTOCOLS.keys())
levels_of_plan = pytest.mark.parametrize("levels", LEVELS)


def steps(work: Callable[[], None]) -> int:
    """How many instructions of Python some work takes, whatever functions they are in."""
    count = 0

    def inside(_: FrameType, event: str, __: Any) -> Any:
        nonlocal count
        count += event == "opcode"
        return inside

    def called(frame: FrameType, _: str, __: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return inside

    before = sys.gettrace()
    sys.settrace(called)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def some_turns(flight: Flight) -> None:
    for _ in range(TURNS):
        flight.turn()


def turns(flight: Flight) -> float:
    """Steps of a turn, in which the number of keys under way stays the same."""
    under_way = flight.under_way()
    flight.turn()  # what is made once is made
    counted = steps(partial(some_turns, flight))
    assert flight.under_way() == under_way
    return counted / TURNS


def started(keys: int, options: ProtocolOptions, levels: int) -> Flight:
    flight = Flight(keys, options, levels=levels)
    ahead, behind = flight.workers["l0"], flight.workers["l1"]
    assert isinstance(ahead, KeyedLeaf)
    assert isinstance(behind, KeyedLeaf)
    assert flight.under_way() == len(behind.hot) == keys - 1
    if not ahead.shape.hands_over:
        assert sum(hot.away for hot in ahead.hot.values()) == ahead.waiting + 1 == keys - 1, (
            "their states are away, and events of them wait"
        )
    return flight


def test_steps_are_counted_wherever_they_are_made() -> None:
    def walk(n: int) -> None:
        assert sum(x for x in range(n)) == len([y for y in range(n)]) * (n - 1) // 2  # noqa: C416

    assert steps(lambda: walk(1_000)) > 8 * steps(lambda: walk(100)) > 0


@protocols
@levels_of_plan
def test_a_turn_costs_the_same_with_any_number_of_keys_under_way(options: ProtocolOptions, levels: int) -> None:
    few = turns(started(FEW, options, levels))
    for keys in (10 * FEW, 100 * FEW):
        assert turns(started(keys, options, levels)) < MORE * few


@pytest.mark.soak
@pytest.mark.timeout(1800)
@protocols
@levels_of_plan
def test_the_same_with_a_hundred_thousand_keys(options: ProtocolOptions, levels: int) -> None:
    assert turns(started(1_000 * FEW, options, levels)) < MORE * turns(started(FEW, options, levels))


@protocols
@levels_of_plan
def test_what_is_answered_at_once_costs_the_same_for_each_key(options: ProtocolOptions, levels: int) -> None:
    """All answers of a pass travel in few messages, and each of them is looked at once."""
    costs = []
    for keys in (FEW, 5 * FEW):
        flight = started(keys, options, levels)
        before, outputs = flight.messages, flight.outputs
        costs.append(steps(flight.land) / flight.keys)
        assert flight.outputs - outputs == keys - 1
        assert flight.under_way() == 0
        assert flight.messages - before < 12 * levels, "not one for each key"
    assert costs[1] < MORE * costs[0]


@protocols
@levels_of_plan
def test_a_snapshot_that_waits_for_many_keys_costs_nothing_more(options: ProtocolOptions, levels: int) -> None:
    few, many = (Flight(keys, options, levels=levels, snapshot=keys - 1) for keys in (FEW, 20 * FEW))
    costs = []
    for flight in (few, many):
        flight.turn()
        assert flight.workers["w0"].barrier is not None, "all states are wanted"  # type: ignore[attr-defined]
        costs.append(steps(partial(some_turns, flight)))
    assert costs[1] < MORE * costs[0]
    for flight in (few, many):
        flight.land()
        flight.end()
        assert flight.tree_root.finished
        (snapshot,) = flight.tree_root.snapshots.values()
        assert snapshot, "it has been taken"
        assert flight.outputs == flight.reads
