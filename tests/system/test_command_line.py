"""``flumina run`` and ``flumina demo`` as commands in processes of their own: on Spark, and interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest

from flumina.cli.main import main
from tests.cli.jobs import FORGETFUL, write
from tests.system.processes import children

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]

FRAMES = """
def frames():
    from pyspark.sql import SparkSession
    spark = SparkSession.getActiveSession()
    values = spark.createDataFrame([(1, 1), (2, 2), (3, 4)], "ts long, v long")
    asks = fl.Stream("asks", Forgetful.ask, {"ts": [10]})
    return [fl.Stream("values", Forgetful.value, values, sorted=False), asks]
"""


def start(*arguments: object, folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.Popen(
        [sys.executable, "-m", "flumina", *map(str, arguments)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def flumina(*arguments: object, folder: Path) -> tuple[int, str, str]:
    process = start(*arguments, folder=folder)
    out, err = process.communicate()
    return process.returncode, out, err


def test_a_known_program_on_spark(spark_home: None, tmp_path: Path) -> None:
    code, out, err = flumina(
        "run", "page-views", "--engine", "spark", "--workers", "2", "--set", "events=20000", "--set", "gets=1000",
        "--set", "changes=2000", "--verify", "--ordered", "--out", "joined", "--report", "--json",
        "--conf", "spark.app.name=mine", folder=tmp_path,
    )  # fmt: skip
    assert code == 0, err
    assert err == "", "what Spark says when it starts is nobody's business"
    found = json.loads(out)
    assert found["engine"] == "spark"
    assert found["verified"] is True
    assert found["outputs"]["output"]["rows"] == ds.dataset(tmp_path / "joined").count_rows() == 20_015
    assert "PageViews on Spark (local[" in (tmp_path / "flumina-report.html").read_text()


def test_ones_own_program_in_a_session_that_is_there(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a file that no Python worker can import; its error is told as it is elsewhere."""
    job = write(tmp_path, "hidden_job.py", FORGETFUL.replace("FAILS = -1", "FAILS = 7") + FRAMES)
    arguments = ["run", f"{job}:Forgetful", "--engine", "spark", "--master", "local[4,4]", "--workers", "1"]
    assert main([*arguments, "--streams", f"{job}:streams", "--verify"]) == 0
    assert "verified" in capsys.readouterr().out
    assert main([*arguments, "--streams", f"{job}:frames", "--verify"]) == 0, "a function may use the session"
    assert "verified" in capsys.readouterr().out
    assert main([*arguments, "--streams", f"{job}:streams", "--set", "fails=7"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("flumina: [USER_CODE] Forgetful.update raised ValueError: seven is too much")
    assert main([*arguments[:4], "--master", "local[3]", "--streams", f"{job}:streams"]) == 2
    assert "got an active session with master local[4,4]" in capsys.readouterr().err
    assert spark.range(3).count() == 3, "the session is left alone"


def test_a_master_that_cannot_be_meant(spark_home: None, tmp_path: Path) -> None:
    code, out, err = flumina("run", "page-views", "--engine", "spark", "--master", "loc", folder=tmp_path)
    assert (code, out) == (2, "")
    assert err.startswith("flumina: [SPARK_START] Spark can't be started with master loc: ")
    assert len(err.splitlines()) == 2


def test_the_demo_on_spark(spark_home: None, tmp_path: Path) -> None:
    code, out, err = flumina("demo", "--verify", "--engine", "spark", "--events", "60000", folder=tmp_path)
    assert code == 0, err
    assert err == ""
    assert "The plan, on Spark (local[" in out
    assert "verified" in out
    assert "times as fast as one worker" in out
    assert (tmp_path / "build" / "flumina-demo" / "report.html").exists()


def interrupted(
    process: subprocess.Popen[str], begun: Path, how: signal.Signals = signal.SIGINT
) -> tuple[int, str, str]:
    """Press Ctrl-C (or end the process in another way) once the run has begun: it stages outputs."""
    while not list(begun.parent.glob(f"_{begun.name}.flumina-*/0*")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    below = children(process.pid)
    assert below, "there are workers"
    process.send_signal(how)
    out, err = process.communicate()  # until all that write there have ended
    while [pid for pid in below if pid in children(1)]:
        time.sleep(0.1)  # the time limit of the test ends this
    return process.returncode, out, err


LONG = ["run", "value-barrier", "--set", "events=400000", "--set", "rate=1000", "--paced", "--workers", "2"]


def test_an_interrupted_run_ends_cleanly(tmp_path: Path) -> None:
    out = tmp_path / "totals"
    process = start(*LONG, "--out", out, folder=tmp_path)
    assert interrupted(process, out) == (130, "", "flumina: interrupted\n")
    assert list(tmp_path.iterdir()) == [], "nothing is staged any more"


def test_an_interrupted_run_on_spark_ends_cleanly(spark_home: None, tmp_path: Path) -> None:
    out = tmp_path / "totals"
    process = start(*LONG, "--engine", "spark", "--out", out, folder=tmp_path)
    code, shown, err = interrupted(process, out)
    assert (code, shown) == (130, "")
    assert err.splitlines()[-1] == "flumina: interrupted"
    assert not out.exists()


def test_a_killed_driver_on_spark_leaves_no_process_and_no_traceback(spark_home: None, tmp_path: Path) -> None:
    out = tmp_path / "totals"
    process = start(*LONG, "--engine", "spark", "--out", out, folder=tmp_path)
    code, shown, err = interrupted(process, out, signal.SIGKILL)
    assert (code, shown) == (-signal.SIGKILL, "")
    assert "Traceback" not in err
    assert "flumina" not in err
