"""``make run``: the quickstart program on a small made-up stream: the oracle, a plan, its workers, and the laws."""

from __future__ import annotations

import sys
from random import Random

import pyarrow as pa

from flumina import local
from flumina.apps import PageViews
from flumina.check import check
from flumina.plan import Source, make_plan
from flumina.spec import Result, spec
from flumina.streams import Stream


def page_view_streams(views: int = 2000, changes: int = 10, seed: int = 7) -> list[Stream]:
    """Two pages, one of them hot, viewed in two parts and now and then changed."""
    random_ = Random(seed)
    pages = ["home", "news"]

    def part() -> pa.Table:
        return pa.table(
            {
                "ts": sorted(random_.randrange(10 * views) for _ in range(views // 2)),
                "page": random_.choices(pages, weights=[9, 1], k=views // 2),
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
    out("PageViews: views of two pages, most of them of one, joined with what the pages say\n\n")
    out(f"{result.events} events in, {result.output.num_rows} rows out; every view saw the edition of its moment:\n\n")
    out(_around_changes(result))
    out(f"\n{_in_parallel(result)}\n")
    report = check(PageViews, examples=200)
    out(f"\n{report}\n")
    return 0 if report.ok else 1


def _in_parallel(expected: Result) -> str:
    """Run a plan in processes of this machine, and have the oracle judge it."""
    streams = page_view_streams()
    rates = {"changes": {"change": 5.0}, "views": {"view": 1_000_000.0}}
    known = [Source(s.name, rates[s.name], parts=s.source().parts) for s in streams]
    plan = make_plan(PageViews, known, workers=2)
    result = local.run(PageViews, streams, plan=plan, order=True, progress=False)
    if result.output != expected.output:
        raise AssertionError("the workers gave other rows than the oracle")
    return (
        f"{plan.explain()}\n\nits workers, in {len(result.stats.tasks)} processes, gave exactly these rows: "
        f"{result.stats.joins} joins, {result.stats.bytes_between:,} bytes between them\n"
    )


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
