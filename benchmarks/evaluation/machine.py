"""Where figures come from: enough to know what they are worth, nothing that tells one machine from another."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from flumina.local.run import cores


def fingerprint() -> dict[str, Any]:
    """Cores, memory, how busy they were just before, and versions."""
    return {
        "cores": cores(),
        "memory GB": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "load before": round(os.getloadavg()[0], 1),
        "date": datetime.now(UTC).date().isoformat(),
        "Python": platform.python_version(),
        "Spark": _spark_version(),
        "pyarrow": pa.__version__,
    }


def was_loaded(machine: dict[str, Any]) -> bool:
    """Whether more than a quarter of the cores had work in the minute before a section: of others, or its own."""
    return bool(machine["load before"] > machine["cores"] / 4)


def _spark_version() -> str:
    try:
        from pyspark import __version__  # noqa: PLC0415 -- the simulated sections need no Spark
    except ImportError:
        return "none"
    return str(__version__)
