import pytest

from flumina.apps import PageViews
from flumina.demo import demo, page_view_streams
from flumina.spec import spec


def test_the_demo_prints_changes_with_the_views_around_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo() == 0
    shown = capsys.readouterr().out
    assert "saw (none yet)" in shown
    assert "was edition 1" in shown
    assert "change (all) ← changes" in shown, "changes are where the two leaves meet"
    assert "in 2 processes" in shown
    assert "gave exactly these rows" in shown
    assert "all laws hold" in shown


def test_every_view_of_the_demo_saw_the_edition_of_its_moment() -> None:
    """Recomputed here without flumina: the newest change of the page at or before the view."""
    changes, views = page_view_streams(views=200, changes=8)
    result = spec(PageViews, [changes, views])
    edits = changes.data.to_pylist()
    seen = [row for row in result.output.to_pylist() if row["user"] is not None]
    assert len(seen) == 200
    for row in seen:
        before = [e for e in edits if e["page"] == row["page"] and e["ts"] <= row["event_ts"]]
        assert row["info"] == (before[-1]["info"] if before else None)
