# ruff: noqa: INP001, T201 -- a script, which prints
"""How many random schedules a second the simulator runs, with every check on, in one process.

The target is 300 a second for 3 workers and 60 events on a quiet core. Time is that of the process, since machines are
shared; the time of a bare loop of Python is shown beside it, so that slow machines can be told from slow code.
"""

from __future__ import annotations

import sys
import time
from random import Random

from flumina.sim.case import Case
from flumina.sim.scheduler import Simulation, judge
from flumina.sim.trial import Setting, trial

CASES, ROUNDS, WORKERS, EVENTS = 40, 5, 3, 60


def cases() -> list[Case]:
    """Cases of random programs and apps with three workers."""
    found: list[Case] = []
    setting = Setting(events=EVENTS)
    seed = 0
    while len(found) < CASES:
        case = trial(seed, setting).case
        seed += 32
        if len(case.plan) == WORKERS:
            case.outputs()  # the oracle runs once a case
            found.append(case)
    return found


def bare_loop() -> float:
    """Seconds for two million turns of a loop: what this machine is worth at this moment."""
    start = time.process_time()
    total = 0
    for n in range(2_000_000):
        total += n & 3
    return time.process_time() - start


def main() -> int:
    """Measure, and print."""
    made = cases()
    loop, steps, start = bare_loop(), 0, time.process_time()
    for seed in range(ROUNDS):
        for number, case in enumerate(made):
            outcome = Simulation(case, Random(seed * CASES + number)).run()
            judge(case, outcome)
            steps += outcome.steps
    spent = time.process_time() - start
    runs = CASES * ROUNDS
    print(
        f"{runs / spent:.0f} schedules a second of {WORKERS} workers and {EVENTS} events, {steps / runs:.0f} steps each"
    )
    print(f"{spent / steps * 1e6:.1f} us a step; 1000 turns of a bare loop take {loop / 2000 * 1e6:.1f} us")
    return 0


if __name__ == "__main__":
    sys.exit(main())
