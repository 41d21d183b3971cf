"""Programs that no worker can import, because they were typed into a script."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_script(engine: str, folder: Path) -> str:
    script = folder / "typed.py"
    script.write_text((Path(__file__).parent / "script.py").read_text(encoding="utf-8"), encoding="utf-8")
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    environment = {**os.environ, "PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, str(script), engine], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_program_of_a_script_runs_in_processes(tmp_path: Path) -> None:
    assert run_script("local", tmp_path) == "agreed\n"


def test_a_program_of_a_script_runs_on_spark(spark_home: None, tmp_path: Path) -> None:
    assert run_script("spark", tmp_path) == "agreed\n"
