import json
from pathlib import Path
from typing import Any

import pytest

from flumina.apps import ValueBarrier
from flumina.checkpoint.fingerprint import program_fingerprint
from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.checkpoint.store.manifest import EpochOutputs, OutputFile
from flumina.cli.main import main
from flumina.plan.optimize import make_plan
from flumina.plan.render.json import to_json
from flumina.plan.sources import StreamRates
from flumina.storage.checksummed_file import encode
from tests.checkpoint.store.support import commit, fill

Output = pytest.CaptureFixture[str]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A checkpoint of a real program, with a plan."""
    place = tmp_path / "checkpoint"
    store = Checkpoints(place)
    sources = [StreamRates("values", {"value": 1e6}, 2), StreamRates("barriers", {"barrier": 1})]
    plan = make_plan(ValueBarrier, sources, workers=2)
    fingerprint = program_fingerprint(ValueBarrier)
    owner = store.take_over(resumes=None, fingerprint=fingerprint, run="first")
    commit(owner, end=100, state=b"x" * 2048, events=1000, plan=to_json(plan))
    owner = store.take_over(resumes=store.latest(), fingerprint=fingerprint, run="second")
    file = OutputFile("output", "0/output.parquet", 10, 5, 7)
    commit(
        owner,
        end=200,
        state=b"y",
        events=2000,
        plan=to_json(plan),
        outputs=EpochOutputs("out", (file,), {"output": 7}),
    )
    return place


def run(capsys: Output, *arguments: object) -> tuple[int, str, str]:
    code = main(["checkpoint", *map(str, arguments)])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def of_json(capsys: Output, *arguments: object) -> Any:
    code, out, err = run(capsys, *arguments, "--json")
    return code, json.loads(out), err


def test_ls(path: Path, capsys: Output) -> None:
    code, out, err = run(capsys, "ls", path)
    assert (code, err) == (0, "")
    head, first, second = out.splitlines()
    assert " ".join(head.split()) == "number term created (UTC) up to events state rows finished"
    assert first.split()[:2] + first.split()[4:] == ["1", "1", "100", "1,000", "2", "KiB", "no"]
    assert second.split()[:3] + second.split()[5:] == ["*", "2", "2", "200", "2,000", "1", "bytes", "output", "7", "no"]


def test_ls_as_json(path: Path, capsys: Output) -> None:
    code, (first, second), _ = of_json(capsys, "ls", path)
    assert code == 0
    assert first["created"] < second.pop("created")
    assert second == {
        "number": 2,
        "term": 2,
        "latest": True,
        "end": 200,
        "events": 2000,
        "state_size": 1,
        "rows": {"output": 7},
        "finished": False,
        "damaged": None,
    }
    assert not first["latest"]


def test_show(path: Path, capsys: Output) -> None:
    code, out, _ = run(capsys, "show", path)
    assert code == 0
    for part in (
        "snapshot 2 of term 2\n",
        "after         snapshot 1 of term 1\n",
        "up to         timestamp 200\n",
        "output: 7 rows in 1 file, 10 bytes\n",
        "outputs\n  rows: output 7\n",
        "name: ValueBarrier\n",
        "barrier, value always",
        "total Sum(long)",
    ):
        assert part in out
    assert "ValueBarrier: " in out.partition("\nplan\n")[2]  # drawn
    assert "└─" in out
    code, out, _ = run(capsys, "show", path, 1)
    assert code == 0
    assert out.startswith("snapshot 1 of term 1\n")
    assert "after         nothing" in out


def test_show_as_json(path: Path, capsys: Output) -> None:
    code, found, _ = of_json(capsys, "show", path)
    latest = Checkpoints(path).latest()
    assert latest is not None
    assert (code, found) == (0, json.loads(json.dumps(latest.manifest.to_json())))


def test_verify(path: Path, capsys: Output) -> None:
    code, out, _ = run(capsys, "verify", path)
    assert code == 0
    assert out.endswith("2 snapshots, nothing is damaged\n")
    state = next(path.glob("state-000001-*"))
    state.write_bytes(state.read_bytes()[1:])
    code, out, _ = run(capsys, "verify", path)
    assert code == 1
    assert f"DAMAGED {state}: is damaged: it has 2,047 bytes, 2,048 were written\n" in out
    assert out.endswith("2 snapshots, 1 damaged\n")
    code, found, _ = of_json(capsys, "verify", path)
    assert (code, found["damaged"]) == (1, True)
    assert [finding["damaged"] for finding in found["findings"]] == [True, False]


@pytest.mark.parametrize(
    ("finished", "why"),
    [
        (False, "is not there or not in reach"),
        (True, "is gone, as the run has ended and its outputs are where they should be"),
    ],
)
def test_outputs_that_can_not_be_checked_are_told(tmp_path: Path, capsys: Output, *, finished: bool, why: str) -> None:
    outputs = (OutputFile("counts", "part-0.parquet", size=10, rows=1, crc32=1),)
    commit(
        Checkpoints(tmp_path / "c").take_over(resumes=None),
        outputs=EpochOutputs(str(tmp_path / "parts"), outputs),
        finished=finished,
    )
    code, out, _ = run(capsys, "verify", tmp_path / "c")
    assert code == 0
    assert f"{tmp_path / 'parts'}: {why}: 1 file of outputs can't be checked\n" in out


def test_damage_is_shown_and_exits_with_1(path: Path, capsys: Output) -> None:
    (path / "snapshot-000002-0000000002.json").write_bytes(b"{}")
    code, out, err = run(capsys, "ls", path)
    assert code == 1
    assert "damaged" in out.splitlines()[2]
    assert err.count("CHECKPOINT_DAMAGED") == 1
    code, rows, _ = of_json(capsys, "ls", path)
    assert code == 1
    assert "is damaged" in rows[1]["damaged"]
    code, out, err = run(capsys, "show", path)
    assert (code, out) == (1, "")
    assert "CHECKPOINT_DAMAGED" in err
    assert run(capsys, "show", path, 1)[0] == 0


def test_a_plan_that_can_not_be_read_hides_nothing(tmp_path: Path, capsys: Output) -> None:
    commit(Checkpoints(tmp_path).take_over(resumes=None), plan="{}", finished=True)
    code, out, _ = run(capsys, "show", tmp_path)
    assert code == 0
    assert "finished      yes" in out
    assert "plan\n  can't be drawn: " in out


def test_the_checkpoint_of_a_query_holds_its_snapshots_further_down(tmp_path: Path, capsys: Output) -> None:
    fill(Checkpoints(tmp_path / "state"))
    entries = {
        "query.json": "query",
        "watermarks/000000000007.json": "watermark",
    }
    for name, kind in entries.items():
        (tmp_path / "log" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "log" / name).write_bytes(encode(kind, {"batch": 7}))
    assert run(capsys, "ls", tmp_path) == run(capsys, "ls", tmp_path / "state")
    assert run(capsys, "verify", tmp_path)[0] == 0
    for name in entries:
        path = tmp_path / "log" / name
        whole = path.read_bytes()
        path.write_bytes(whole[:-1])
        code, out, _ = run(capsys, "verify", tmp_path)
        assert code == 1
        assert f"DAMAGED {path}" in out
        path.write_bytes(whole)


def test_calls_that_can_not_be_meant_exit_with_2(tmp_path: Path, capsys: Output) -> None:
    fill(Checkpoints(tmp_path / "c"))
    (tmp_path / "empty").mkdir()
    for arguments, said in (
        (("ls", tmp_path / "nowhere"), "NO_CHECKPOINT"),
        (("verify", tmp_path / "empty"), "NO_CHECKPOINT"),
        (("show", tmp_path), "CHECKPOINT_FOREIGN"),
        (("ls", tmp_path), "CHECKPOINT_FOREIGN"),
        (("show", tmp_path / "c", 17), "there are 4, 3, 2"),
    ):
        code, out, err = run(capsys, *arguments)
        assert (code, out) == (2, ""), arguments
        assert said in err
    with pytest.raises(SystemExit) as caught:
        run(capsys, "ls")
    assert caught.value.code == 2


def test_a_claim_without_snapshots(tmp_path: Path, capsys: Output) -> None:
    Checkpoints(tmp_path).take_over(resumes=None)
    assert run(capsys, "ls", tmp_path)[:2] == (0, "no snapshot was committed yet\n")
    assert of_json(capsys, "ls", tmp_path)[:2] == (0, [])
    assert run(capsys, "show", tmp_path)[0] == 2
    assert run(capsys, "verify", tmp_path)[0] == 0
