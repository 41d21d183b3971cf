"""``python -m benchmarks.evaluation``: measure sections, and make the report of all that there are."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from benchmarks.evaluation.documents import renew
from benchmarks.evaluation.effort import Effort
from benchmarks.evaluation.figures import drawn
from benchmarks.evaluation.machine import fingerprint
from benchmarks.evaluation.record import SECTIONS, Record, Results, load_all
from benchmarks.evaluation.report import write
from benchmarks.evaluation.tables import tables

REPORT = Path(__file__).parents[1] / "report"


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line names; a section that fails does not keep the others from being tried."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evaluation", description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="section", help=f"some of: {', '.join(SECTIONS)}; default all")
    parser.add_argument("--quick", action="store_true", help="small inputs, one round: minutes instead of half an hour")
    parser.add_argument(
        "--report", type=Path, metavar="FOLDER", help="default benchmarks/report, or quick in it, which git ignores"
    )
    parser.add_argument("--render", action="store_true", help="only make the report from the data that there are")
    given = parser.parse_args(arguments)
    unknown = set(given.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"no section is called {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    folder = (given.report or (REPORT / "quick" if given.quick else REPORT)).resolve()
    failed = []
    for name in () if given.render else given.sections or SECTIONS:
        try:
            _measure(name, Effort(quick=given.quick), folder / "data")
        except Exception as error:  # noqa: BLE001 -- the next section may work
            print(f"{name} failed: {error!r}", file=sys.stderr)
            failed.append(name)
    written = write(folder)
    if folder == REPORT:
        found = load_all(REPORT / "data")
        written += renew(REPORT.parents[1], tables(found), drawn(found))
    for path in written:
        print(path)
    return 1 if failed else 0


def _measure(name: str, effort: Effort, data: Path) -> None:
    effort.say(f"{name}, {'quick' if effort.quick else 'in full'}")
    records: Callable[[Effort, Path], Iterator[Record]] = import_module(f"benchmarks.evaluation.{name}").records
    machine, began = fingerprint(), time.monotonic()
    found = tuple(records(effort, data))
    Results(name, machine, effort.quick, round(time.monotonic() - began), found).save(data)
    effort.say(f"{name} done")


if __name__ == "__main__":
    sys.exit(main())
