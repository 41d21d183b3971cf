import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import flumina as fl
from flumina.apps.page_views import PageViews, Visits
from flumina.cli import demo
from flumina.cli.demo import around_changes
from flumina.cli.main import main
from flumina.cli.verify import Verification

Output = pytest.CaptureFixture[str]
ARGUMENTS = ["demo", "--engine", "local", "--events", "60000", "--workers", "2"]


def test_the_demo_shows_all_there_is_to_see(tmp_path: Path, capsys: Output) -> None:
    assert main([*ARGUMENTS, "--verify", "--dir", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "60,000 views of two hot pages" in shown
    assert "change (all) ← changes" in shown, "changes are where the two leaves meet"
    assert "├─ w2" in shown
    assert "was (nothing yet)" in shown
    assert "verified: the sequential program gives the same 60,033 rows" in shown
    assert "times as fast as one worker" in shown
    assert "medians of 3" in shown
    page = (tmp_path / "report.html").read_text()
    assert f"report   {tmp_path}/report.html" in shown
    assert "the same outputs as the sequential program" in page
    assert "Against one worker" in page
    assert "flumina demo --engine local" in page
    assert (tmp_path / "outputs" / "_SUCCESS").exists()


def test_without_verify_the_oracle_is_not_asked_and_it_can_be_repeated(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "judge", None)
    for _ in range(2):
        assert main(ARGUMENTS) == 0
    shown = capsys.readouterr().out
    assert "verified" not in shown
    assert "report   build/flumina-demo/report.html" in shown
    assert "not compared" in Path("build/flumina-demo/report.html").read_text()


def test_other_outputs_than_the_oracle_are_a_failure(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "judge", lambda *_: Verification(3, "1 rows missing"))
    assert main([*ARGUMENTS, "--verify", "--dir", str(tmp_path)]) == 1
    assert "WRONG" in capsys.readouterr().out
    assert "other outputs than" in (tmp_path / "report.html").read_text()


def test_without_java_it_runs_here_and_says_why(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert main(["demo", "--events", "60000", "--dir", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "Not on Spark, since " in shown
    assert "The plan, on this machine" in shown


def test_nonsense_is_refused(capsys: Output) -> None:
    assert main(["demo", "--workers", "0"]) == 2
    assert main(["demo", "--engine", "local", "--events", "-1"]) == 2
    assert "at least" in capsys.readouterr().err


def test_each_change_is_shown_between_the_views_around_it() -> None:
    """Judged by the rows of the oracle in order: nothing of that page lies between the three."""
    rows = fl.spec(PageViews, Visits(events=2_000, changes=100, gets=50).streams()).output
    shown = around_changes(rows).to_pylist()
    assert [row["what"].split()[0] for row in shown] == ["viewed", "changed", "viewed"] * 3
    ordered = [row for row in rows.to_pylist() if row["event_stream"] != "gets"]
    for before, change, after in (shown[n : n + 3] for n in range(0, 9, 3)):
        of_page = [row for row in ordered if row["page"] == change["page"]]
        at = next(
            n
            for n, row in enumerate(of_page)
            if row["event_stream"] == "changes" and row["event_ts"] == change["event_ts"]
        )
        assert before["event_ts"] == of_page[at - 1]["event_ts"]
        assert before["information"] == (of_page[at - 1]["info"] or "(nothing yet)")
        assert change["information"] == f"was {before['information']}"
        assert (after["event_ts"], after["information"]) == (of_page[at + 1]["event_ts"], of_page[at + 1]["info"])


def test_without_changes_nothing_is_shown() -> None:
    columns = {"page": ["0"], "user": [1], "info": ["x"], "event_ts": [1], "event_stream": ["views"]}
    assert around_changes(pa.table(columns)).num_rows == 0
