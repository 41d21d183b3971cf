"""Parse the command line, run a command, and turn errors into exit codes.

Exit codes: 0 success; 1 a check failed (outputs differ, a law is broken, a plan is invalid, a snapshot is damaged) or
the program failed; 2 the call or its input is invalid; 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from flumina import __version__
from flumina.check import check
from flumina.cli import checkpoint as checkpoints
from flumina.cli import demo as demonstrating
from flumina.cli import plan as planning
from flumina.cli import run as running
from flumina.cli import sim as simulating
from flumina.cli.json_output import json_output
from flumina.errors import (
    CalledOffError,
    ClusterError,
    FluminaError,
    FrameError,
    GangError,
    HandshakeError,
    LawError,
    OutOfMemoryError,
    OutputError,
    PeerLostError,
    TaskFailedError,
    TaskLostError,
    UsageError,
    UserCodeError,
)
from flumina.formatting import printable
from flumina.program.loading import load_program

_EPILOG = """examples:
  flumina demo --verify
  flumina run value-barrier --workers 2 --verify
  flumina run my/job.py:Orders --input order=orders/ --out totals --report
  flumina check my/job.py:Orders --examples 5000 --seed 7
  flumina plan flumina.apps:PageViews --streams "changes:change@1,views:view*2@1000" --workers 2
  flumina sim flumina.apps:PageViews --seeds 500
  flumina checkpoint ls totals.checkpoint

see flumina COMMAND --help for each command
"""

_CHECK_HELP = """\
examples:

  flumina check flumina.apps:PageViews
  flumina check my/job.py:Orders --examples 5000 --seed 7
  flumina check my/job.py:Orders --law C1 --law C2 --json

exit codes: 0 all laws hold; 1 a law is broken (the smallest counterexample is shown); 2 the call is invalid
"""

_FAILED = (
    CalledOffError,
    ClusterError,
    FrameError,
    GangError,
    HandshakeError,
    LawError,
    OutOfMemoryError,
    PeerLostError,
    TaskFailedError,
    TaskLostError,
    UserCodeError,
)
"""Errors of a valid call: the program or the machines failed."""

_INTERRUPTED = 130
"""The exit code that shells expect of a command that Ctrl-C has ended."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # not every terminal can write ≠
            stream.reconfigure(errors="replace")
    args = parser().parse_args(arguments)
    args.command = shlex.join(["flumina", *(sys.argv[1:] if arguments is None else arguments)])
    try:
        code: int = args.run(args)
        sys.stdout.flush()  # raises now if the output can't be written
    except FluminaError as error:
        text = "\n  ".join([f"flumina: {in_options(error)}", *getattr(error, "__notes__", ())])
        print(printable(text), file=sys.stderr)
        return 1 if _failed(error) else 2
    except KeyboardInterrupt:
        print("flumina: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:  # the reader of the output, head for example, has ended
        _give_up_writing()
        return 0
    except OSError as error:
        what = "the output can't be written" if error.filename is None else error.filename
        print(f"flumina: [OUT] {what}: {error.strerror}", file=sys.stderr)
        _give_up_writing()
        return 2
    return code


def _failed(error: FluminaError) -> bool:
    """Return whether the call was valid; an output that does not fit its schema is a mistake of the program."""
    return isinstance(error, _FAILED) or (isinstance(error, OutputError) and error.condition.startswith("OUTPUT"))


_OPTIONS = {
    "overwrite=True": "--overwrite",
    "sorted=False": "--unsorted",
    "lenient=True": "--lenient",
    "allow_older=True": "--allow-older",
    "allow_code_change=True": "--allow-code-change",
}
_ARGUMENT = re.compile(r"\b(out|plan|workers|checkpoint|optimizer)=(?=(\S?))")


def in_options(error: FluminaError) -> str:
    """Return the text of an error with command-line options in place of function arguments.

    >>> print(in_options(UsageError("SLOTS", "too few slots", hint="give workers=2, or pass overwrite=True")))
    [SLOTS] too few slots
      hint: give --workers 2, or pass --overwrite
    """
    text = str(error)
    # Other messages may contain the user's data, so only their hint is changed.
    start = 0 if isinstance(error, UsageError) else max(text.rfind("\n  hint: "), 0) or len(text)
    tail = text[start:]
    for argument, option in _OPTIONS.items():
        tail = tail.replace(argument, option)
    return text[:start] + _ARGUMENT.sub(lambda match: f"--{match[1]}" + (" " if match[2].isalnum() else ""), tail)


def _give_up_writing() -> None:
    """Discard buffered output that can't be written: Python would report an error at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError, ValueError), Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    whole = argparse.ArgumentParser(
        prog="flumina",
        description="Stateful stream computations whose parallel workers agree.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole.add_argument("--version", action="version", version=f"flumina {__version__}")
    commands = whole.add_subparsers(title="commands", required=True, metavar="COMMAND")
    running.add_parser(commands)
    demonstrating.add_parser(commands)
    checking = commands.add_parser(
        "check",
        help="test the laws of consistency on a program",
        description="Test the laws of consistency on random reachable states and events of a program.",
        epilog=_CHECK_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    checking.add_argument("program", help="module:Program or path/to/file.py:Program")
    checking.add_argument("--examples", type=int, default=1000, help="examples to try for each law (default 1000)")
    checking.add_argument("--seed", type=int, default=0, help="the same seed tries the same examples (default 0)")
    checking.add_argument("--tolerance", type=float, help="relative error within which floats count as equal")
    checking.add_argument("--law", action="append", metavar="NAME", help="try this law only (may be repeated)")
    checking.add_argument("--json", action="store_true", help="print JSON instead of text")
    checking.set_defaults(run=_check)
    planning.add_parser(commands)
    simulating.add_parser(commands)
    checkpoints.add_parser(commands)
    return whole


def _check(args: argparse.Namespace) -> int:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser(), "flumina", "hypothesis")
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(cache))  # rather than the folder that the user is in
    with json_output(alone=args.json) as shown:
        report = check(
            load_program(args.program), examples=args.examples, seed=args.seed, tolerance=args.tolerance, laws=args.law
        )
        found = asdict(report) | {"ok": report.ok, "broken": report.broken}
        print(json.dumps(found, indent=1) if args.json else printable(str(report)), file=shown)
    return 0 if report.ok else 1
