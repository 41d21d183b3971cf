"""What a person sees of a run: what it waits for, then how far it is."""

from __future__ import annotations

import io
import logging
import time

import pytest

from flumina.engine.progress import ProgressLine, TaskProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_phase_is_shown_at_once_and_ends_with_the_first_report() -> None:
    screen = Terminal()
    line = ProgressLine("Sums", stream=screen)
    line.wait("waiting for slots")
    line.wait("waiting for slots")
    assert screen.getvalue() == "\rSums: waiting for slots"
    line.update(0, TaskProgress(events=5, joins=0, read=5, frontier=None, stall=None))
    assert line.text(time.monotonic()).startswith("Sums: 5 events")


def test_without_a_terminal_every_phase_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    line = ProgressLine("Sums", stream=io.StringIO())
    with caplog.at_level(logging.INFO, logger="flumina"):
        for phase in ("waiting for Spark", "waiting for Spark", "waiting for slots"):
            line.wait(phase)
    assert caplog.messages == ["Sums: waiting for Spark", "Sums: waiting for slots"]


def test_a_notice_stays(caplog: pytest.LogCaptureFixture) -> None:
    screen = Terminal()
    line = ProgressLine("Sums", stream=screen)
    line.wait("waiting for slots, and for some more")
    line.notice("goes on with 2")
    line.close()
    before, after = screen.getvalue().split("\r")[1:]
    assert after.rstrip() == "Sums: goes on with 2"
    assert after.endswith("\n")
    assert len(after) == len(before) + 1, "nothing of the line before is left to see"
    ProgressLine("Sums", stream=io.StringIO()).notice("goes on with 2")
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_nothing_is_shown_if_nothing_is_to_be(caplog: pytest.LogCaptureFixture) -> None:
    screen = Terminal()
    line = ProgressLine("Sums", shown=False, stream=screen)
    line.wait("waiting for slots")
    line.notice("goes on with 2")
    line.close()
    assert not screen.getvalue()
    assert not caplog.records
