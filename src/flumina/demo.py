"""``make run``: the quickstart program on a small made-up stream, against the oracle, and its laws checked."""

from __future__ import annotations

import random
import sys

import pyarrow as pa

from flumina.apps import PageViews
from flumina.check import check
from flumina.spec import Result, spec
from flumina.streams import Stream


def page_view_streams(views: int = 2000, changes: int = 10, seed: int = 7) -> list[Stream]:
    """Two hot pages, viewed in two parts and now and then changed."""
    random_ = random.Random(seed)
    pages = ["home", "news"]

    def part() -> pa.Table:
        return pa.table(
            {
                "ts": sorted(random_.randrange(10 * views) for _ in range(views // 2)),
                "page": [random_.choice(pages) for _ in range(views // 2)],
                "user": [random_.randrange(1000) for _ in range(views // 2)],
            }
        )

    changed = pa.table(
        {
            "ts": sorted(random_.sample(range(10 * views), changes)),
            "page": [random_.choice(pages) for _ in range(changes)],
            "info": [f"edition {n}" for n in range(1, changes + 1)],
        }
    )
    return [Stream("changes", PageViews.change, changed), Stream("views", PageViews.view, [part(), part()])]


def demo() -> int:
    """Run it and print what a person wants to see; returns the exit code."""
    result = spec(PageViews, page_view_streams())
    out = sys.stdout.write
    out("PageViews: views of two hot pages, joined with the pages' current information\n\n")
    out(f"{result.events} events in, {result.output.num_rows} rows out; every view saw the edition of its moment:\n\n")
    out(_around_changes(result))
    report = check(PageViews, examples=200)
    out(f"\n{report}\n")
    return 0 if report.ok else 1


def _around_changes(result: Result, most: int = 4) -> str:
    """Each change of a page with the view before and the view after it."""
    rows = result.output.sort_by([("event_ts", "ascending"), ("event_stream", "ascending")]).to_pylist()
    lines = [f"  {'ts':>6}  {'page':<5} {'what':<10} information\n"]
    for at in [i for i, row in enumerate(rows) if row["user"] is None][:most]:
        page = rows[at]["page"]
        before = [row for row in rows[:at] if row["page"] == page and row["user"] is not None][-1:]
        after = [row for row in rows[at + 1 :] if row["page"] == page and row["user"] is not None][:1]
        for row in (*before, rows[at], *after):
            what = "changed" if row["user"] is None else f"user {row['user']}"
            info = row["info"] or "(none yet)"
            told = f"was {info}" if row["user"] is None else f"saw {info}"
            lines.append(f"  {row['event_ts']:>6}  {row['page']:<5} {what:<10} {told}\n")
        lines.append("\n")
    return "".join(lines[:-1])
