"""The command line: ``flumina check``, ``flumina plan``, ``flumina sim``, ``flumina checkpoint``, ``flumina demo``.

Exit codes: 0 all is well; 1 the answer is no (a law is broken, a plan is invalid, a snapshot is damaged); 2 the call
can't be meant.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from flumina.check import check
from flumina.demo import demo
from flumina.engine.checkpoint import command as checkpoints
from flumina.errors import FluminaError
from flumina.loading import load_program
from flumina.plan import command as planning
from flumina.sim import command as simulating

_EPILOG = """examples:
  flumina demo
  flumina check flumina.apps:PageViews
  flumina check my/job.py:Orders --examples 5000 --seed 7
  flumina plan flumina.apps:PageViews --streams "changes:change@1,views:view*2@1000" --workers 2
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # not every terminal can write ≠
            stream.reconfigure(errors="replace")
    args = parser().parse_args(arguments)
    try:
        code: int = args.run(args)
        sys.stdout.flush()  # what can't be written is to be known now
    except FluminaError as error:
        print(f"flumina: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has seen enough
        _give_up_writing()
        return 0
    except OSError as error:
        what = "the output can't be written" if error.filename is None else error.filename
        print(f"flumina: [OUT] {what}: {error.strerror}", file=sys.stderr)
        _give_up_writing()
        return 2
    return code


def _give_up_writing() -> None:
    """Python writes what is left when it ends; if that is going to fail, it is thrown away instead."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError, ValueError), Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def parser() -> argparse.ArgumentParser:
    """What can be said on the command line."""
    whole = argparse.ArgumentParser(
        prog="flumina",
        description="Stateful stream computations whose parallel workers agree.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = whole.add_subparsers(title="commands", required=True, metavar="COMMAND")
    checking = commands.add_parser("check", help="test the laws of consistency on a program")
    checking.add_argument("program", help="module:Program or path/to/file.py:Program")
    checking.add_argument("--examples", type=int, default=1000, help="situations to try for each law (default 1000)")
    checking.add_argument("--seed", type=int, default=0, help="the same seed tries the same situations (default 0)")
    checking.add_argument("--tolerance", type=float, help="relative error within which floats count as equal")
    checking.add_argument("--law", action="append", metavar="NAME", help="try this law only (may be repeated)")
    checking.set_defaults(run=_check)
    planning.add_parser(commands)
    showing = commands.add_parser("demo", help="run the quickstart program and show what it does")
    showing.set_defaults(run=lambda _: demo())
    simulating.add_parser(commands)
    checkpoints.add_parser(commands)
    return whole


def _check(args: argparse.Namespace) -> int:
    report = check(
        load_program(args.program), examples=args.examples, seed=args.seed, tolerance=args.tolerance, laws=args.law
    )
    print(report)
    return 0 if report.ok else 1
