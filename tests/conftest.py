from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import settings

os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", ".hypothesis")  # `flumina check` would choose a place for users
# No deadline: a busy machine is no bug. What fails is found again by its seed, which Hypothesis prints.
settings.register_profile("flumina", deadline=None, print_blob=True)
settings.load_profile("flumina")

TOGETHER = {
    "one session": {
        "test_baselines",
        "test_doctests",
        "test_scale",
        "test_spark",
        "test_spark_checkpoints",
        "test_spark_dead_letters",
        "test_spark_failures",
        "test_streaming",
        "test_streaming_faults",
        "test_streaming_order",
    },
    "a cluster": {"test_cluster"},
    "sessions of their own": {"test_command_line", "test_scripts", "test_validation"},
}
"""Files that run in one process, one after the other: those of the first group share a session of Spark, those of the
second a cluster; those of the third start sessions of their own. They mostly wait, and run beside one another. All
other tests run anywhere."""


SLOW = {
    "sim": {
        "test_coverage",
        "test_crashes",
        "test_explore",
        "test_mutants",
        "test_regressions",
        "test_shrink",
        "test_trial",
    },
    "runtime": {"test_ablation", "test_flight", "test_tie_watch"},
    "plan": {"test_cost", "test_forest", "test_greedy", "test_validity"},
    "program": {"test_misspellings"},
    "check": {"test_laws", "test_runner"},
}
"""Files of the pure core, by folder, that `make check` leaves out: searches of many seconds, which `make test` runs."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of slow files."""
    for item in items:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        if item.path.stem in SLOW.get(folder, ()):
            item.add_marker(pytest.mark.slow)


def group(nodeid: str) -> str:
    """Tests of one group run in one process; most are a group of their own."""
    file = PurePosixPath(nodeid.partition("::")[0]).stem
    return next((name for name, files in TOGETHER.items() if file in files), nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Have tests that share something expensive run in one process; marks for groups do not work with our pytest."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped] # noqa: PLC0415 -- if it is there

    class Grouped(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid)

    return Grouped(config, log)
