"""``flumina sim`` on the command line."""

from __future__ import annotations

import pytest

from flumina.cli import main
from flumina.runtime.inner import Inner


def test_random_programs_pass_and_the_savings_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--seeds", "40", "--events", "25"]) == 0
    out = capsys.readouterr().out
    assert "40 runs without a failure" in out
    assert "a root without tags" in out
    joins = {line.split("  ")[0]: int(line[18:26]) for line in out.splitlines()[-4:]}
    assert joins["plain"] > joins["coalesced"] >= joins["also pipelined"] > 0


def test_one_program_with_switches(capsys: pytest.CaptureFixture[str]) -> None:
    switches = ["--no-coalesce", "--no-pipeline", "--no-hand-over", "--no-faults"]
    assert main(["sim", "flumina.apps:ValueBarrier", "--seeds", "12", *switches]) == 0
    assert "12 runs without a failure" in capsys.readouterr().out


def test_one_seed_can_be_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--seed", "3", "--events", "10", "--trace"]) == 0
    first = capsys.readouterr().out
    assert "1 ^ -> w1" in first
    assert "-> w1: request" in first
    assert main(["sim", "--seed", "3", "--events", "10", "--trace"]) == 0
    assert _trace(capsys.readouterr().out) == _trace(first)


def _trace(text: str) -> list[str]:
    return [line for line in text.splitlines() if "->" in line or line.startswith("       ")]


def test_a_failure_is_shortened_and_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inner, "may_coalesce", lambda _: True)
    assert main(["sim", "flumina.apps:ValueBarrier", "--seeds", "200", "--no-faults"]) == 1
    out = capsys.readouterr().out
    assert "repeat with: flumina sim flumina.apps:ValueBarrier --events 60 --no-faults --seed " in out
    assert "shortest schedule: [" in out
    events = [line for line in out.splitlines() if line.startswith(("s0[", "s1["))]
    assert sum(line.count("@") for line in events) <= 6, "what matters is a value and a barrier or two"
    assert "request" in out


def test_nonsense_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--seeds", "0"]) == 2
    assert "positive" in capsys.readouterr().err
