"""What coalescing, pipelining and hand-over save, on the same cases and seeds; run this file to see the figures.

Of 600 random cases (seeds 0 to 599, 40 events)::

    plain               14740 joins  22104 waits of leaves      0 without waiting
    coalesced            6462 joins   9401 waits of leaves      0 without waiting
    also pipelined       5482 joins   7654 waits of leaves      0 without waiting
    also handing over    5554 joins   3907 waits of leaves  10210 without waiting
"""

from __future__ import annotations

from random import Random

from flumina.program.base import define
from flumina.runtime.stats import WorkerStats
from flumina.runtime.topology import ProtocolOptions
from flumina.sim.plans import random_case
from flumina.sim.programs import random_program
from flumina.sim.scheduler import Simulation, judge
from tests.runtime.support import COALESCED, PIPELINED, PLAIN

PROTOCOLS = {
    "plain": PLAIN,
    "coalesced": COALESCED,
    "also pipelined": PIPELINED,
    "also handing over": ProtocolOptions(),
}


def measured(seeds: range) -> dict[str, WorkerStats]:
    """What all workers did, for each protocol."""
    totals = dict.fromkeys(PROTOCOLS, WorkerStats())
    for seed in seeds:
        random = Random(seed)
        case = random_case(random, define(random_program(random)), 40)
        for name, options in PROTOCOLS.items():
            outcome = Simulation(case, Random(seed), options=options).run()
            judge(case, outcome)
            totals[name] = sum(outcome.stats.values(), totals[name])
    return totals


def test_each_saves_something() -> None:
    totals = measured(range(60))
    joins = {name: stats.joins for name, stats in totals.items()}
    assert joins["plain"] > 2 * joins["coalesced"] > 2 * joins["also pipelined"]
    assert joins["also handing over"] < joins["coalesced"], "coalescing works there too"
    assert len({stats.events for stats in totals.values()}) == 1
    blocked = {name: stats.blocked for name, stats in totals.items()}
    assert blocked["plain"] > blocked["coalesced"] > blocked["also handing over"]
    assert totals["plain"].handed == totals["also pipelined"].handed == 0
    assert totals["plain"].coalesced < 10, "only what shares a point is served together"
    assert totals["also handing over"].handed > 0


if __name__ == "__main__":
    for title, total in measured(range(600)).items():
        print(f"{title:18} {total.joins:6} joins {total.blocked:6} waits of leaves {total.handed:6} without waiting")  # noqa: T201
