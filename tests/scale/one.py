"""Run one case and judge it: ``python -m tests.scale.one make|run FOLDER`` with the case in ``FOLDER/case.json``.

Each case has a process of its own, so that its memory is its own, and what hangs can be ended.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flumina as fl
from flumina import local
from flumina.engine.options import EngineOptions
from tests.scale.cases import FILE, FILES, LOCAL, MEMORY, Case
from tests.scale.inputs import LATE, PROGRAMS, Input
from tests.scale.judge import committed, complaints

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
HERE = "127.0.0.1"
SLOTS = 2


class Phases:
    """The phase that a case is in, in a file that its watcher reads."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    def enter(self, name: str) -> None:
        """Say that the next phase begins."""
        if self.folder is not None:
            part = self.folder / "phase.part"
            part.write_text(name)
            part.rename(self.folder / "phase")


def run(
    given: Input, out: Path, spark: SparkSession | None, phases: Phases, engine_options: EngineOptions | None = None
) -> dict[str, Any]:
    """Run a case whose input is there; return figures, and everything that is wrong with its outputs."""
    case = given.case
    figures: dict[str, Any]
    with ExitStack() as stack:
        phases.enter("run")
        began = time.perf_counter()
        if case.batches:
            assert spark is not None
            figures, wrong = _stream(given, out, spark, engine_options or EngineOptions())
        else:
            figures, wrong = _whole(given, out, spark, engine_options or EngineOptions(), stack)
        figures["seconds"] = round(time.perf_counter() - began, 2)
        figures["driver"] = peak_memory()
    phases.enter("judge")
    expected = given.expected()
    ranks = [placement.name for placement in given.streams] if case.ordered else None
    wrong += complaints(committed(out, list(expected)), expected, ranks)
    figures["outputs"] = sum(table.num_rows for table in expected.values())
    return figures | {"wrong": wrong}


def _whole(
    given: Input, out: Path, spark: SparkSession | None, engine_options: EngineOptions, stack: ExitStack
) -> tuple[dict[str, Any], list[str]]:
    case = given.case
    if case.shape == MEMORY:
        streams = given.tables()
    elif case.shape in {FILE, FILES}:
        streams = given.files()
    else:
        assert spark is not None
        streams = given.frames(spark, stack)
    options: dict[str, Any] = {"out": out, "ordered": case.ordered, "engine_options": engine_options, "progress": False}
    if case.engine == LOCAL:
        result = local.run(PROGRAMS[case.program], streams, workers=SLOTS, **options)
    else:
        import flumina.spark  # noqa: PLC0415 -- the local engine needs no Spark

        result = flumina.spark.run(PROGRAMS[case.program], streams, spark=spark, workers=SLOTS, **options)
    stats = result.stats
    wrong = [] if stats.events == case.rows else [f"expected {case.rows:,} events, got {stats.events:,}"]
    figures = {"joins": stats.joins, "between": stats.bytes_between, "shuffled": stats.shuffled_bytes}
    return figures | {"workers": len(stats.workers)}, wrong


def _stream(
    given: Input, out: Path, spark: SparkSession, engine_options: EngineOptions
) -> tuple[dict[str, Any], list[str]]:
    import flumina.spark  # noqa: PLC0415 -- as above

    case = given.case
    query = flumina.spark.start(
        PROGRAMS[case.program],
        given.batches(spark),
        out,
        out.with_name(f"{out.name}.checkpoint"),
        watermarks=fl.BoundedDelay(LATE),
        trigger={"availableNow": True},
        drain=True,
        engine_options=engine_options,
        spark=spark,
    )
    query.awaitTermination()
    last = query.lastProgress
    assert last is not None
    wrong = []
    if last["totals"]["processed"] != case.rows:
        wrong.append(f"expected {case.rows:,} processed rows, got {last['totals']}")
    if last["batchId"] < case.batches:  # counted from 0, and the closing one is one more
        wrong.append(f"expected {case.batches} batches and one that closes the query, the last is {last['batchId']}")
    return {"batches": last["batchId"] + 1}, wrong


def peak_memory() -> int:
    """Return the largest resident memory that this process has had, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("Expected VmHWM in /proc/self/status")


def session() -> SparkSession:
    """Start Spark with two slots on this machine."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 -- the local engine needs no Spark

    paths = [str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.environ["PYTHONWARNINGS"] = "ignore::FutureWarning"  # Spark's Python workers use pandas in ways that will change
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    made = (
        SparkSession.builder.master(f"local[{SLOTS}]")
        .appName("flumina at scale")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", HERE)
        .config("spark.driver.bindAddress", HERE)
        .config("spark.driver.memory", "3g")
        .config("spark.sql.shuffle.partitions", str(SLOTS))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("ERROR")
    return made


def main(step: str, folder: Path) -> None:
    """Make the input of a case, or run it; what comes of it is in ``FOLDER/result.json``."""
    case = Case.of_json(json.loads((folder / "case.json").read_text()))
    phases = Phases(folder)
    given = Input(case, folder / "in")
    if step == "make":
        phases.enter("make")
        given.make()
        return
    phases.enter("start")
    result: dict[str, Any]
    try:
        spark = None if case.engine == LOCAL else session()
        result = run(given, folder / "out", spark, phases)
    except Exception as error:  # noqa: BLE001 -- the watcher tells it
        result = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
    part = folder / "result.part"
    part.write_text(json.dumps(result))
    part.rename(folder / "result.json")
    phases.enter("end")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
