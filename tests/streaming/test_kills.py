"""``kill -9`` at every failpoint, without Spark: what has to be durable is, and what is half done does no harm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from flumina.engine.hooks import BATCH_STEPS as POINTS
from flumina.testing import assert_same_outputs
from tests.streaming.failpoints import VARIABLE
from tests.streaming.support import everything
from tests.streaming.test_batches import APART, oracle

ROOT = Path(__file__).parents[2]


def run(folder: Path, failpoint: str | None = None) -> int:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
        **({} if failpoint is None else {VARIABLE: failpoint}),
    }
    script = ROOT / "tests" / "streaming" / "killed.py"
    done = subprocess.run([sys.executable, str(script), str(folder)], env=environment, capture_output=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode


def test_a_process_is_killed_at_every_failpoint(tmp_path: Path) -> None:
    """One process after the other; the last one is killed in the batch that closes the streams."""
    for number, point in enumerate(POINTS):
        where = len(APART) if number >= len(POINTS) - 1 else number // 2
        assert run(tmp_path, f"{point}:{where}") == -signal.SIGKILL, point
    assert run(tmp_path) == 0
    assert_same_outputs(everything(tmp_path / "out"), oracle(APART))
