"""``python -m tests.scale``: run Flumina at real size, and compare every output with an independent computation."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.scale.cases import SECTIONS, Case, all_cases, smaller
from tests.scale.table import record, row, table
from tests.scale.watch import OK, Verdict, watch

ROOT = Path(__file__).parents[2]
OUT = ROOT / "build" / "scale"
DOCUMENT = ROOT / "benchmarks" / "README.md"


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    listed = "; ".join(f"{name}: {what}" for name, what in SECTIONS.items())
    made = argparse.ArgumentParser(prog="python -m tests.scale", description=__doc__, epilog=f"Sections: {listed}.")
    made.add_argument("sections", nargs="*", metavar="section", help=f"some of {', '.join(SECTIONS)}; default all")
    made.add_argument("--only", metavar="TEXT", help="only cases whose name contains this")
    made.add_argument("--rows", type=int, metavar="N", help="at most N rows a case: for a look, not for a release")
    made.add_argument("--patience", type=float, default=1.0, metavar="X", help="limits times X, for a busy machine")
    made.add_argument(
        "--out", type=Path, default=ROOT / "build" / "scale", metavar="FOLDER", help="default build/scale"
    )
    made.add_argument("--list", action="store_true", help="only list the cases")
    made.add_argument("--record", action="store_true", help=f"put the table into {DOCUMENT.relative_to(ROOT)}")
    return made


def chosen(sections: Sequence[str], only: str | None, rows: int | None) -> list[Case]:
    """List the cases that the command line asks for, each once."""
    cases = [case for case in all_cases() if not sections or case.section in sections]
    if rows is not None:
        cases = list(dict.fromkeys(smaller(case, rows) for case in cases))
    return [case for case in cases if only is None or only in case.name]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line names; 1 if any case is not ok."""
    command = parser()
    given = command.parse_args(arguments)
    unknown = sorted(set(given.sections) - set(SECTIONS))
    if unknown:
        command.error(f"expected sections among {', '.join(SECTIONS)}, got {', '.join(unknown)}")
    if not Path("/proc/self/status").exists():
        command.error("expected /proc, as Linux has it, to measure memory and to find processes")
    cases = chosen(given.sections, given.only, given.rows)
    if not cases:
        command.error("no case has such a name; --list shows them")
    if given.list:
        print("\n".join(f"{case.section:<10} {case.name}" for case in cases))
        return 0
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the case at work is ended, too
    began, verdicts = time.monotonic(), []
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="flumina-scale-") as work:
        for number, case in enumerate(cases):
            print(f"[{number + 1}/{len(cases)}] {case.name} ...", end=" ", flush=True)
            verdicts.append(watch(case, Path(work) / str(number), out, given.patience))
            print(row(verdicts[-1]), flush=True)
            _save(verdicts, out, load)
    text = table(verdicts)
    print(f"\n{text}\n{summary(verdicts)}, {(time.monotonic() - began) / 60:.1f} minutes; details in {out}")
    if given.record:
        day = datetime.now(UTC).date().isoformat()
        lead = f"{summary(verdicts)}. Measured on {os.cpu_count()} cores (load {load:.1f} when it began), {day}."
        DOCUMENT.write_text(record(DOCUMENT.read_text(encoding="utf-8"), f"{lead}\n\n{text}"), encoding="utf-8")
    return 0 if all(verdict.status == OK for verdict in verdicts) else 1


def summary(verdicts: Sequence[Verdict]) -> str:
    """Count the cases by what became of them."""
    counts = {status: sum(v.status == status for v in verdicts) for status in dict.fromkeys(v.status for v in verdicts)}
    return f"{len(verdicts)} cases: " + ", ".join(f"{count} {status}" for status, count in counts.items())


def _save(verdicts: Sequence[Verdict], out: Path, load: float) -> None:
    found = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "load before": round(load, 1),
        "cases": [verdict.to_json() for verdict in verdicts],
    }
    (out / "results.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    sys.exit(main())
