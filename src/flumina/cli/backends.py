"""Open the backend on which a command runs programs."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from flumina import local
from flumina.engine.options import RunArguments
from flumina.engine.results import RunResult
from flumina.errors import UsageError
from flumina.input.stream import Stream
from flumina.local.run import cores
from flumina.program.base import AnyProgram


@dataclass(frozen=True)
class Backend:
    """Backend of a command, ready to run programs.

    ``place``  its name in texts
    ``near``   whether its tasks reach the folders of this machine
    """

    name: str
    place: str
    module: Any
    near: bool = True

    def run(self, program: AnyProgram, streams: Sequence[Stream], **options: Unpack[RunArguments]) -> RunResult[Any]:
        """Run a program once, with the options that all backends have."""
        result: RunResult[Any] = self.module.run(program, streams, **options)
        return result


@contextmanager
def backend(
    name: str, *, title: str, workers: int | None = None, master: str | None = None, conf: Mapping[str, str]
) -> Iterator[Backend]:
    """Yield a backend that is closed after the block; without ``master``, Spark gets a local core for each worker."""
    if name == "local":
        if master is not None or conf:
            option = "--master" if master is not None else "--conf"
            raise UsageError("ENGINE", f"{option} is for Spark", hint="add --engine spark")
        yield Backend(name, "this machine", local)
        return
    reason = why_no_spark()
    if reason is not None:
        raise UsageError("NO_SPARK", reason, hint="use --engine local, which needs neither Spark nor Java")
    chosen = master or f"local[{max(cores(), workers or 1)}]"
    spark, start = importlib.import_module("flumina.spark"), importlib.import_module("flumina.spark.session_factory")
    with start.session(chosen, conf, title):
        yield Backend(name, f"Spark ({chosen})", spark, near=chosen.startswith("local"))


def why_no_spark() -> str | None:
    """Return why Spark can't be used on this machine; None if it can."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed: pip install 'flumina[spark]'"
    home = os.environ.get("JAVA_HOME")
    if home is not None and not (Path(home) / "bin" / "java").exists():
        return f"there is no Java in JAVA_HOME={home}"
    if home is None and shutil.which("java") is None:
        return "there is no Java: install version 17 or 21, or set JAVA_HOME"
    return None
