"""Start a Spark session for a command, and stop it with the command."""

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
"""Settings of a session on this machine: loopback only, without a UI."""


@contextmanager
def session(master: str, settings: Mapping[str, str], name: str) -> Iterator[SparkSession]:
    """Yield a session that ends with the block; an active session with this master is used, and not stopped."""
    active = SparkContext._active_spark_context
    if active is not None:
        if active.master != master:
            raise UsageError("MASTER", f"expected master {master}, got an active session with master {active.master}")
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
    with _buffer_stderr() as stderr:
        try:
            spark = builder.getOrCreate()
            spark.sparkContext.setLogLevel("ERROR")
        except (Py4JError, PySparkException, OSError, RuntimeError) as error:
            raise UsageError(
                "SPARK_START",
                f"Spark can't be started with master {master}: {_reason(error, stderr.text())}",
                hint="Spark needs Java 17 or 21 (JAVA_HOME or PATH), and a master that is running",
            ) from error
    return spark


def _reason(error: BaseException, stderr: str) -> str:
    """Return the error message of Spark or Java in one line."""
    lines = [line.strip() for line in (*str(error).splitlines(), *stderr.splitlines())]
    causes = [line for line in lines if "Exception:" in line or line.startswith(("Error", "[JAVA"))]
    return (causes or [line for line in lines if line] or [type(error).__name__])[-1]


class _BufferedStderr:
    """Buffers the standard error of child processes, until ``passing`` is set; then forwards it."""

    def __init__(self) -> None:
        self.real = os.dup(_STDERR)
        self.readable, self.writable = os.pipe()
        self.passing = False
        self.chunks: list[bytes] = []
        self.thread = threading.Thread(target=self._forward, name="flumina-stderr", daemon=True)
        self.thread.start()

    def _forward(self) -> None:
        while chunk := os.read(self.readable, 1 << 16):
            if self.passing:
                os.write(self.real, chunk)
            else:
                self.chunks.append(chunk)
        os.close(self.readable)

    def text(self) -> str:
        """Return the buffered text."""
        return b"".join(self.chunks).decode(errors="replace")


@contextmanager
def _buffer_stderr() -> Iterator[_BufferedStderr]:
    """Buffer standard error in the block: Spark's warnings at start are shown only in the error if it fails."""
    buffered = _BufferedStderr()
    os.dup2(buffered.writable, _STDERR)
    try:
        yield buffered
    finally:
        os.dup2(buffered.real, _STDERR)
        os.close(buffered.writable)
        buffered.passing = True
