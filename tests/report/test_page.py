import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest

import flumina as fl
from flumina import local
from flumina.apps import PageViews, ValueBarrier
from flumina.apps.registry import find_app
from flumina.engine.results import RunResult, RunStats
from flumina.plan import StreamRates, make_plan
from flumina.report import Comparison, RunReport
from flumina.report.page import MOST_WORKERS
from flumina.runtime.stats import WorkerStats


@pytest.fixture(scope="module")
def result() -> RunResult:
    """A real run of two workers."""
    streams = find_app("page-views").generate(events=4_000, gets=500, changes=500).streams()
    known = [
        StreamRates("views", {"view": 1e6}, 2),
        StreamRates("gets", {"get": 9.0}),
        StreamRates("changes", {"change": 1.0}),
    ]
    return local.run(PageViews, streams, plan=make_plan(PageViews, known, workers=2), progress=False)


class Checked(HTMLParser):
    """Every element is closed by its own kind, and nothing is loaded or executed."""

    VOID = frozenset({"meta", "rect", "path"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "img", "iframe", "object")
        assert not [name for name, _ in attrs if name in ("src", "href") or name.startswith("on")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag in self.VOID or self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text += f"{data} "


def test_the_page_tells_what_the_run_did(result: RunResult) -> None:
    sample = result.committed["output"].dataset().head(3)
    settings = {"workers": 2, "set": "events=4000"}
    html = RunReport(
        result, "this machine", "flumina run page-views", settings, {"output": sample}, verified=True
    ).html()
    text = Checked(html).text
    assert "PageViews on this machine" in text
    assert "the same outputs as the sequential program" in text
    assert f"{result.stats.events:,} events" in text
    assert f"{result.stats.joins:,} joins" in text
    assert f"{sum(one.rows for one in result.committed.values()):,} rows of output" in text
    assert "flumina run page-views" in text
    assert "events=4000" in text
    assert str(sample.column("user")[0]) in text
    assert '<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="PageViews: 3 workers' in html
    for worker in ("w1", "w2", "w3"):
        assert f"<td>{worker}</td>" in html
    for number, task in result.stats.tasks.items():
        assert f"<td>{number}</td><td>{', '.join(sorted(task.workers))}</td>" in html
    buffered = [f"{one.buffered:,}" for one in result.stats.workers.values()]
    assert all(f'<td class="number">{most}</td>' in html for most in buffered), "high-water marks"
    assert "Latency" not in text, "nobody can tell how late outputs are"
    assert "Against one worker" not in text, "nobody has measured"


def test_waits_are_bars_by_cause(result: RunResult) -> None:
    waits = WorkerStats(events=1, waited_for_children=0.5, waited_for_state=0.25, waited_for_parent=0.25)
    stats = replace(result.stats, workers={**result.stats.workers, "w1": waits})
    html = RunReport(replace(result, stats=stats)).html()
    row = html[html.index("<td>w1</td>") :]
    bar = row[: row.index("</tr>")]
    assert re.findall(r'<i class="(\w+)" style="width:([\d.]+)%"', bar) == [
        ("state", "25.00"),
        ("children", "50.00"),
        ("parent", "25.00"),
    ]


def test_the_verdict_is_told_whatever_it_is(result: RunResult) -> None:
    assert "not compared with" in RunReport(result).html()
    assert "other outputs than the sequential program" in RunReport(result, verified=False).html()


def test_a_comparison_is_shown_with_all_measurements(result: RunResult) -> None:
    html = RunReport(result, comparison=Comparison(2, (3.0, 4.0, 3.2), (2.0, 1.6, 1.7))).html()
    text = Checked(html).text
    assert "1.88×" in text  # noqa: RUF001
    assert "3.0 s, 4.0 s, 3.2 s" in text
    assert re.findall(r'class="working" style="width:([\d.]+)%" title="working: (\S+) s"', html)[:2] == [
        ("80.00", "3.2"),
        ("42.50", "1.7"),
    ]


def test_paced_runs_show_their_latency() -> None:
    streams = find_app("value-barrier").generate(events=2_000, rate=20_000, ratio=100).streams(paced=True)
    ran = local.run(ValueBarrier, streams, workers=1, progress=False)
    text = Checked(RunReport(ran).html()).text
    assert "10 outputs, from when their events were due: half within" in text
    assert "latency, 99 %" in text


def test_what_comes_from_users_is_escaped(result: RunResult) -> None:
    nasty = "<script>alert('x')</script>"
    sample = pa.table({nasty: [nasty, None]})
    html = RunReport(result, nasty, nasty, {nasty: nasty}, {nasty: sample}).html()
    Checked(html)
    assert "alert" in html


def test_of_many_workers_those_that_waited_longest_are_listed(result: RunResult) -> None:
    known = [StreamRates("values", {"value": 1e6}, 80), StreamRates("barriers", {"barrier": 1})]
    plan = make_plan(ValueBarrier, known, workers=80, optimizer="greedy")
    workers = {one.id: WorkerStats(waited_for_state=float(n)) for n, one in enumerate(plan.workers)}
    html = RunReport(replace(result, plan=plan, stats=RunStats(workers, result.stats.tasks))).html()
    assert f"{len(plan) - MOST_WORKERS:,} more are not shown" in html
    listed = re.findall(r'<td>(w\d+)</td><td class="number">', html)
    assert listed == [one.id for one in reversed(plan.workers)][:MOST_WORKERS]


def test_a_run_that_had_nothing_left_to_do(result: RunResult) -> None:
    text = Checked(RunReport(replace(result, stats=RunStats({}, {}))).html()).text
    assert "No task ran" in text


def test_saving_makes_folders_and_says_if_it_cannot(result: RunResult, tmp_path: Path) -> None:
    page = RunReport(result).save(tmp_path / "a" / "b" / "report.html")
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    with pytest.raises(fl.UsageError, match="can't be written"):
        RunReport(result).save(tmp_path)
