"""Make, draw or check a plan: ``flumina plan``."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from flumina.errors import UsageError
from flumina.plan.optimize import OptimizerName, make_plan
from flumina.plan.render.dot import to_dot
from flumina.plan.render.html import to_page
from flumina.plan.render.json import load, to_json
from flumina.plan.render.mermaid import to_mermaid
from flumina.plan.render.text import to_text
from flumina.plan.sources import StreamRates
from flumina.plan.tree import MAX_PARTS, Plan
from flumina.plan.validity import validate
from flumina.program.loading import load_program

FORMATS: dict[str, Callable[[Plan], str]] = {
    "text": lambda plan: to_text(plan) + "\n",
    "mermaid": to_mermaid,
    "dot": to_dot,
    "json": to_json,
    "html": to_page,
}

_HELP = """\
Streams are described in one line,

  NAME:TAG[+TAG...][*PARTS][@RATE[+RATE...]],...

with rates in events per second, one for each tag, of all parts together; or in a JSON file, which has more fields:

  [{"name": "views", "tags": {"view": 1000}, "parts": 2, "hot": {"view": {"home": 600}}, "hosts": ["a", "b"]},
   {"name": "changes", "tags": {"change": 1}, "keys": [["home", "about"]]}]

examples:

  flumina plan flumina.apps:ValueBarrier --streams values:value*4@1000000,barriers:barrier@10 --workers 4
  flumina plan flumina.apps:PageViews --streams streams.json --format html --out plan.html
  flumina plan flumina.apps:PageViews --streams streams.json --format json --out plan.json
  flumina plan flumina.apps:PageViews --check plan.json
"""

_STREAM = re.compile(r"(?P<name>[^:@*,+]+):(?P<tags>[^:@*,]+)(?:\*(?P<parts>[^@*:]+))?(?:@(?P<rates>.+))?")


def add_parser(subparsers: Any) -> None:  # noqa: ANN401 -- argparse has no public name for it
    """Add ``plan`` to the commands of ``flumina``."""
    parser = subparsers.add_parser(
        "plan",
        help="make, draw or check a synchronization plan",
        description="Make a synchronization plan for a program, or check a plan file.",
        epilog=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("program", help="module:Program or path/to/file.py:Program")
    parser.add_argument(
        "--streams", metavar="DESCRIPTION", help="description of the input streams (see below), or a JSON file"
    )
    parser.add_argument("--workers", type=int, metavar="N", help="the most workers that may run in parallel")
    parser.add_argument("--optimizer", choices=get_args(OptimizerName), default="cost", help="the optimizer")
    parser.add_argument("--format", choices=list(FORMATS), default="text", help="the output format")
    parser.add_argument("--out", metavar="FILE", help="write to this file instead of the terminal")
    parser.add_argument("--check", metavar="FILE", help="check a plan file for this program instead of making one")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; returns 1 if a checked plan is not valid."""
    program = load_program(args.program)
    if args.check is not None:
        return _check(program, args)
    if args.streams is None:
        raise UsageError(
            "NO_STREAMS", "a plan needs --streams", hint="for example --streams views:view*2@1000,changes:change@1"
        )
    plan = make_plan(program, parse_streams(args.streams), workers=args.workers, optimizer=args.optimizer)
    _write(FORMATS[args.format](plan), args.out)
    return 0


def _check(program: Any, args: argparse.Namespace) -> int:  # noqa: ANN401
    if args.streams is not None:
        raise UsageError("CHECK", "a plan file has its own streams", hint="give --streams or --check, not both")
    plan = load(args.check)
    violations = validate(plan, program)
    if not violations:
        _write(FORMATS[args.format](plan), args.out)
        return 0
    count = f"{len(violations)} violation{'s' if len(violations) > 1 else ''}"
    lines = [f"{args.check} is not valid: {count}", *(f"  {n}. {v}" for n, v in enumerate(violations, 1))]
    sys.stderr.write("\n".join(lines) + "\n")
    return 1


def _write(text: str, out: str | None) -> None:
    if out is None:
        sys.stdout.write(text)
        return
    try:
        Path(out).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError("OUT", f"{out} can't be written: {error.strerror}") from None


def parse_streams(text: str) -> list[StreamRates]:
    """Return the streams of a one-line description, or of a JSON file.

    >>> parse_streams("views:view*2@1000,changes:change")[0]
    StreamRates(name='views', tags={'view': 1000.0}, parts=2, hot={}, keys=None, hosts=None, distinct={})
    """
    if text.endswith(".json"):
        return _from_file(Path(text))
    return [_from_text(piece.strip()) for piece in text.split(",")]


def _from_text(text: str) -> StreamRates:
    match = _STREAM.fullmatch(text)
    if match is None:
        raise UsageError("STREAMS", f"expected NAME:TAG, got {text!r}", hint="for example views:view*2@1000")
    tags = [tag.strip() for tag in match["tags"].split("+")]
    for tag in tags:
        if tags.count(tag) > 1:
            raise UsageError("STREAMS", f"{text!r} has the tag {tag!r} twice", hint="add their rates up")
    rates: list[float | None] = [None] * len(tags)
    if match["rates"] is not None:
        rates = [_number(rate, text) for rate in match["rates"].split("+")]
    if len(rates) != len(tags):
        raise UsageError(
            "STREAMS", f"{text!r} has {len(tags)} tags and {len(rates)} rates", hint="give one rate for each tag"
        )
    return StreamRates(match["name"].strip(), dict(zip(tags, rates, strict=True)), _parts(match["parts"] or "1", text))


def _parts(text: str, where: str) -> int:
    number = text.strip()
    if not number.isdecimal():
        raise UsageError(
            "STREAMS", f"expected a number of parts in {where!r}, got {text!r}", hint="for example views:view*2"
        )
    if len(number.lstrip("0")) > len(str(MAX_PARTS)) or int(number) > MAX_PARTS:
        raise UsageError("STREAMS", f"expected at most {MAX_PARTS} parts in {where!r}, got {text!r}")
    return int(number)


def _number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(
            "STREAMS", f"expected a rate in {where!r}, got {text!r}", hint="for example views:view@1000"
        ) from None


def _from_file(path: Path) -> list[StreamRates]:
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            "STREAMS", f"{path} can't be read: {getattr(error, 'strerror', None) or 'not UTF-8'}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise UsageError("STREAMS", f"{path} is not valid JSON: {error}") from None
    if not isinstance(found, list):
        raise UsageError("STREAMS", f"{path}: expected a list of streams", hint="see flumina plan --help")
    return [_from_object(stream, f"{path}: stream {number}") for number, stream in enumerate(found)]


_FIELDS: dict[str, tuple[type, ...]] = {
    "name": (str,),
    "tags": (dict, list, str),
    "parts": (int,),
    "hot": (dict,),
    "keys": (list,),
    "hosts": (list, str),
    "distinct": (dict,),
}


def _from_object(value: object, where: str) -> StreamRates:
    if not isinstance(value, dict) or not {"name", "tags"} <= value.keys():
        raise UsageError("STREAMS", f"{where} needs a name and tags", hint="see flumina plan --help")
    for field, content in value.items():
        if field not in _FIELDS:
            raise UsageError("STREAMS", f"{where} has an unknown field {field!r}", hint=f"known: {', '.join(_FIELDS)}")
        if not isinstance(content, _FIELDS[field]):
            raise UsageError("STREAMS", f"{where}: {field} is {json.dumps(content)}", hint="see flumina plan --help")
    for content in value.get("hot", {}).values():
        if not isinstance(content, dict):
            raise UsageError("STREAMS", f"{where}: hot keys are given as {{tag: {{key: rate}}}}")
    for content in value.get("keys", ()):
        if not (content is None or (isinstance(content, list) and all(isinstance(k, str | int) for k in content))):
            raise UsageError("STREAMS", f"{where}: keys has one list of keys (or null) for each part")
    return StreamRates(**value)
