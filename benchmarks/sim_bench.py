# ruff: noqa: INP001, T201 -- a script, which prints
"""How many random schedules a second the simulator runs, with every check on, in one process.

The target is 300 a second for 3 workers and 60 events on a quiet core. Machines are shared, and their speed changes by
half within seconds: every schedule is run several times, and beside the rate of all runs stands that of the fastest run
of each, which is what a quiet core does. The time of a bare loop of Python tells slow machines from slow code.
"""

from __future__ import annotations

import sys
import time
from random import Random

from flumina.sim.case import Case
from flumina.sim.conditions import Conditions
from flumina.sim.scheduler import Simulation, judge
from flumina.sim.trial import Setting, trial

CASES, SEEDS, REPEATS, WORKERS, EVENTS = 40, 3, 8, 3, 60


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


def measured(made: list[Case], conditions: Conditions) -> str:
    """One line: how fast runs under this conditions are."""
    steps, total, quiet = 0, 0.0, 0.0
    for seed in range(SEEDS):
        for number, case in enumerate(made):
            times = []
            for _ in range(REPEATS):
                start = time.perf_counter()
                outcome = Simulation(case, Random(seed * CASES + number), conditions=conditions).run()
                judge(case, outcome)
                times.append(time.perf_counter() - start)
            steps, total, quiet = steps + outcome.steps, total + sum(times), quiet + min(times)
    runs = SEEDS * CASES
    return f"{REPEATS * runs / total:>8.0f}{runs / quiet:>8.0f}{steps / runs:>8.0f}{quiet / steps * 1e6:>10.1f}"


def main() -> int:
    """Measure, and print."""
    made = cases()
    print(f"{WORKERS} workers, {EVENTS} events; 1000 turns of a bare loop take {bare_loop() / 2000 * 1e6:.1f} us")
    print("schedules/s:        all   quiet   steps   us/step")
    for most in (4, 12, 30):
        print(f"sends up to {most:>2} {measured(made, Conditions(most_events=most))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
