# ruff: noqa: INP001, T201 -- a script, which prints
"""How long planning takes as the input grows: itags against seconds, and against n log n.

Run ``python benchmarks/plan_bench.py``; ``--check`` makes it fail if 10,000 itags take 2 seconds or more, or if time
grows faster than n log n (by more than a factor that machines vary by).
"""

from __future__ import annotations

import argparse
import gc
import math
import random
import sys
import time
from collections.abc import Callable

from flumina.apps import KeyCounter, ValueBarrier
from flumina.plan import StreamRates, make_plan
from flumina.program.base import Program

SIZES = (100, 1_000, 10_000)
LIMIT_SECONDS = 2.0
LIMIT_GROWTH = 2.0


def by_key(count: int) -> list[StreamRates]:
    """Hot keys: two itags each, which depend on each other."""
    rng = random.Random(count)
    keys = range(count // 2 - 1)
    hot = {key: rng.paretovariate(1.2) for key in keys}
    total = sum(hot.values())
    return [
        StreamRates("increments", {"inc": 2 * total}, hot={"inc": hot}),
        StreamRates("reads", {"read": 1.0}, hot={"read": dict.fromkeys(keys, 0.5 / count)}),
    ]


def by_part(count: int) -> list[StreamRates]:
    """Many parts that one rare event holds together."""
    return [StreamRates("values", {"value": 1e6}, parts=count - 1), StreamRates("barriers", {"barrier": 1.0})]


def by_stream(count: int) -> list[StreamRates]:
    """The same with a stream for each part."""
    values = [StreamRates(f"values{number}", {"value": 1e6 / count}) for number in range(count - 1)]
    return [*values, StreamRates("barriers", {"barrier": 1.0})]


CASES: dict[str, tuple[type[Program], Callable[[int], list[StreamRates]]]] = {
    "keys": (KeyCounter, by_key),
    "parts": (ValueBarrier, by_part),
    "streams": (ValueBarrier, by_stream),
}


def seconds(
    program: type[Program], sources: list[StreamRates], optimizer: str, slots: int | None, repeat: int
) -> float:
    """The best of several times of the processor, so that others on the machine count as little as possible."""
    best = math.inf
    for _ in range(repeat):
        gc.collect()
        start = time.process_time()
        make_plan(program, sources, slots=slots, optimizer=optimizer)
        best = min(best, time.process_time() - start)
    return best


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if a promise is broken")
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    failed = False
    print(f"{'optimizer':>10} {'input':>7} {'workers':>8} {'itags':>7} {'seconds':>9} {'us / (n log2 n)':>16}")
    for optimizer, slots in (("greedy", 64), ("greedy", None), ("cost", 64)):
        for case, (program, make) in CASES.items():
            per_unit = []
            for size in SIZES:
                took = seconds(program, make(size), optimizer, slots, args.repeat)
                per_unit.append(took / (size * math.log2(size)) * 1e6)
                workers = "any" if slots is None else slots
                print(f"{optimizer:>10} {case:>7} {workers:>8} {size:>7,} {took:>9.3f} {per_unit[-1]:>16.2f}")
            failed |= optimizer == "greedy" and took >= LIMIT_SECONDS
            failed |= optimizer == "greedy" and per_unit[-1] > LIMIT_GROWTH * per_unit[-2]
    return int(failed and args.check)


if __name__ == "__main__":
    sys.exit(main())
