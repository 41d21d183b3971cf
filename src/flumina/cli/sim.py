"""``flumina sim``: run a program, or random ones, under random schedules and faults."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from flumina.errors import UsageError
from flumina.plan.tree import Plan
from flumina.plan.validity import check_valid
from flumina.program.base import define
from flumina.program.loading import load_program
from flumina.runtime.topology import ProtocolOptions
from flumina.sim.ablation import ablation, table
from flumina.sim.coverage import Coverage
from flumina.sim.explore import TooManyStatesError, explore
from flumina.sim.failure import examine
from flumina.sim.shrink import Shrinker
from flumina.sim.trace import Trace
from flumina.sim.trial import Setting, trial

_SAVINGS = 50
"""The most cases on which protocols are compared."""

_HELP = """\
The seed determines a run: program, plan, input, conditions, faults and schedule. A failure is shortened and shown step
by step; --seed repeats it exactly.

examples:

  flumina sim --seeds 2000
  flumina sim flumina.apps:PageViews --seeds 500 --events 100
  flumina sim flumina.apps:PageViews --plan plan.json
  flumina sim --seed 1234 --trace
  flumina sim flumina.apps:ValueBarrier --exhaustive
"""


def add_parser(subparsers: Any) -> None:  # noqa: ANN401 -- argparse has no public name for it
    """Add ``sim`` to the commands of ``flumina``."""
    parser = subparsers.add_parser(
        "sim",
        help="run plans under random schedules and faults",
        description="Run the real workers under random schedules and faults, and compare with the sequential program.",
        epilog=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("program", nargs="?", help="module:Program; without it, random programs and the apps")
    parser.add_argument("--plan", metavar="FILE", help="run this plan of the program, as flumina plan has saved it")
    parser.add_argument("--seeds", type=int, metavar="N", help="number of runs (default 1000; with --exhaustive 20)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first of the seeds (default 0)")
    parser.add_argument("--seed", type=int, metavar="N", help="this run only")
    parser.add_argument("--events", type=int, metavar="N", help="events in a run (default 60; with --exhaustive 2)")
    parser.add_argument("--exhaustive", action="store_true", help="follow every schedule of each run; nothing crashes")
    parser.add_argument(
        "--states",
        type=int,
        default=20_000,
        metavar="N",
        help="with --exhaustive: leave out larger runs (default 20000)",
    )
    parser.add_argument("--no-faults", action="store_true", help="nothing crashes")
    for switch in ("coalesce", "pipeline", "hand-over", "by-key"):
        parser.add_argument(f"--no-{switch}", action="store_true", help=f"switch off: {switch}")
    parser.add_argument("--trace", action="store_true", help="with --seed: tell the run step by step")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do what the command line asks; 1 if a run failed."""
    args.seeds = args.seeds if args.seeds is not None else 20 if args.exhaustive else 1000
    args.events = args.events if args.events is not None else 2 if args.exhaustive else 60
    if args.seeds < 1 or args.events < 0:
        raise UsageError("SIM", "--seeds and --events are positive numbers")
    setting = _setting(args)
    seeds = range(args.first, args.first + args.seeds) if args.seed is None else range(args.seed, args.seed + 1)
    if args.exhaustive:
        return _explore_all(seeds, setting, _command(args), args.states)
    coverage, shrinker = Coverage(), Shrinker()
    started = shown = time.monotonic()
    last = None
    for done, seed in enumerate(seeds, 1):
        one = trial(seed, setting)
        if one.case is not last:
            last = one.case
            coverage.add_case(last)
        trace = Trace()
        decisions = one.decisions()
        try:
            outcome = one.run(decisions, witness=trace if args.trace else None)
        except Exception:  # noqa: BLE001 -- whatever it is, it is what we look for
            print(f"{done} of {len(seeds)} runs, one failed; shortening it ...", file=sys.stderr)
            failing = shrinker.attempt(one)
            print(
                examine(failing, command=_command(args))
                if failing is not None
                else f"seed {seed} failed once and not again"
            )
            return 1
        if args.trace:
            print(trace)
        if not one.crashes:
            coverage.add_run(last.plan, len(outcome.rows), outcome.stats, outcome.steps)
        if time.monotonic() - shown > 5:
            shown = time.monotonic()
            print(f"{done} of {len(seeds)} runs, {done / (shown - started):.0f} a second", file=sys.stderr)
    spent = time.monotonic() - started
    print(f"{len(seeds)} runs without a failure, {len(seeds) / spent:.0f} a second")
    print(coverage)
    compared = [trial(seed, setting) for seed in seeds[:: max(1, len(seeds) // _SAVINGS)]][:_SAVINGS]
    print(f"\nthe same {len(compared)} runs under each protocol:\n{table(ablation(compared))}")
    return 0


def _explore_all(seeds: range, setting: Setting, command: str, most_states: int) -> int:
    """Explore every schedule of the case of each seed; cases with too many states are skipped, and counted."""
    schedules = states = left_out = 0
    for done, seed in enumerate(seeds, 1):
        one = trial(seed, setting)
        try:
            explored = explore(
                one.case,
                options=one.options,
                credits_=one.conditions.credits,
                snapshots=one.snapshots,
                most_states=most_states,
            )
        except TooManyStatesError:
            left_out += 1
            continue
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is what we look for
            print(f"a schedule of seed {seed} fails: {type(error).__name__}: {error}")
            print(f"input and plan:\n{one.case.plan.explain()}\nrepeat with: {command} --seed {seed}")
            return 1
        schedules, states = schedules + explored.schedules, states + explored.states
        print(f"{done} of {len(seeds)}: seed {seed} has {explored}", file=sys.stderr)
    print(f"{len(seeds) - left_out} runs: all {schedules:,} schedules, through {states:,} states, end well")
    if left_out:
        print(f"{left_out} runs with more than {most_states:,} states were left out; see --events and --states")
    return 0


def _command(args: argparse.Namespace) -> str:
    """Return the command line without its seeds."""
    exhaustive = ["--exhaustive", "--states", str(args.states)] if args.exhaustive else []
    switches = [f"--no-{word}" for word in ("coalesce", "pipeline", "hand-over", "by-key", "faults")]
    given = [switch for switch in switches if getattr(args, switch[2:].replace("-", "_"))]
    plan = [] if args.plan is None else ["--plan", args.plan]
    words = ["flumina sim", *([args.program] if args.program else []), *plan, "--events", str(args.events)]
    return " ".join([*words, *given, *exhaustive])


def _setting(args: argparse.Namespace) -> Setting:
    options = None
    if args.no_coalesce or args.no_pipeline or args.no_hand_over or args.no_by_key:
        options = ProtocolOptions(not args.no_coalesce, not args.no_pipeline, not args.no_hand_over, not args.no_by_key)
    program = None if args.program is None else define(load_program(args.program))
    plan = None
    if args.plan is not None:
        if program is None:
            raise UsageError(
                "SIM", "--plan needs the program of the plan", hint="flumina sim module:Program --plan FILE"
            )
        plan = Plan.load(args.plan)
        check_valid(plan, program)
    return Setting(program, args.events, options, faults=not args.no_faults, truncations=not args.no_faults, plan=plan)
