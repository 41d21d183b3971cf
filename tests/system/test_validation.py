"""A row is validated once on its way, in whatever process: counted row by row, along every path of every engine."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.system.validation_script import LOCAL, ROWS, SPARK

ROOT = Path(__file__).parents[2]
COUNTING = '''
"""Imported by every Python that starts: writes down the rows that are validated, by their timestamps."""
import json, os, sys
import flumina.input.validation, flumina.streaming.validation

original = flumina.input.validation.validate

def counted(stream, chunk, screen=None):
    rows = json.dumps(chunk.column(stream.ts).to_pylist())
    file = os.open(os.environ["VALIDATED"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, (rows + chr(10)).encode())
    os.close(file)
    return original(stream, chunk, screen)

for module in list(sys.modules.values()):
    if getattr(module, "validate", None) is original:
        module.validate = counted
'''


def validated(engine: str, folder: Path) -> tuple[list[int], Counter[int]]:
    """How many events each path of an engine has processed, and how often each row was validated."""
    (folder / "sitecustomize.py").write_text(COUNTING, encoding="utf-8")
    log = folder / "validated"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT), str(ROOT / "src")]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "VALIDATED": str(log),
    }
    script = [sys.executable, "-m", "tests.system.validation_script", engine, str(folder)]
    done = subprocess.run(script, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = log.read_text(encoding="utf-8").splitlines()
    return [int(n) for n in done.stdout.split()], Counter(ts for line in lines for ts in json.loads(line))


def assert_once(engine: str, paths: tuple[str, ...], folder: Path) -> None:
    events, counts = validated(engine, folder)
    assert events == [ROWS - ROWS // 8 if "dead letters" in path else ROWS for path in paths]
    for number, path in enumerate(paths):
        mine = {ts: counts[ts] for ts in range(number * 1000, number * 1000 + ROWS)}
        assert set(mine.values()) == {1}, f"{path}: {mine}"
    assert counts.total() == ROWS * len(paths)


def test_on_this_machine(tmp_path: Path) -> None:
    assert_once("local", LOCAL, tmp_path)


@pytest.mark.usefixtures("spark_home")
def test_on_spark(tmp_path: Path) -> None:
    assert_once("spark", SPARK, tmp_path)
