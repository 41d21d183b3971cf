"""Sessions for commands: started quietly, and ended with the command."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from flumina.errors import UsageError
from flumina.spark.session import LOOPBACK

_STDERR = 2
_LOCAL = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.ui.enabled": "false",
}
"""What a session on this machine needs no more than that."""


@contextmanager
def session(master: str, settings: Mapping[str, str], name: str) -> Iterator[SparkSession]:
    """A session that ends with the block; one that is there already for this master is used and left alone."""
    active = SparkContext._active_spark_context
    if active is not None:
        if active.master != master:
            raise UsageError("MASTER", f"there is a Spark session already, with master {active.master}, not {master}")
        yield SparkSession.builder.getOrCreate()
        return
    spark = _started(master, settings, name)
    try:
        yield spark
    finally:
        spark.stop()


def _started(master: str, settings: Mapping[str, str], name: str) -> SparkSession:
    builder = SparkSession.builder.master(master).appName(f"flumina: {name}")
    given = {"spark.ui.showConsoleProgress": "false", **(_LOCAL if master.startswith("local") else {}), **settings}
    for key, value in given.items():
        builder = builder.config(key, value)
    with _held_back() as held:
        try:
            spark = builder.getOrCreate()
            spark.sparkContext.setLogLevel("ERROR")
        except (Py4JError, PySparkException, OSError, RuntimeError) as error:
            raise UsageError(
                "SPARK_START",
                f"Spark can't be started with master {master}: {_reason(error, held.text())}",
                hint="Spark needs Java 17 or 21 (JAVA_HOME or PATH), and a master that is there",
            ) from error
    return spark


def _reason(error: BaseException, said: str) -> str:
    """What Spark or Java said, in one line."""
    lines = [line.strip() for line in (*str(error).splitlines(), *said.splitlines())]
    telling = [line for line in lines if "Exception:" in line or line.startswith(("Error", "[JAVA"))]
    return (telling or [line for line in lines if line] or [type(error).__name__])[-1]


class _Held:
    """What processes that are started meanwhile write to standard error: held back, later passed on as it comes."""

    def __init__(self) -> None:
        self.real = os.dup(_STDERR)
        self.readable, self.writable = os.pipe()
        self.passing = False
        self.pieces: list[bytes] = []
        self.thread = threading.Thread(target=self._carry, name="flumina-stderr", daemon=True)
        self.thread.start()

    def _carry(self) -> None:
        while piece := os.read(self.readable, 1 << 16):
            if self.passing:
                os.write(self.real, piece)
            else:
                self.pieces.append(piece)
        os.close(self.readable)

    def text(self) -> str:
        """What was said so far."""
        return b"".join(self.pieces).decode(errors="replace")


@contextmanager
def _held_back() -> Iterator[_Held]:
    """Spark greets whoever starts it with pages of warnings: nobody sees them unless it does not start."""
    held = _Held()
    os.dup2(held.writable, _STDERR)
    try:
        yield held
    finally:
        os.dup2(held.real, _STDERR)
        os.close(held.writable)
        held.passing = True
