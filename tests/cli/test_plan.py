import argparse
import json
from pathlib import Path

import pytest

from flumina.apps import PageViews
from flumina.cli.plan import FORMATS, add_parser, parse_streams
from flumina.errors import FluminaError, PlanError, UsageError
from flumina.plan import Plan, StreamRates, validate

VALUES = ["flumina.apps:ValueBarrier", "--streams", "values:value*2@1e6,barriers:barrier@1"]


def flumina(*args: str) -> int:
    parser = argparse.ArgumentParser(prog="flumina")
    add_parser(parser.add_subparsers(required=True))
    parsed = parser.parse_args(["plan", *args])
    code: int = parsed.run(parsed)
    return code


def test_text_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert flumina(*VALUES, "--workers", "2") == 0
    assert capsys.readouterr().out.startswith("ValueBarrier: 3 workers, 2 leaves")


@pytest.mark.parametrize("name", list(FORMATS))
def test_every_format_to_a_file(name: str, tmp_path: Path) -> None:
    out = tmp_path / "plan"
    assert flumina(*VALUES, "--format", name, "--out", str(out), "--optimizer", "greedy") == 0
    start = {"text": "ValueBarrier", "mermaid": "flowchart", "dot": "digraph", "json": "{", "html": "<!doctype"}
    assert out.read_text(encoding="utf-8").startswith(start[name])


def test_a_plan_file_is_checked_with_all_violations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    assert flumina(*VALUES, "--format", "json", "--out", str(file), "--optimizer", "greedy") == 0
    assert flumina("flumina.apps:ValueBarrier", "--check", str(file)) == 0
    assert "3 workers" in capsys.readouterr().out
    edited = json.loads(file.read_text(encoding="utf-8"))
    edited["workers"][1]["itags"] = []
    edited["workers"][2]["kind"] = "Other"
    file.write_text(json.dumps(edited), encoding="utf-8")
    assert flumina("flumina.apps:ValueBarrier", "--check", str(file)) == 1
    errors = capsys.readouterr().err
    assert "3 violations" in errors
    assert all(rule in errors for rule in ("EMPTY_LEAF", "UNKNOWN_KIND", "NOT_HANDLED"))
    assert flumina("flumina.apps:Fraud", "--check", str(file)) == 1
    assert "PROGRAM" in capsys.readouterr().err
    file.write_text("{", encoding="utf-8")
    with pytest.raises(PlanError, match="line 1"):
        flumina("flumina.apps:ValueBarrier", "--check", str(file))


def test_streams_from_a_json_file(tmp_path: Path) -> None:
    file, out = tmp_path / "streams.json", tmp_path / "plan.json"
    streams = [
        {"name": "views", "tags": {"view": 1e6}, "parts": 2, "hot": {"view": {"home": 6e5}}, "hosts": ["a", "b"]},
        {"name": "changes", "tags": {"change": 1}, "keys": [["home", "about"]]},
    ]
    file.write_text(json.dumps(streams), encoding="utf-8")
    assert flumina("flumina.apps:PageViews", "--streams", str(file), "--format", "json", "--out", str(out)) == 0
    plan = Plan.load(out)
    assert validate(plan, PageViews) == []
    assert set(plan.places) <= {"a", "b"}
    assert plan.stream("changes").tags["change"].keys() == {"home", "about"}


def test_one_line_descriptions() -> None:
    assert parse_streams("a:x*2@10, b:y+z@1.5+2,c:w") == [
        StreamRates("a", {"x": 10.0}, 2),
        StreamRates("b", {"y": 1.5, "z": 2.0}),
        StreamRates("c", {"w": None}),
    ]


@pytest.mark.parametrize("text", ["", "a", "a:", ":x", "a:x*", "a:x*two", "a:x@", "a:x@fast", "a:x+y@1", "a:x,,b:y"])
def test_descriptions_that_describe_nothing(text: str) -> None:
    with pytest.raises(UsageError, match="STREAMS"):
        parse_streams(text)


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "{}",
        "[3]",
        '[{"name": "s"}]',
        '[{"name": "s", "tags": {"view": 1}, "part": 2}]',
        '[{"name": "s", "tags": {"view": 1}, "parts": "two"}]',
        '[{"name": "s", "tags": {"view": 1}, "hot": {"view": 3}}]',
        '[{"name": "s", "tags": {"view": 1}, "keys": [3]}]',
        '[{"name": "s", "tags": {"view": "fast"}}]',
        '[{"name": "s", "tags": ["view", 3]}]',
        '[{"name": "s", "tags": {"view": 1}, "keys": [["a", 1.5]]}]',
        '[{"name": "s", "tags": {"view": [1, "x"]}, "parts": 2}]',
        "[]",
    ],
)
def test_stream_files_that_describe_nothing(content: str, tmp_path: Path) -> None:
    file = tmp_path / "streams.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError):
        flumina("flumina.apps:PageViews", "--streams", str(file))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["flumina.apps:ValueBarrier"], "needs --streams"),
        (["flumina.apps:Nothing", "--streams", "a:x@1"], "NO_PROGRAM"),
        (["flumina.apps:ValueBarrier", "--streams", "missing.json"], "can't be read"),
        ([*VALUES, "--check", "plan.json"], "not both"),
        ([*VALUES, "--workers", "9"], "9 workers for 3 itags"),
        ([*VALUES, "--workers", "0"], "WORKERS"),
        ([*VALUES, "--out", "/nowhere/plan"], "can't be written"),
    ],
)
def test_bad_command_lines(args: list[str], message: str) -> None:
    with pytest.raises(FluminaError, match=message):
        flumina(*args)


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        flumina("--help")
    text = capsys.readouterr().out
    assert "--streams values:value*4@1000000,barriers:barrier@10" in text
    assert max(map(len, text.splitlines())) <= 125


def test_a_tag_twice_and_too_many_parts() -> None:
    with pytest.raises(UsageError, match="'value' twice"):
        parse_streams("v:value+value@5+5")
    for parts in ("1000001", "9" * 5000):
        with pytest.raises(UsageError, match="at most 1000000"):
            parse_streams(f"v:value*{parts}")


def test_files_may_start_with_a_byte_order_mark(tmp_path: Path) -> None:
    streams, plan = tmp_path / "streams.json", tmp_path / "plan.json"
    streams.write_text('[{"name": "v", "tags": ["value"]}]', encoding="utf-8-sig")
    assert parse_streams(str(streams)) == [StreamRates("v", ["value"])]
    assert flumina(*VALUES, "--format", "json", "--out", str(plan)) == 0
    plan.write_text(plan.read_text(encoding="utf-8"), encoding="utf-8-sig")
    assert flumina("flumina.apps:ValueBarrier", "--check", str(plan)) == 0


def test_tags_in_a_list_in_a_list(tmp_path: Path) -> None:
    streams = tmp_path / "streams.json"
    streams.write_text('[{"name": "v", "tags": [["value"]]}]', encoding="utf-8")
    with pytest.raises(UsageError, match="expected a tag, got"):
        flumina("flumina.apps:ValueBarrier", "--streams", str(streams))
