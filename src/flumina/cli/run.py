"""Run a program, show its results, and compare them with the oracle: ``flumina run``."""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, get_args

from flumina.checkpoint.policy import Checkpoint
from flumina.cli.backends import Backend, backend
from flumina.cli.display import samples, shown_outputs
from flumina.cli.inputs import InputOptions, Named, Work, function_parameters
from flumina.cli.json_output import json_output
from flumina.cli.verify import Verification, judge
from flumina.engine.liveness import check_timeout
from flumina.engine.options import DISCARD, Discard, RunArguments, RunOptions
from flumina.engine.results import RunResult
from flumina.errors import UsageError
from flumina.input.dead_letters import BadRows
from flumina.local.run import cores
from flumina.plan.optimize import OptimizerName, check_workers
from flumina.plan.render.json import to_json
from flumina.plan.tree import Plan
from flumina.program.base import define
from flumina.report import RunReport
from flumina.report.figures import run_figures

REPORT = "flumina-report.html"
_PAGE = b"<!doctype html"

_HELP = """\
APP is one of key-counter, value-barrier, page-views, fraud, outliers, smart-home, whose input is made up unless --input
names files; or your own program, as module:Program or path/to/file.py:Program.

examples:

  flumina run value-barrier --workers 2 --verify
  flumina run value-barrier --set events=5000000 --set ratio=1000 --out totals --report
  flumina run value-barrier --set rate=50000 --set events=250000 --paced --report latency.html
  flumina run smart-home --input plugs.csv.gz --lenient --set slice_seconds=60
  flumina run my/job.py:Orders --input order=orders/ --bad-rows dead-letter --out totals
  flumina run page-views --engine spark --master "local[4]" --workers 4 --out joined --overwrite
  flumina run my/job.py:Orders --input orders:order=orders/ --input rules:rule=rules.parquet --ordered
  flumina run my/job.py:Orders --streams my/job.py:streams --set day=2024-05-01 --json
  flumina run page-views --set events=50000000 --out joined --checkpoint joined.checkpoint --snapshot-every 10s

exit codes: 0 success; 1 the run failed, or --verify found other outputs; 2 the call or its input is invalid;
130 interrupted
"""

_EVERY = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>s|events|syncs|)")


def add_parser(subparsers: Any) -> None:  # noqa: ANN401 -- argparse has no public name for it
    """Add ``run`` to the commands of ``flumina``."""
    parser = subparsers.add_parser(
        "run",
        help="run a program on this machine or on Spark",
        description="Run a program, and show its plan, some outputs and statistics.",
        epilog=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("program", metavar="APP", help="a known program, module:Program or path/to/file.py:Program")
    _add_input(parser.add_argument_group("input"))
    _add_plan(parser.add_argument_group("plan, backend and checkpoint"))
    _add_output(parser.add_argument_group("outputs"))
    parser.set_defaults(run=run)


def _add_input(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter of made-up input, of the format "
        "of a file, or of the function of --streams (may be repeated; NAME=? lists them)"
    )  # fmt: skip
    group.add_argument(
        "--input", action="append", default=[], metavar="[NAME[:TAG]=]PATH", help="read this file or folder in the "
        "program's own format; or, for each stream, Parquet files: NAME is that of the stream, TAG that of its events "
        "if it has another name"
    )  # fmt: skip
    group.add_argument("--streams", metavar="MODULE:FUNCTION", help="a function that returns a list of fl.Stream")
    group.add_argument("--lenient", action="store_true", help="leave out lines of --input PATH that can't be read")
    group.add_argument("--unsorted", action="store_true", help="files of --input are not sorted by timestamp")
    group.add_argument(
        "--bad-rows", choices=get_args(BadRows), default=RunOptions.bad_rows, help="rows that do not fit their "
        "declaration end the run, or become dead letters (in DIR/_dead_letters with --out DIR)"
    )  # fmt: skip
    group.add_argument("--ts", metavar="COLUMN", help="the timestamp column of --input (default ts)")
    group.add_argument("--paced", action="store_true", help="emit made-up events in real time, to measure latency")
    group.add_argument(
        "--heartbeats", type=float, metavar="N", help="with --paced: heartbeats per second (default 100)"
    )


def _add_plan(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--workers", type=int, metavar="N", help="the most workers in parallel (default: all cores)")
    group.add_argument("--plan", metavar="FILE", help="a plan that flumina plan has saved, instead of a new one")
    group.add_argument(
        "--optimizer", choices=get_args(OptimizerName), default=RunOptions.optimizer, help="how the plan is made"
    )
    group.add_argument("--engine", choices=["local", "spark"], default="local", help="where it runs (default local)")
    group.add_argument("--master", help="Spark's master (default: local, with a core for each worker)")
    group.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark's session")
    group.add_argument(
        "--task-timeout", metavar="SECONDS", help="end a task that gives no sign of "
        "life for so long, or none (default: none on this machine, 600 on Spark)"
    )  # fmt: skip
    group.add_argument("--checkpoint", metavar="DIR", help="write snapshots there, and resume from the last one")
    group.add_argument(
        "--snapshot-every", metavar="N", help="with --checkpoint: 30s, 100000events or 50syncs (default 30s)"
    )
    group.add_argument("--allow-older", action="store_true", help="if the last snapshot is damaged, use an earlier one")
    group.add_argument(
        "--allow-code-change", action="store_true", help="resume although the program's code has changed"
    )


def _add_output(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--out", metavar="DIR", help="write outputs there as Parquet; without it some rows are shown")
    group.add_argument("--overwrite", action="store_true", help="replace the contents of that folder")
    group.add_argument("--ordered", action="store_true", help="outputs in the order of their events")
    group.add_argument("--discard", action="store_true", help="count outputs and keep none, to measure the speed")
    group.add_argument("--rows", type=int, default=5, metavar="N", help="number of rows to show (default 5)")
    group.add_argument("--verify", action="store_true", help="compare with the sequential program; 1 if they differ")
    group.add_argument(
        "--report", nargs="?", const=REPORT, metavar="FILE", help=f"write a page about the run (default {REPORT})"
    )
    group.add_argument("--json", action="store_true", help="one JSON object instead of text")


def run(args: argparse.Namespace) -> int:
    """Run the command; returns 1 if the outputs differ from the oracle's."""
    _check(args)
    with json_output(alone=args.json) as shown:
        return _run(args, shown)


def _run(args: argparse.Namespace, shown: TextIO) -> int:
    named = Named.find(args.program)
    chosen = _input_options(args)
    if "?" in chosen.set.values():
        return _list_parameters(named, chosen.streams, shown)
    work = named.work(chosen) if chosen.streams is None else None
    title = define(named.program).name
    with (
        backend(
            args.engine, title=title, workers=args.workers, master=args.master, conf=_pairs("--conf", args.conf)
        ) as where,
        _place(args, where) as out,
    ):
        work = work or named.work(chosen)  # a function may use the Spark session
        _note_left_out(work)
        if named.app is None:
            _note_missing_tags(work)
        result = where.run(work.program, work.streams, **_options(args, out))
        verification = _judged(work, result, args.bad_rows) if args.verify else None
        report = _report(args, where, result, verification) if args.report is not None else None
        _show(args, where, work, result, verification, report, shown)
    return 1 if verification is not None and not verification.right else 0


def _check(args: argparse.Namespace) -> None:
    """Raise UsageError for options that contradict each other."""
    check_workers(args.workers, args.plan)
    if args.rows < 0:
        raise UsageError("ROWS", f"expected --rows of at least 0, got {args.rows}")
    if args.checkpoint is not None and args.out is None:
        raise UsageError(
            "CHECKPOINT", "--checkpoint needs --out, a folder that keeps the outputs until the run resumes"
        )
    for option in ("snapshot_every", "allow_older", "allow_code_change"):
        if getattr(args, option) and args.checkpoint is None:
            raise UsageError("CHECKPOINT", f"--{option.replace('_', '-')} has no meaning without --checkpoint")
    if args.task_timeout is not None:
        _timeout(args.task_timeout)
    if args.report is not None:
        _check_report(args.report)
    if args.overwrite and args.out is None:
        raise UsageError("OVERWRITE", "--overwrite has no meaning without --out")
    for option in ("out", "verify", "ordered"):
        if args.discard and getattr(args, option):
            raise UsageError("DISCARD", f"--discard keeps no outputs, so --{option} has no meaning with it")


def _input_options(args: argparse.Namespace) -> InputOptions:
    return InputOptions(
        input=args.input,
        streams=args.streams,
        set=_pairs("--set", args.set),
        parts=args.workers or (1 if args.plan is not None else cores()),
        paced=args.paced,
        heartbeats=args.heartbeats,
        lenient=args.lenient,
        unsorted=args.unsorted,
        ts=args.ts,
    )


def _pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    """Return the NAME=VALUE pairs of an option that may be repeated."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(option.strip("-").upper(), f"{option} {text}: expected NAME=VALUE")
        if name.strip() in found:
            raise UsageError(option.strip("-").upper(), f"{option} gives {name.strip()} twice")
        found[name.strip()] = value.strip()
    return found


def _list_parameters(named: Named, function: str | None, shown: TextIO) -> int:
    if function is None and named.app is None:
        what = f"{define(named.program).name} has no made-up input with parameters"
        raise UsageError("SET", what, hint="with --streams module:function, the function's parameters are listed")
    known: Mapping[str, tuple[object, str]] = {}
    if function is not None:
        known = function_parameters(function)
    elif named.app is not None:
        own = dict.fromkeys(named.app.options, ("", "for --input PATH, in the program's own format"))
        known = {**named.app.workload.parameters(), **own}
    for name, (default, about) in known.items():
        print(f"  {name:<14} {default!s:>10}  {about}", file=shown)
    return 0


def _options(args: argparse.Namespace, out: str | Discard | None) -> RunArguments:
    options = RunArguments(
        out=out,
        workers=args.workers,
        plan=args.plan,
        optimizer=args.optimizer,
        overwrite=args.overwrite,
        ordered=args.ordered,
        checkpoint=_checkpoint(args),
        bad_rows=args.bad_rows,
    )
    if args.task_timeout is not None:  # else that of the engine
        options["task_timeout"] = _timeout(args.task_timeout)
    return options


def _timeout(text: str) -> float | None:
    """Return the value of ``--task-timeout``; None for no timeout."""
    try:
        return None if text == "none" else check_timeout(float(text))
    except (ValueError, UsageError):
        what = f"expected --task-timeout as a number of seconds above 0, or none, got {text!r}"
        raise UsageError("TASK_TIMEOUT", what) from None


def _checkpoint(args: argparse.Namespace) -> Checkpoint | None:
    if args.checkpoint is None:
        return None
    policy: dict[str, Any] = {}
    if args.snapshot_every is not None:
        match = _EVERY.fullmatch(args.snapshot_every)
        unit = None if match is None else match["unit"] or "s"
        if match is None or (unit != "s" and "." in match["number"]):
            what = f"expected --snapshot-every as 30s, 100000events or 50syncs, got {args.snapshot_every!r}"
            raise UsageError("SNAPSHOT_EVERY", what)
        policy = {"seconds": float(match["number"])} if unit == "s" else {str(unit): int(match["number"])}
    return Checkpoint(args.checkpoint, **policy, allow_older=args.allow_older, allow_code_change=args.allow_code_change)


@contextmanager
def _place(args: argparse.Namespace, where: Backend) -> Iterator[str | Discard | None]:
    """Yield the destination of outputs: without ``--out``, a folder that is deleted after the command."""
    if args.discard:
        yield DISCARD
    elif args.out is not None or not where.near:
        yield args.out
    else:
        with tempfile.TemporaryDirectory(prefix="flumina-") as folder:
            yield str(Path(folder) / "outputs")


def _note_missing_tags(work: Work) -> None:
    present = {tag.name for stream in work.streams for tag in stream.tags}
    silent = [name for name in define(work.program).tags if name not in present]
    if silent:
        print(f"note: no stream has events of {', '.join(silent)}", file=sys.stderr)


def _note_left_out(work: Work, most: int = 5) -> None:
    if not work.left_out:
        return
    count = len(work.left_out)
    print(f"{count:,} line{'s were' if count > 1 else ' was'} left out:", file=sys.stderr)
    for error in work.left_out[:most]:
        print(f"  {error}", file=sys.stderr)
    if count > most:
        print(f"  ... and {count - most:,} more", file=sys.stderr)


def _judged(work: Work, result: RunResult, bad_rows: BadRows) -> Verification:
    if sys.stderr.isatty():
        print("asking the sequential program ...", end="\r", file=sys.stderr, flush=True)
    verification = judge(work.program, work.streams, result.committed, bad_rows)
    if sys.stderr.isatty():
        print(" " * 40, end="\r", file=sys.stderr, flush=True)
    return verification


def _check_report(given: str) -> None:
    """Raise UsageError if the report would replace a file that is not an HTML page."""
    path, hint = Path(given), "name the file to write"
    if not given or path.is_dir():
        raise UsageError("REPORT", f"expected a file for --report, got {'a folder' if given else 'no name'}", hint=hint)
    if path.is_file() and path.stat().st_size:
        with path.open("rb") as file:
            if not file.read(len(_PAGE)).lower().startswith(_PAGE):
                raise UsageError("REPORT", f"--report {given} exists, and is not an HTML page", hint=hint)


def _report(args: argparse.Namespace, where: Backend, result: RunResult, verification: Verification | None) -> Path:
    hidden = ("run", "command", "json", "report", "rows")
    settings = {name: value for name, value in vars(args).items() if name not in hidden and value not in (None, [])}
    settings["set"] = ", ".join(args.set) or "nothing"
    page = RunReport(
        result,
        where.place,
        args.command,
        {name.replace("_", "-"): ", ".join(v) if isinstance(v, list) else v for name, v in settings.items()},
        samples(result, args.rows),
        None if verification is None else verification.right,
    )
    return page.save(args.report)


def _show(
    args: argparse.Namespace,
    where: Backend,
    work: Work,
    result: RunResult,
    verification: Verification | None,
    report: Path | None,
    shown: TextIO,
) -> None:
    if args.json:
        found = _as_json(where, work, result, verification, report, kept=args.out is not None)
        print(json.dumps(found, indent=1), file=shown)
        return
    print(f"{result.plan.program} on {where.place}: {result.stats}\n")
    print(f"{result.plan.explain()}\n")
    print(shown_outputs(result, args.rows, place=args.out))
    if verification is not None:
        print(f"\n{verification}{_about(verification, args.program, work, result.plan)}")
    if report is not None:
        print(f"\nreport: {report}")


def _about(verification: Verification, program: str, work: Work, plan: Plan) -> str:
    """Return a note on the verification: whether a join was possible, or how to look for a broken law."""
    if verification.right:
        return " (the plan has one worker: fork and join were not used)" if len(plan) == 1 else ""
    cls = work.program if isinstance(work.program, type) else type(work.program)
    name = program if ":" in program else f"{cls.__module__}:{cls.__qualname__}"
    return f"\n  hint: flumina check {name} says whether the program breaks a law, and on which events"


def _as_json(
    where: Backend, work: Work, result: RunResult, verification: Verification | None, report: Path | None, *, kept: bool
) -> Mapping[str, Any]:
    outputs = {
        name: {"rows": one.rows, "path": one.path if kept else None, "columns": one.schema.names}
        for name, one in result.committed.items()
    }
    return {
        "program": result.plan.program,
        "engine": where.name,
        "outputs": outputs,
        "verified": None if verification is None else verification.right,
        "mismatch": None if verification is None else verification.mismatch,
        "report": None if report is None else str(report),
        "left_out": len(work.left_out),
        "dead_letters": {
            "rows": result.committed_dead_letters.rows,
            "path": result.committed_dead_letters.path if kept else None,
        },
        "stats": run_figures(result.stats),
        "plan": json.loads(to_json(result.plan)),
    }
