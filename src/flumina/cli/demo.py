"""Run a demonstration: page views with two hot pages (``flumina demo``, ``make run``)."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flumina.apps.page_views import PageViews, Visits
from flumina.cli.backends import Backend, backend, why_no_spark
from flumina.cli.display import rows_text
from flumina.cli.verify import Verification, judge
from flumina.engine.options import DISCARD
from flumina.engine.results import RunResult
from flumina.formatting import size
from flumina.local.run import cores
from flumina.plan.optimize import check_workers
from flumina.report import Comparison, RunReport

FOLDER = "build/flumina-demo"
ROUNDS = 3
TIMES = 3
"""The ratio of measured to verified events: the sequential program is slow."""
MOST_WORKERS = 4
CHANGES = 10_000
GETS = 1_000
"""Views on each part for one change, and for one get."""

_SHOWN = pa.schema({"event_ts": pa.int64(), "page": pa.string(), "what": pa.string(), "information": pa.string()})

_HELP = """\
examples:

  flumina demo --verify
  flumina demo --engine local --events 200000
  flumina demo --workers 4 --dir demo

exit codes: 0 success; 1 the outputs differ from those of the sequential program
"""


def add_parser(subparsers: Any) -> None:  # noqa: ANN401 -- argparse has no public name for it
    """Add ``demo`` to the commands of ``flumina``."""
    parser = subparsers.add_parser(
        "demo",
        help="run page views with two hot pages, and show plan, outputs and speed-up",
        description="Join views of two hot pages with the information of the pages; workers synchronize at changes of "
        "a page. Shows the plan, some outputs and the speed-up over one worker, and writes a report.",
        epilog=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--verify", action="store_true", help="compare with the sequential program; 1 if they differ")
    parser.add_argument("--engine", choices=["spark", "local"], help="the backend (default: Spark if it is installed)")
    parser.add_argument("--workers", type=int, metavar="N", help=f"default: all cores, 2 to {MOST_WORKERS}")
    parser.add_argument(
        "--events", type=int, default=1_000_000, metavar="N", help="number of views (default 1,000,000)"
    )
    parser.add_argument("--dir", default=FOLDER, help=f"the folder of outputs and report (default {FOLDER})")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the demonstration and print its results; returns 1 if the outputs differ from the oracle's."""
    workers = min(max(cores(), 2), MOST_WORKERS) if args.workers is None else args.workers
    check_workers(workers)
    workload = Visits(events=args.events, parts=workers, pages=2, hot=2, changes=CHANGES, gets=GETS)
    reason = why_no_spark() if args.engine is None else None
    name = args.engine or ("spark" if reason is None else "local")
    print(f"Page views: {args.events:,} views of two hot pages, joined with what the pages say at that moment.")
    print("Views do not depend on each other; a change of a page is where all workers meet.")
    if reason is not None:
        print(f"Not on Spark, since {reason}.")
    if name == "spark":
        _say("starting Spark ...")
    folder = Path(args.dir)
    with backend(name, title="demo", workers=workers, conf={}) as where:
        _say("running ...")
        outputs = folder / "outputs"
        result = where.run(PageViews, workload.streams(), workers=workers, out=outputs, overwrite=True, progress=False)
        _section(f"The plan, on {where.place}")
        print(_indented(result.plan.explain()))
        stats = result.stats
        print(f"\n  {stats}, {size(stats.bytes_between)} between workers")
        _section("Some outputs: a change of a page, and the views around it")
        shown = around_changes(result.committed["output"].table())
        print(_indented(rows_text(shown) if shown.num_rows else "no page has changed"))
        verification = _verified(workload, result) if args.verify else None
        compared = _compared(where, workload, workers)
    report = RunReport(
        result,
        where.place,
        args.command,
        {f"workload: {name}": getattr(workload, name) for name in workload.parameters()},
        {"the output, around changes": shown},
        None if verification is None else verification.right,
        compared,
    )
    page = report.save(folder / "report.html")
    print(f"\n  outputs  {outputs}/\n  report   {page}")
    return 1 if verification is not None and not verification.right else 0


def _verified(workload: Visits, result: RunResult) -> Verification:
    _say("asking the sequential program ...")
    verification = judge(PageViews, workload.streams(), result.committed)
    _section("Is that right?")
    print(_indented(str(verification)))
    return verification


def _compared(where: Backend, workload: Visits, workers: int) -> Comparison:
    """Measure the speed-up over one worker; outputs are computed and counted in both cases, and not written."""
    longer = replace(workload, events=TIMES * workload.events)
    runs = iter(range(1, 2 * ROUNDS + 1))

    def seconds(count: int) -> float:
        _say(f"measuring, {next(runs)} of {2 * ROUNDS} ...")
        done = where.run(PageViews, longer.streams(), workers=count, out=DISCARD, progress=False)
        return done.stats.seconds

    compared = Comparison.measure(workers, ROUNDS, seconds)
    _section(f"How fast? {longer.events:,} views, outputs made and not written")
    print(_indented(str(compared)))
    return compared


def around_changes(rows: pa.Table, most: int = 3) -> pa.Table:
    """Return each of the first changes with the last view of the page before it and the first after it."""
    changes = rows.filter(pc.equal(rows["event_stream"], "changes")).sort_by("event_ts").slice(0, most)
    views = rows.filter(pc.equal(rows["event_stream"], "views"))
    lines = [line for change in changes.to_pylist() for line in _around(change, views)]
    return pa.Table.from_pylist(lines, _SHOWN)


def _around(change: dict[str, Any], views: pa.Table) -> Iterator[dict[str, object]]:
    """Yield a change and the views around it; views with its timestamp come before it, as their rank is lower."""
    of_page = views.filter(pc.equal(views["page"], change["page"]))
    before = of_page.filter(pc.less_equal(of_page["event_ts"], change["event_ts"]))
    after = of_page.filter(pc.greater(of_page["event_ts"], change["event_ts"]))
    for near, order in ((before, "descending"), (None, ""), (after, "ascending")):
        shown = [change] if near is None else _first(near, order)
        for row in shown:
            what = "changed" if near is None else f"viewed by {row['user']}"
            said = row["info"] or "(nothing yet)"
            yield {
                "event_ts": row["event_ts"],
                "page": row["page"],
                "what": what,
                "information": f"was {said}" if near is None else said,
            }


def _first(rows: pa.Table, order: str) -> list[dict[str, Any]]:
    """Return the first row by timestamp, if there is one."""
    at = pc.select_k_unstable(rows, 1, sort_keys=[("event_ts", order)]) if rows.num_rows else []
    found: list[dict[str, Any]] = rows.take(at).to_pylist() if rows.num_rows else []
    return found


def _section(title: str) -> None:
    _say("")
    bold = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    print(f"\n\033[1m{title}\033[0m\n" if bold else f"\n{title}\n", flush=True)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())


def _say(what: str) -> None:
    """Print a line that the next one replaces, on terminals only."""
    if sys.stderr.isatty():
        print(f"\r\033[K{what}", end="", file=sys.stderr, flush=True)
