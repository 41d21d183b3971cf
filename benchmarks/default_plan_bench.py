# ruff: noqa: INP001, T201 -- a script, which prints
"""Whether the default plan is ever slower than one worker: all apps, and twenty seeded random programs.

Each program gets so many events that one worker is busy for about ``--seconds`` of processor time (found by a pilot
run), and is run in turns under the plan that the optimizer chooses and under the sequential plan, from tables in
memory, outputs counted only. Printed for each: the workers of the default plan, best wall time of either, their ratio
(above 1: the default is slower) with the lowest and highest ratio of neighboring runs, and the ratio of processor time
of the busiest task, which tells more than wall time on a machine that others use. Where the default plan is the
sequential one, the ratio is one plus what planning took.

Run ``python benchmarks/default_plan_bench.py``; ``--quick`` takes small sizes, names select programs, ``--check`` fails
where the default is slower by more than ``LIMIT``.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import flumina as fl
from flumina import apps, local
from flumina.apps.registry import APPS
from flumina.engine.results import RunResult
from flumina.plan import estimate
from flumina.sim.programs import random_keyed_program, random_program

LIMIT = 1.1
PILOT = 20_000
PER_HOUR = 20 * 4 * 13 * 3600
"""Readings of the smart homes in an hour."""
MOST = 30_000_000
"""However fast a program is, it gets no more events than this."""


class Sales(fl.KeyedProgram):
    """Totals by item; a report sees all items."""

    sale = fl.Tag("amount long NOT NULL", key="item long")
    price = fl.Tag("amount long NOT NULL", key="item long")
    report = fl.Tag()
    depends = fl.depends((price, price), (price, sale), (report, report), (report, sale), (report, price))
    output = "total long"
    total = fl.Sum("long")
    last = fl.Replicated("long", 0)

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        """A sale adds, a price gives out what has been sold."""
        if event.tag is self.sale:
            state.total += event.amount
        else:
            emit(state.total)
            state.last = event.amount

    def update_all(self, states: dict[int, fl.State], _event: fl.Event, emit: fl.Emit) -> None:
        """Give out the total of all items."""
        emit(sum(state.total for state in states.values()))


class SalesByItem(fl.KeyedProgram):
    """The same without a report: all tags are keyed."""

    sale = fl.Tag("amount long NOT NULL", key="item long")
    price = fl.Tag("amount long NOT NULL", key="item long")
    depends = fl.depends((price, price), (price, sale))
    output = "total long"
    total = fl.Sum("long")
    last = fl.Replicated("long", 0)

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        """A sale adds, a price gives out what has been sold."""
        if event.tag is self.sale:
            state.total += event.amount
        else:
            emit(state.total)
            state.last = event.amount


class Documents(fl.Program):
    """One large value that all workers look at, and that is replaced now and then."""

    sale = fl.Tag("amount long NOT NULL", key="item long")
    price = fl.Tag("amount long NOT NULL", key="item long")
    depends = fl.depends(always=[(price, price), (price, sale)])
    output = "size long"
    text = fl.Replicated("string", "")
    seen = fl.Count()

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        """A sale is compared with the text, a price replaces it by a long one."""
        if event.tag is self.sale:
            state.seen += 1
            if event.amount == len(state.text):
                emit(event.amount)
        else:
            emit(state.seen)
            state.text = "x" * (100_000 + event.amount)


class Baskets(fl.Program):
    """A dict of lists under own fork and join: what the optimizer knows nothing about."""

    sale = fl.Tag("amount long NOT NULL", key="item long")
    price = fl.Tag("amount long NOT NULL", key="item long")
    depends = fl.depends(always=[(price, price), (price, sale)])
    output = "size long"

    def init(self) -> dict[int, int]:
        """No item has been seen."""
        return {}

    def update(self, state: dict[int, int], event: fl.Event, emit: fl.Emit) -> None:
        """A sale adds, a price gives out how many items there are."""
        if event.tag is self.sale:
            state[event.key] = state.get(event.key, 0) + event.amount
        else:
            emit(len(state))

    def fork(self, state: dict[int, int], left: fl.TagSet, right: fl.TagSet) -> tuple[dict[int, int], dict[int, int]]:  # noqa: ARG002
        """All to the left."""
        return state, {}

    def join(self, left: dict[int, int], right: dict[int, int]) -> dict[int, int]:
        """Sums are added."""
        for key, amount in right.items():
            left[key] = left.get(key, 0) + amount
        return left


@dataclass(frozen=True)
class Case:
    """A program, and its streams as a function of the number of events."""

    name: str
    program: type[fl.Program]
    streams: Callable[[int], list[fl.Stream]]


def shop(program: type[fl.Program], rng: random.Random) -> tuple[str, Callable[[int], list[fl.Stream]]]:
    """Random sales, prices and reports: many or few keys, hot or not, few or many joins."""
    keys, hot = rng.choice([10, 1_000, 20_000, 200_000]), rng.choice([0.0, 0.5, 0.9])
    prices, reports = rng.choice([20, 200, 2_000]), rng.choice([1, 10])
    seed = rng.randrange(1 << 30)

    def streams(count: int) -> list[fl.Stream]:
        made = np.random.default_rng(seed)
        items = np.where(made.random(count) < hot, 0, made.integers(0, keys, count))
        sales = pa.table({"ts": np.arange(count), "item": items, "amount": made.integers(0, 1000, count)})
        often = max(1, min(prices, count // 20))
        at = np.linspace(0, count, often).astype(np.int64)
        priced = np.where(made.random(often) < hot, 0, made.integers(0, keys, often))
        changes = pa.table({"ts": at, "item": priced, "amount": np.arange(often)})
        found = [
            fl.Stream("sales", program.sale, [sales.take(np.arange(part, count, 2)) for part in range(2)]),
            fl.Stream("prices", program.price, changes),
        ]
        if hasattr(program, "report"):
            found.append(fl.Stream("reports", program.report, {"ts": np.linspace(0, count, reports).astype(np.int64)}))
        return found

    extra = f" {reports} reports" if hasattr(program, "report") else ""
    return f"{program.__name__} {keys:,} keys, {hot:.0%} hot, {prices:,} prices{extra}", streams


def mixed(program: type[fl.Program], rng: random.Random) -> Callable[[int], list[fl.Stream]]:
    """Events for a program of the simulator: one frequent tag, rarer ones, and few keys or many."""
    tags = [value for value in vars(program).values() if isinstance(value, fl.Tag)]
    keys, rarer = rng.choice([4, 100, 20_000]), rng.choice([100, 1_000, 10_000])
    seed = rng.randrange(1 << 30)

    def streams(count: int) -> list[fl.Stream]:
        made = np.random.default_rng(seed)
        found = []
        for number, tag in enumerate(tags):
            size = count if number == 0 else max(1, count // rarer)
            columns = {"ts": np.linspace(0, count, size).astype(np.int64), "v": made.integers(0, 1000, size)}
            if tag.key is not None:
                columns["k"] = made.integers(0, keys, size)
            table = pa.table(columns)
            parts = 1 if size < count else 2
            found.append(fl.Stream(tag.name, tag, [table.take(np.arange(p, size, parts)) for p in range(parts)]))
        return found

    return streams


def cases() -> list[Case]:
    """All programs; always the same ones."""
    found = []
    for name, app in APPS.items():
        programs = [app.program, app.by_hand] if app.by_hand is not None else [app.program]
        programs += [apps.KeyCounterMap, apps.KeyCounterByHand] if app.program is apps.KeyCounter else []
        for program in dict.fromkeys(p for p in programs if p is not None):
            if name == "smart-home":
                made = lambda count, app=app: app.generate(parts=2, hours=max(1, count // PER_HOUR)).tables()  # noqa: E731
            else:
                made = lambda count, app=app: app.generate(events=count, parts=2).tables()  # noqa: E731
            found.append(Case(program.__name__, program, _retagged(program, made)))
    for number in range(20):
        rng = random.Random(number)
        if number < 12:
            name, streams = shop((Sales, SalesByItem, Documents, Baskets)[number % 4], rng)
            program: type[fl.Program] = (Sales, SalesByItem, Documents, Baskets)[number % 4]
        else:
            program = (random_program if number % 2 else random_keyed_program)(rng)
            name, streams = program.__name__, mixed(program, rng)
        found.append(Case(f"random {number}: {name}", program, streams))
    return found


def _retagged(program: type[fl.Program], made: Callable[[int], list[fl.Stream]]) -> Callable[[int], list[fl.Stream]]:
    """The input of an app for another program with tags of the same names."""

    def streams(count: int) -> list[fl.Stream]:
        return [fl.Stream(s.name, getattr(program, s.tag.name), s.data) for s in made(count)]

    return streams


@dataclass
class Timed:
    """One run."""

    wall: float
    busiest: float
    result: RunResult


def timed(case: Case, streams: Sequence[fl.Stream], optimizer: str) -> Timed:
    """Run once."""
    start = time.perf_counter()
    result = local.run(case.program, streams, optimizer=optimizer, out=fl.DISCARD, progress=False)
    wall = time.perf_counter() - start
    return Timed(wall, max(task.cpu_seconds for task in result.stats.tasks.values()), result)


def measure(case: Case, seconds: float, repeat: int) -> float:
    """Print the line of one program; the ratio of the best wall times."""
    count = PILOT
    streams = case.streams(count)
    pilot = timed(case, streams, "sequential")
    for _ in range(3):  # what fixed costs hide shows with more events
        if pilot.busiest >= 0.7 * seconds or count >= MOST:
            break
        count = int(min(MOST, count * min(20.0, seconds / max(pilot.busiest, 1e-3))))
        streams = case.streams(count)
        pilot = timed(case, streams, "sequential")
    one, default = [pilot], [timed(case, streams, "cost")]
    workers = len(default[0].result.plan.leaves)
    if workers == 1:
        start = time.process_time()
        fl.plan.make_plan(case.program, estimate(case.program, streams), slots=local.run.__globals__["cores"]())
        ratio = lowest = highest = busy = 1 + (time.process_time() - start) / pilot.busiest
    else:
        for _ in range(repeat - 1):
            one.append(timed(case, streams, "sequential"))
            default.append(timed(case, streams, "cost"))
        ratios = [d.wall / o.wall for o, d in zip(one, default, strict=True)]
        lowest, highest = min(ratios), max(ratios)
        ratio = min(d.wall for d in default) / min(o.wall for o in one)
        busy = min(d.busiest for d in default) / min(o.busiest for o in one)
    events, joins = default[0].result.stats.events, default[0].result.stats.joins
    print(
        f"| {case.name} | {events:,} | {workers} | {joins:,} | {min(o.wall for o in one):.1f} "
        f"| {min(d.wall for d in default):.1f} | {ratio:.2f} ({lowest:.2f}-{highest:.2f}) | {busy:.2f} |",
        flush=True,
    )
    return ratio


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only programs whose names contain one of these")
    parser.add_argument("--seconds", type=float, default=5.0, help="processor time of one worker")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="half a second each, two runs")
    parser.add_argument("--check", action="store_true", help=f"fail where the default takes more than {LIMIT} as long")
    args = parser.parse_args()
    seconds, repeat = (0.5, 2) if args.quick else (args.seconds, args.repeat)
    chosen = [c for c in cases() if not args.names or any(n.lower() in c.name.lower() for n in args.names)]
    print("| program | events | workers | joins | one worker, s | default, s | default / one | busiest task |")
    print("|---|---|---|---|---|---|---|---|")
    slower = [case.name for case in chosen if measure(case, seconds, repeat) > LIMIT]
    print(f"slower by more than {LIMIT - 1:.0%}: {', '.join(slower) or 'none'} (of {len(chosen)})")
    return int(bool(slower) and args.check)


if __name__ == "__main__":
    sys.exit(main())
