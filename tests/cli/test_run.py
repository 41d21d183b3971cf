"""``flumina run``: every option, and every way to get it wrong."""

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import flumina as fl
from flumina import local
from flumina.apps import PageViews
from flumina.apps.registry import find_app
from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.cli import run as command
from flumina.cli.main import main
from flumina.plan import StreamRates, make_plan
from tests.cli.jobs import FORGETFUL, ORDERS, write

Output = pytest.CaptureFixture[str]
SMALL = ["run", "value-barrier", "--set", "events=4000", "--set", "ratio=100"]


def run(capsys: Output, *arguments: object) -> tuple[int, str, str]:
    code = main(["run", *map(str, arguments)])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def run_json(capsys: Output, *arguments: object, code: int = 0) -> dict[str, Any]:
    got, out, err = run(capsys, *arguments, "--json")
    assert got == code, err
    found: dict[str, Any] = json.loads(out)
    return found


def totals(folder: Path) -> list[int]:
    found: list[int] = ds.dataset(folder).to_table().column("total").to_pylist()
    return found


def test_a_known_program_is_run_verified_and_shown(capsys: Output) -> None:
    assert main([*SMALL, "--workers", "2", "--verify"]) == 0
    out = capsys.readouterr().out
    assert "ValueBarrier on this machine: 4,020 events in" in out
    assert "barrier ← barriers" in out
    assert "outputs: 20 rows\n" in out
    assert out.count(" barriers\n") == 1 + 5, "the plan, and five rows"
    assert "verified: the sequential program gives the same 20 rows" in out
    assert "report" not in out


def test_bad_rows_end_the_run_or_are_put_aside(capsys: Output, tmp_path: Path) -> None:
    job = f"{write(tmp_path, 'orders.py', ORDERS)}:Orders"
    orders = pa.table({"ts": [1, None, 3, 4], "amount": [5, 6, None, 7]})
    pq.write_table(orders, tmp_path / "orders.parquet")
    pq.write_table(pa.table({"ts": [9]}), tmp_path / "closes.parquet")
    given = [job, "--input", f"order={tmp_path}/orders.parquet", "--input", f"close={tmp_path}/closes.parquet"]
    code, _, err = run(capsys, *given)
    assert code == 2
    assert "NULL_TIMESTAMP" in err
    assert 'bad_rows="dead-letter"' in err
    out = tmp_path / "out"
    found = run_json(capsys, *given, "--bad-rows", "dead-letter", "--out", out, "--verify")
    assert (found["verified"], found["stats"]["events"], found["stats"]["dead_letters"]) == (True, 3, 2)
    assert found["dead_letters"] == {"rows": 2, "path": str(out / "_dead_letters")}
    assert totals(out) == [12]
    assert sorted(pq.read_table(out / "_dead_letters").column("row").to_pylist()) == [1, 2]
    code, shown, _ = run(capsys, *given, "--bad-rows", "dead-letter", "--report", tmp_path / "page.html")
    assert code == 0
    assert "2 dead letters" in shown
    assert "dead letters: 2 rows\n" in shown
    assert "NULL_VALUE" in shown
    assert "<b>2</b>dead letters" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("name", ["key-counter", "page-views", "fraud", "outliers"])
def test_all_known_programs_are_verified(name: str, capsys: Output) -> None:
    found = run_json(capsys, name, "--set", "events=3000", "--workers", 2, "--verify")
    assert found["verified"] is True
    assert found["stats"]["events"] >= 3000


def test_smart_homes_too(capsys: Output) -> None:
    parameters = find_app("smart-home").workload.parameters()
    small = {"houses": 2, "households": 2, "plugs": 2, "seconds": 30}
    given = [word for name, value in small.items() if name in parameters for word in ("--set", f"{name}={value}")]
    assert run_json(capsys, "smart-home", *given, "--verify")["verified"] is True


def test_json_says_everything(tmp_path: Path, capsys: Output) -> None:
    out, page = tmp_path / "totals", tmp_path / "r.html"
    found = run_json(capsys, *SMALL[1:], "--workers", 2, "--out", out, "--report", page)
    assert found["program"] == "ValueBarrier"
    assert found["engine"] == "local"
    assert found["outputs"]["output"]["rows"] == 20
    assert found["outputs"]["output"]["path"] == str(out)
    assert found["outputs"]["output"]["columns"] == ["total", "event_ts", "event_stream"]
    assert found["verified"] is None
    assert found["mismatch"] is None
    assert found["report"] == str(page)
    assert found["left_out"] == 0
    assert found["stats"]["events"] == 4020
    assert found["stats"].keys() >= {"joins", "bytes_between", "latency", "workers", "tasks", "snapshots"}
    assert found["plan"]["program"] == "ValueBarrier"


def test_out_overwrite_order_and_rows(tmp_path: Path, capsys: Output) -> None:
    out = tmp_path / "joined"
    pages = ["page-views", "--set", "events=3000", "--set", "changes=100", "--workers", "2", "--out", out]
    assert run(capsys, *pages)[0] == 0
    code, _, err = run(capsys, *pages)
    assert code == 2
    assert err.startswith("flumina: [OUT_EXISTS]")
    assert "pass --overwrite" in err
    code, shown, _ = run(capsys, *pages, "--overwrite", "--ordered", "--rows", 2)
    assert code == 0
    assert f"in {out}\n" in shown
    assert shown.splitlines()[-1] == "  ..."
    rows = ds.dataset(out).to_table().column("event_ts").to_pylist()
    assert rows == sorted(rows)
    assert run(capsys, *pages, "--overwrite", "--rows", 0)[1].splitlines()[-1] == f"outputs: 3,030 rows in {out}"


def test_without_out_nothing_is_left_behind(tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run_json(capsys, *SMALL[1:])["outputs"]["output"]["path"] is None
    assert list(tmp_path.iterdir()) == []


def test_discarded_outputs_are_counted(capsys: Output) -> None:
    code, out, _ = run(capsys, *SMALL[1:], "--discard")
    assert code == 0
    assert "outputs: 20 rows, counted and not kept" in out


def test_workers_optimizer_and_plan(tmp_path: Path, capsys: Output) -> None:
    assert len(run_json(capsys, *SMALL[1:], "--workers", 1)["plan"]["workers"]) == 1
    assert len(run_json(capsys, *SMALL[1:], "--workers", 2, "--optimizer", "sequential")["plan"]["workers"]) == 1
    assert len(run_json(capsys, *SMALL[1:], "--workers", 2, "--optimizer", "greedy")["plan"]["workers"]) == 3
    plan = tmp_path / "plan.json"
    known = [
        StreamRates("views", {"view": 1e6}, 2),
        StreamRates("gets", {"get": 1.0}),
        StreamRates("changes", {"change": 1.0}),
    ]
    made = make_plan(PageViews, known, workers=2)
    made.save(plan)
    pages = ["page-views", "--set", "events=2000", "--set", "parts=2", "--plan", plan]
    assert len(run_json(capsys, *pages)["plan"]["workers"]) == len(made) == 3
    code, _, err = run(capsys, "value-barrier", "--set", "events=10", "--plan", plan)
    assert code == 2
    assert "PageViews" in err


def test_parameters_are_listed(capsys: Output) -> None:
    code, out, _ = run(capsys, "outliers", "--set", "?=?")
    assert code == 0
    assert "events" in out
    assert "every" in out, "the option of its files"


def test_parameters_of_a_function_are_listed(tmp_path: Path, capsys: Output) -> None:
    job = write(tmp_path, "listed_job.py", ORDERS)
    code, out, _ = run(capsys, f"{job}:Orders", "--streams", f"{job}:streams", "--set", "?=?")
    assert code == 0
    listed = [line.split() for line in out.splitlines()]
    assert listed == [["count", "100", "int"], ["scale", "1.0", "float"], ["word", "'x'", "str"], ["parts", "2", "int"]]
    assert run(capsys, f"{job}:Orders", "--streams", f"{job}:needy", "--set", "day=?")[1].split() == ["day", "str"]
    assert run(capsys, "value-barrier", "--streams", f"{job}:needy", "--set", "?=?")[1].split() == ["day", "str"]
    code, _, err = run(capsys, f"{job}:Orders", "--streams", f"{job}:ready", "--set", "?=?")
    assert code == 2
    assert "is a list" in err
    assert "--streams" in run(capsys, f"{job}:Orders", "--set", "?=?")[2]


def test_one_worker_verifies_neither_fork_nor_join(capsys: Output) -> None:
    out = run(capsys, *SMALL[1:], "--workers", 1, "--verify")[1]
    assert "gives the same 20 rows (the plan has one worker: fork and join were not used)\n" in out
    out = run(capsys, *SMALL[1:], "--workers", 2, "--optimizer", "greedy", "--verify")[1]
    assert "gives the same 20 rows\n" in out


def test_input_of_ones_own_format(tmp_path: Path, capsys: Output) -> None:
    lines = [f"{1377986400 + n} {20 + n}.5 1 {n % 3} 0 {n % 2}" for n in range(60)]
    file = tmp_path / "plugs.txt"
    file.write_text("\n".join([*lines, *(f"what{n}?" for n in range(7))]) + "\n")
    code, _, err = run(capsys, "smart-home", "--input", file)
    assert code == 2
    assert "plugs.txt:61" in err
    code, out, err = run(
        capsys, "smart-home", "--input", file, "--lenient", "--set", "slice_seconds=20", "--verify", "--json"
    )
    assert code == 0, err
    assert "7 lines were left out:\n" in err
    assert "... and 2 more" in err
    assert json.loads(out)["left_out"] == 7
    assert json.loads(out)["outputs"]["output"]["rows"] == 20


def test_files_for_the_streams_of_ones_own_program(tmp_path: Path, capsys: Output) -> None:
    job = write(tmp_path, "files_job.py", ORDERS)
    pq.write_table(pa.table({"at": [3, 1, 2], "amount": [1, 2, 3]}), tmp_path / "orders.parquet")
    pq.write_table(pa.table({"at": [9]}), tmp_path / "closes.parquet")
    out = tmp_path / "out"
    files = ["--input", f"orders:order={tmp_path}/orders.parquet", "--input", f"close={tmp_path}/closes.parquet"]
    arguments = [f"{job}:Orders", *files, "--ts", "at"]
    assert run(capsys, *arguments, "--unsorted", "--out", out, "--verify")[0] == 0
    assert totals(out) == [6]
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert "--unsorted" in err, "what to do is said in options"


def test_a_function_for_the_streams(tmp_path: Path, capsys: Output) -> None:
    job = write(tmp_path, "function_job.py", ORDERS)
    out = tmp_path / "out"
    code, shown, _ = run(
        capsys, f"{job}:Orders", "--streams", f"{job}:streams", "--set", "count=10", "--workers", 2, "--out", out,
        "--optimizer", "greedy", "--ordered", "--verify",
    )  # fmt: skip
    assert code == 0
    assert totals(out) == [15, 30]
    assert "Orders: 3 workers" in shown


def test_a_module_of_ones_own(tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "module_of_ones_own.py", ORDERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    name = "module_of_ones_own"
    assert run_json(capsys, f"{name}:Orders", "--streams", f"{name}:streams", "--verify")["verified"] is True


def test_other_outputs_than_the_oracle_are_shown_side_by_side(tmp_path: Path, capsys: Output) -> None:
    job = write(tmp_path, "forgetful_job.py", FORGETFUL)
    arguments = [f"{job}:Forgetful", "--streams", f"{job}:streams", "--workers", 2, "--optimizer", "greedy"]
    page = tmp_path / "wrong.html"
    code, out, _ = run(capsys, *arguments, "--verify", "--report", page)
    assert code == 1
    assert "WRONG: the sequential program gives other rows" in out
    assert "output 'output': 1 rows missing, 1 surplus" in out
    assert "  missing         | surplus\n  (6, 10, 'asks') | (3, 10, 'asks')\n" in out
    assert f"\n  hint: flumina check {job}:Forgetful says whether" in out
    assert "other outputs than the sequential program" in page.read_text()
    found = run_json(capsys, *arguments, "--verify", code=1)
    assert found["verified"] is False
    assert "1 surplus" in found["mismatch"]
    assert run(capsys, *arguments)[0] == 0, "nobody asked"


def test_what_ones_own_code_raises_is_told_and_is_no_misuse(tmp_path: Path, capsys: Output) -> None:
    job = write(tmp_path, "failing_job.py", FORGETFUL.replace("FAILS = -1", "FAILS = 7"))
    code, out, err = run(capsys, f"{job}:Forgetful", "--streams", f"{job}:streams", "--set", "fails=7")
    assert code == 1
    assert out == ""
    assert "Forgetful.update raised ValueError: seven is too much on value(v=7)@1" in err
    assert "failing_job.py:18" in err
    assert "Traceback" not in err


def test_paced_input_has_latency(tmp_path: Path, capsys: Output) -> None:
    paced = ["value-barrier", "--set", "events=2000", "--set", "rate=20000", "--set", "ratio=100", "--paced"]
    found = run_json(capsys, *paced, "--heartbeats", 200)
    assert found["stats"]["latency"]["outputs"] == 10
    assert 0 < found["stats"]["latency"]["p50"] <= found["stats"]["latency"]["p99"]
    page = tmp_path / "latency.html"
    assert run(capsys, *paced, "--report", page)[0] == 0
    assert "Latency of outputs" in page.read_text()


def test_the_report_has_a_place_of_its_own(tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, *SMALL[1:], "--verify", "--report")
    assert code == 0
    assert f"report: {command.REPORT}" in out
    text = Path(command.REPORT).read_text()
    assert "flumina run value-barrier --set events=4000 --set ratio=100 --verify --report" in text
    assert "events=4000, ratio=100" in text
    assert "the same outputs as the sequential program" in text
    assert "Some rows of output" in text


FRAGILE = ORDERS.replace(
    "        if event.tag is self.order:",
    """        if event.tag is self.order and event.amount == 4_900 and Path(__file__).with_name("broken").exists():
            raise OSError("out of coffee")
        if event.tag is self.order:""",
).replace("import pyarrow as pa", "from pathlib import Path\nimport pyarrow as pa")


def test_a_checkpoint_is_gone_on_from(tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """Input is read in small pieces, so that there are snapshots before it is over."""
    pieces = fl.EngineOptions(chunk_rows=100, window=200)
    monkeypatch.setattr("flumina.local.run", partial(local.run, engine_options=pieces))
    job, out, kept, broken = write(tmp_path, "fragile_job.py", FRAGILE), *map(tmp_path.joinpath, ("o", "c", "broken"))
    arguments = [f"{job}:Orders", "--streams", f"{job}:streams", "--set", "count=5000", "--workers", "2", "--out", out]
    arguments += ["--checkpoint", kept, "--snapshot-every", "500events"]
    broken.touch()
    code, _, err = run(capsys, *arguments)
    assert code == 1
    assert "out of coffee" in err
    before, latest = Checkpoints(kept).all()[-2:]
    assert not latest.manifest.finished
    assert before.manifest.events < latest.manifest.events
    state = kept / latest.manifest.state[0].name
    state.write_bytes(b"")
    broken.unlink()
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert state.name in err
    assert "ask for an older snapshot (--allow-older)" in err
    found = run_json(capsys, *arguments, "--allow-older", "--verify")
    assert found["verified"] is True
    assert found["stats"]["events"] == 5_002 - before.manifest.events


def test_a_run_that_is_over_gives_its_outputs_again(tmp_path: Path, capsys: Output) -> None:
    out, kept = tmp_path / "totals", tmp_path / "kept"
    arguments = [*SMALL[1:], "--workers", "2", "--out", out, "--checkpoint", kept]
    assert run_json(capsys, *arguments, "--snapshot-every", "500events")["stats"]["events"] == 4020
    latest = Checkpoints(kept).latest()
    assert latest is not None
    assert latest.manifest.finished
    again = run_json(capsys, *arguments, "--verify", "--allow-older", "--allow-code-change")
    assert again["verified"] is True, "nothing was left to do, and the outputs are there"
    assert again["stats"]["events"] == 0


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("10s", (10.0, None, None)),
        ("2.5", (2.5, None, None)),
        ("100events", (None, 100, None)),
        ("7 syncs", (None, None, 7)),
    ],
)
def test_when_snapshots_are_taken(
    text: str, policy: tuple[float | None, int | None, int | None], monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    seen: list[fl.Checkpoint] = []

    def stop(*_: object, checkpoint: fl.Checkpoint, **__: object) -> None:
        seen.append(checkpoint)
        raise fl.UsageError("ENOUGH", "enough")

    monkeypatch.setattr("flumina.local.run", stop)
    older = ["--allow-older", "--allow-code-change"]
    assert run(capsys, "page-views", "--out", "o", "--checkpoint", "c", "--snapshot-every", text, *older)[0] == 2
    assert (seen[0].seconds, seen[0].events, seen[0].syncs) == policy
    assert seen[0].allow_older
    assert seen[0].allow_code_change


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nope"], "there is no program called 'nope'"),
        (["nowhere.py:P"], "no file nowhere.py"),
        (["page-views", "--workers", "0"], "expected --workers as an integer of at least 1, got 0"),
        (["page-views", "--workers", "2", "--plan", "p.json"], "give --plan or --workers"),
        (["page-views", "--plan", "missing.json"], "missing.json can't be read"),
        (["page-views", "--rows", "-1"], "expected --rows of at least 0"),
        (["page-views", "--set", "events"], "--set events: expected NAME=VALUE"),
        (["page-views", "--set", "events=1", "--set", "events=2"], "--set gives events twice"),
        (["page-views", "--set", "evnts=1"], "has no 'evnts'"),
        (["page-views", "--set", "events=many"], "expected events= as int, got 'many'"),
        (["page-views", "--set", "hot=7"], "are more than there are pages"),
        (["page-views", "--input", "missing"], "there is no file or folder missing"),
        (["page-views", "--input", "view=no*.parquet"], "there are no files in no*.parquet"),
        (["page-views", "--heartbeats", "5"], "without --paced"),
        (["page-views", "--paced", "--heartbeats", "0"], "heartbeats= is a number a second"),
        (["page-views", "--lenient"], "--lenient is for --input PATH"),
        (["page-views", "--unsorted"], "--unsorted is for --input"),
        (["page-views", "--ts", "at"], "--ts is for --input"),
        (["page-views", "--overwrite"], "--overwrite has no meaning without --out"),
        (["page-views", "--checkpoint", "c"], "--checkpoint needs --out"),
        (["page-views", "--snapshot-every", "3s"], "--snapshot-every has no meaning without --checkpoint"),
        (["page-views", "--allow-older"], "--allow-older has no meaning without --checkpoint"),
        (["page-views", "--allow-code-change"], "--allow-code-change has no meaning without --checkpoint"),
        (
            ["page-views", "--out", "o", "--checkpoint", "c", "--snapshot-every", "soon"],
            "as 30s, 100000events or 50syncs",
        ),
        (
            ["page-views", "--out", "o", "--checkpoint", "c", "--snapshot-every", "1.5events"],
            "as 30s, 100000events or 50syncs",
        ),
        (["page-views", "--out", "o", "--checkpoint", "c", "--snapshot-every", "0"], "above 0"),
        (["page-views", "--discard", "--verify"], "--verify has no meaning"),
        (["page-views", "--discard", "--out", "o"], "--out has no meaning"),
        (["page-views", "--discard", "--ordered"], "--ordered has no meaning"),
        (["page-views", "--master", "local[2]"], "--master is for Spark"),
        (["page-views", "--conf", "a=b"], "--conf is for Spark"),
        (["page-views", "--engine", "spark", "--conf", "a"], "--conf a: expected NAME=VALUE"),
        (["flumina.apps:KeyCounterMap", "--set", "events=?"], "no made-up input"),
    ],
)
def test_what_cannot_be_meant_is_one_clear_error(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert said in err
    assert err.startswith("flumina: [")
    assert len(err.splitlines()) <= 2, "what is wrong, and perhaps a hint"
    assert os.listdir(tmp_path) == [], "nothing was begun"  # noqa: PTH208


def test_a_report_replaces_nothing_but_a_report(tmp_path: Path, capsys: Output) -> None:
    page, data = tmp_path / "page.html", tmp_path / "data.parquet"
    assert run(capsys, *SMALL[1:], "--report", page)[0] == run(capsys, *SMALL[1:], "--report", page)[0] == 0
    data.write_bytes(b"PAR1")
    for given, why in ((data, "exists, and is not an HTML page"), ("", "got no name")):
        code, _, err = run(capsys, *SMALL[1:], "--report", given)
        assert code == 2
        assert why in err
    assert data.read_bytes() == b"PAR1"


def test_a_report_that_cannot_be_written(tmp_path: Path, capsys: Output) -> None:
    code, out, err = run(capsys, *SMALL[1:], "--report", tmp_path)
    assert (code, out) == (2, ""), "it is known before anything runs"
    assert "got a folder" in err
    (tmp_path / "file").touch()
    code, _, err = run(capsys, *SMALL[1:], "--report", tmp_path / "file" / "r.html")
    assert code == 2
    assert "can't be written" in err


def test_out_is_a_file(tmp_path: Path, capsys: Output) -> None:
    place = tmp_path / "file"
    place.touch()
    code, _, err = run(capsys, *SMALL[1:], "--out", place)
    assert code == 2
    assert "--out names a folder" in err


def test_an_unknown_option_is_misuse(capsys: Output) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "page-views", "--wokers", "2"])
    assert ended.value.code == 2


def test_tags_that_nobody_gave_events_of_are_told(tmp_path: Path, capsys: Output) -> None:
    job = write(tmp_path, "silent_job.py", FORGETFUL)
    pq.write_table(pa.table({"ts": [1, 2], "v": [3, 4]}), tmp_path / "values.parquet")
    code, _, err = run(capsys, f"{job}:Forgetful", "--input", f"value={tmp_path / 'values.parquet'}")
    assert code == 0, err
    assert "note: no stream has events of ask" in err


@pytest.mark.parametrize(
    ("given", "expected"), [(None, {}), ("90", {"task_timeout": 90.0}), ("none", {"task_timeout": None})]
)
def test_the_timeout_of_tasks_goes_to_the_engine(
    given: str | None, expected: dict[str, Any], capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: list[dict[str, Any]] = []
    real = local.run

    def noted(*arguments: Any, **more: Any) -> Any:
        options.append(more)
        return real(*arguments, **more)

    monkeypatch.setattr("flumina.local.run", noted)
    code, _, _ = run(capsys, *SMALL[1:], *([] if given is None else ["--task-timeout", given]))
    assert code == 0
    assert {name: value for name, value in options[0].items() if name == "task_timeout"} == expected


@pytest.mark.parametrize("given", ["0", "soon", "-3", "nan"])
def test_a_timeout_is_a_time(given: str, capsys: Output) -> None:
    code, _, err = run(capsys, *SMALL[1:], f"--task-timeout={given}")
    assert code == 2
    assert f"expected --task-timeout as a number of seconds above 0, or none, got {given!r}" in err
