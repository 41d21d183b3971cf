"""What holds for all workers: effects follow from messages, in columns as in lists; statistics add up."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from flumina.apps import KeyCounter, PageViews, ValueBarrier
from flumina.apps.fraud import Fraud, FraudByHand
from flumina.model.order import END, START, Point, heartbeat
from flumina.program.base import AnyProgram, define
from flumina.runtime.build import workers
from flumina.runtime.messages import Credit, Data, Message, Request, Stop
from flumina.runtime.run import EMPTY
from flumina.runtime.stats import WorkerStats
from flumina.runtime.topology import ProtocolOptions
from flumina.runtime.worker import Address, Effects, Worker
from flumina.sim.case import Case
from flumina.sim.plans import random_case
from flumina.sim.programs import random_program
from flumina.sim.scheduler import Simulation, compare, judge, same_state
from flumina.state.compare import copied, same
from tests.runtime.support import COALESCED, PIPELINED, PLAIN, ColumnSimulation, MixedSimulation

ALL_OPTIONS = [PLAIN, COALESCED, PIPELINED, ProtocolOptions()]
APPS: list[AnyProgram] = [ValueBarrier, Fraud, FraudByHand, KeyCounter, PageViews]


def a_case(seed: int) -> Case:
    random = Random(seed)
    return random_case(random, define(random_program(random)), 40)


class Recording:
    """Passes messages on to a worker, and keeps what went in and what came out; both as they were at the time."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.received: list[tuple[Address, Message]] = []
        self.effects: list[Effects] = []

    def handle(self, sender: Address, message: Message) -> Effects:
        self.received.append((sender, copied(message)))
        effects = self.worker.handle(sender, message)
        self.effects.append(copied(effects))
        return effects

    def __getattr__(self, name: str) -> Any:
        return getattr(self.worker, name)


@pytest.mark.parametrize("options", ALL_OPTIONS, ids=str)
def test_the_same_messages_in_the_same_order_give_the_same_effects(options: ProtocolOptions) -> None:
    for seed in range(8):
        case = a_case(seed)
        made = {name: Recording(w) for name, w in workers(case.plan, case.definition, options).items()}
        run = Simulation(case, Random(seed), build_workers=lambda *_, made=made: made)
        judge(case, run.run())
        again = workers(case.plan, case.definition, options)
        for name, recording in made.items():
            for received, effects in zip(copied(recording.received), recording.effects, strict=True):
                once_more = again[name].handle(*received)
                assert same(once_more.sends, effects.sends)
                assert repr(once_more.outputs) == repr(effects.outputs)
            assert again[name].stats == recording.worker.stats


@pytest.mark.parametrize("simulation", [ColumnSimulation, MixedSimulation])
@pytest.mark.parametrize("program", APPS, ids=lambda program: program.__name__)
def test_columns_give_the_outputs_of_the_oracle(program: AnyProgram, simulation: type[Simulation]) -> None:
    for seed in range(12):
        random = Random(seed)
        case = random_case(random, define(program), 40)
        judge(case, simulation(case, random, options=ALL_OPTIONS[seed % 4]).run())


def test_random_programs_in_columns() -> None:
    for seed in range(25):
        case = a_case(seed)
        judge(case, ColumnSimulation(case, Random(seed), options=ALL_OPTIONS[seed % 4]).run())


def test_a_run_can_be_taken_up_from_any_snapshot() -> None:
    for seed in range(25):
        case = a_case(seed)
        random = Random(seed)
        points = {random.choice(case.in_order)[0] for _ in range(3)}
        whole = Simulation(case, random, snapshots=sorted(points | {heartbeat(3, 0)})).run()
        judge(case, whole)
        for snapshot in whole.snapshots:
            judge(case, Simulation(case, Random(seed), resume=snapshot).run(), snapshot)


def test_statistics_add_up() -> None:
    for seed in range(12):
        case = a_case(seed)
        outcome = Simulation(case, Random(seed), options=ALL_OPTIONS[seed % 4]).run()
        total = sum(outcome.stats.values(), WorkerStats())
        inner = [worker.id for worker in case.plan.workers if worker.children and worker.id in outcome.stats]
        assert total.events == len(case.in_order)
        assert total.joins == sum(outcome.stats[name].joins for name in inner)
        assert total.forks >= len(inner), "each is given its first state"
        assert total.buffered == max(stats.buffered for stats in outcome.stats.values())
        for worker in case.plan.workers:
            stats = outcome.stats.get(worker.id, WorkerStats())  # those of the forest are not there
            routed = sum(routes.count(worker.id) for routes in case.routes.values())
            assert stats.events == routed
            assert stats.runs <= stats.events
            assert stats.buffered <= routed


@pytest.mark.parametrize("simulation", [Simulation, ColumnSimulation, MixedSimulation])
def test_some_events_are_counted_by_themselves_whatever_the_plan(simulation: type[Simulation]) -> None:
    seen: set[bool] = set()
    for seed in range(40):
        random = Random(seed)
        case = random_case(random, define(APPS[seed % len(APPS)]), 40)
        counted = case.definition.synchronizing
        wanted = sum(counted.has(event.tag, event.key) for _, event in case.in_order)
        run = simulation(case, Random(seed), options=replace(ALL_OPTIONS[seed % 4], counted=counted))
        run.run()
        assert sum(worker.counted for worker in run.workers.values()) == wanted
        seen |= {bool(worker.shape.children) for worker in run.workers.values() if worker.counted}
        plain = simulation(case, Random(seed), options=ALL_OPTIONS[seed % 4])
        plain.run()
        assert not any(worker.counted for worker in plain.workers.values())
    assert seen == {True, False}, "by inner workers and by leaves"


def test_a_worker_refuses_what_is_not_for_it() -> None:
    case = a_case(0)
    for worker in workers(case.plan, case.definition).values():
        with pytest.raises(AssertionError, match="got Credit"):
            worker.handle("?", Credit(("s0", 0), 1))


def test_a_parent_frontier_never_goes_back() -> None:
    case = a_case(0)
    for worker in workers(case.plan, case.definition).values():
        worker.handle("?", Request((), heartbeat(3, 0), START))
        with pytest.raises(AssertionError, match="never goes back"):
            worker.handle("?", Request((), heartbeat(2, 0), START))


def test_what_was_passed_never_goes_back_and_the_end_is_no_timestamp() -> None:
    case = a_case(0)
    for worker in workers(case.plan, case.definition).values():
        worker.pass_by(Point(*END))
        assert worker.passed is None
        for ts, passed in ((500, 500), (300, 500), (700, 700)):
            worker.pass_by(Point(ts, 0, 0))
            assert worker.passed == passed


def test_a_worker_is_not_cut_off_before_what_it_has_passed() -> None:
    case = a_case(0)
    for worker in workers(case.plan, case.definition).values():
        worker.pass_by(Point(500, 0, 0))
        with pytest.raises(AssertionError, match=f"{worker.id} is past 499"):
            worker.truncate(499)
        worker.truncate(500)
    for worker in workers(case.plan, case.definition).values():
        worker.truncate(499)


@pytest.mark.parametrize("program", APPS, ids=lambda p: p.__name__)
def test_a_final_state_that_nobody_wants_is_not_joined(program: AnyProgram) -> None:
    """As in most runs of the engines. Snapshots and outputs are the same, and so are states on the way."""
    spared = 0
    for seed in range(12):
        random = Random(seed)
        case = random_case(random, define(program), 30)
        snapshots = sorted({point for point, _ in random.sample(case.in_order, 2)})
        outcome = Simulation(case, random, options=ProtocolOptions(final=False), snapshots=snapshots).run()
        if outcome.state is None:
            spared += 1
        else:  # it was there
            same_state(case, outcome.state, END, "the final state")
        compare(case, outcome.rows)
        assert [snapshot.point for snapshot in outcome.snapshots] == snapshots
        for snapshot in outcome.snapshots:
            same_state(case, snapshot.state, snapshot.point, "a snapshot")
    assert spared > 3


def test_the_end_is_known_by_its_value() -> None:
    """It comes from another process, as an equal object."""
    case = a_case(0)
    for worker in workers(case.plan, case.definition, ProtocolOptions(final=False)).values():
        assert not worker.needs_state(Point(*END))
        assert worker.needs_state(Point(5, 0, 0))


def test_only_who_was_cut_off_may_be_told_of_an_end_after_the_stop() -> None:
    case = a_case(0)
    ended = Data(next(iter(case.parts)), EMPTY, END)
    for worker in workers(case.plan, case.definition).values():
        worker.truncate(5)
        worker.handle("?", Stop())
        assert worker.handle(ended.part, ended) == Effects()
    for worker in workers(case.plan, case.definition).values():
        worker.handle("?", Stop())
        with pytest.raises(AssertionError, match="was stopped and got Data"):
            worker.handle(ended.part, ended)
