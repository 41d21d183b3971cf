"""``flumina sim`` on the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from flumina.cli.main import main
from flumina.runtime.inner import Inner
from flumina.sim.invariants import SimulationError


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
    assert re.search(r"1 \^ -> w\d: fork state", first)
    assert re.search(r"-> w\d: request", first)
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


SMALL = ["sim", "flumina.apps:ValueBarrier", "--exhaustive", "--states", "400"]


def test_every_schedule_of_small_runs_is_followed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--first", "5", "--seeds", "3"]) == 0
    out = capsys.readouterr().out
    runs, schedules = re.findall(r"(\d+) runs: all ([\d,]+) schedules", out)[0]
    left_out = re.findall(r"(\d+) runs with more than 400 states were left out", out)
    assert int(runs) + sum(map(int, left_out)) == 3
    assert int(schedules.replace(",", "")) > 1000


def test_a_schedule_that_fails_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(*_: object) -> None:
        raise SimulationError("outputs differ")

    monkeypatch.setattr("flumina.sim.explore.judge", judge)
    assert main([*SMALL, "--first", "5"]) == 1
    out = capsys.readouterr().out
    assert "a schedule of seed 5 fails: SimulationError: outputs differ" in out
    again = re.findall(r"repeat with: flumina (sim .*--exhaustive --states 400 --seed 5)", out)
    assert main(again[0].split()) == 1


def test_nonsense_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--seeds", "0"]) == 2
    assert "positive" in capsys.readouterr().err


def test_a_plan_file_is_run_and_an_invalid_one_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    streams = "changes:change@1,views:view*2@1000000"
    saved = ["plan", "flumina.apps:PageViews", "--streams", streams, "--workers", "2", "--format", "json"]
    assert main([*saved, "--out", str(file)]) == 0
    assert main(["sim", "flumina.apps:PageViews", "--plan", str(file), "--seeds", "8", "--events", "30"]) == 0
    assert "8 runs without a failure" in capsys.readouterr().out
    data = json.loads(file.read_text())
    for worker in data["workers"]:
        worker["itags"] = [] if not worker["children"] else worker["itags"]
    file.write_text(json.dumps(data))
    assert main(["sim", "flumina.apps:PageViews", "--plan", str(file)]) == 2
    told = capsys.readouterr().err
    assert told.count("is a leaf without tags") == 2, "every violation is named"
    assert main(["sim", "--plan", str(file)]) == 2
