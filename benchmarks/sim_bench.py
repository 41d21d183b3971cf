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
from flumina.sim.weather import Weather

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


def measured(made: list[Case], weather: Weather) -> str:
    """One line: how fast runs under this weather are."""
    steps, start = 0, time.process_time()
    for seed in range(ROUNDS):
        for number, case in enumerate(made):
            outcome = Simulation(case, Random(seed * CASES + number), weather=weather).run()
            judge(case, outcome)
            steps += outcome.steps
    spent, runs = time.process_time() - start, CASES * ROUNDS
    return f"{runs / spent:>12.0f}{steps / runs:>8.0f}{spent / steps * 1e6:>10.1f}"


def main() -> int:
    """Measure, and print."""
    made = cases()
    print(f"{WORKERS} workers, {EVENTS} events; 1000 turns of a bare loop take {bare_loop() / 2000 * 1e6:.1f} us")
    print("events a send   schedules/s   steps   us/step")
    for most in (4, 12, 30):
        print(f"up to {most:>2}      {measured(made, Weather(most_events=most))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
