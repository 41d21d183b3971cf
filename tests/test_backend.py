"""``fl.run`` finds its backend by what it is given, and refuses what it can't run."""

import subprocess
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import flumina as fl
from flumina import backend, local
from flumina.apps.key_counter import KeyCounter

ROWS = [{"ts": 1, "k": 7}, {"ts": 2, "k": 7}]


def streams(data: object = ROWS) -> list[fl.Stream]:
    return [fl.Stream("incs", KeyCounter.inc, data)]


class Session:
    """In place of a SparkSession."""


class Frame:
    """In place of a DataFrame of Spark."""

    def __init__(self, session: Session) -> None:
        self.sparkSession = session


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Any]]:
    """A pyspark and a ``flumina.spark`` without Java, which keep how they were called."""
    calls: list[Any] = []
    sql = ModuleType("pyspark.sql")
    sql.SparkSession, sql.DataFrame = Session, Frame  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyspark.sql", sql)

    def keep(*arguments: Any, **options: Any) -> str:
        calls.append((arguments, options))
        return "on Spark"

    monkeypatch.setattr(backend, "_spark", lambda: SimpleNamespace(run=keep, start=keep))
    return lambda: calls


def test_this_machine_without_anything_of_spark() -> None:
    result = fl.run(KeyCounter, streams(), workers=1, progress=False, return_state=True)
    assert result.stats.events == 2
    assert fl.run is backend.run


def test_spark_if_it_is_named(spark: Callable[[], list[Any]]) -> None:
    session: Any = Session()
    assert fl.run(KeyCounter, streams(), on=session, workers=3) == "on Spark"  # type: ignore[comparison-overlap]
    assert spark()[0][1] == {"spark": session, "workers": 3}


def test_spark_if_a_stream_is_a_frame(spark: Callable[[], list[Any]]) -> None:
    session = Session()
    given = [*streams(), fl.Stream("more", KeyCounter.inc, Frame(session))]
    assert fl.run(KeyCounter, given) == "on Spark"  # type: ignore[comparison-overlap]
    assert spark()[0][1] == {"spark": session}


def test_this_machine_if_pyspark_is_there_and_nothing_is_its(
    spark: Callable[[], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "run", lambda *_, **options: options)
    assert fl.run(KeyCounter, streams(), ordered=True) == {"ordered": True}  # type: ignore[comparison-overlap]
    assert spark() == []


def test_queries_are_started_on_spark(spark: Callable[[], list[Any]]) -> None:
    session: Any = Session()
    fl.start(KeyCounter, streams(Frame(session)), "out", "kept", drain=True)
    fl.start(KeyCounter, streams(), "out", "kept", on=session)
    assert [options for _, options in spark()] == [{"spark": session, "drain": True}, {"spark": session}]
    with pytest.raises(fl.UsageError, match=r"NO_SPARK.*streaming DataFrames(.|\n)*fl\.run"):
        fl.start(KeyCounter, streams(), "out", "kept")


@pytest.mark.parametrize("on", ["spark", 3, object()])
def test_what_is_no_session_is_refused(on: Any) -> None:
    with pytest.raises(fl.UsageError, match=r"\[ON\] expected on= as a SparkSession, got"):
        fl.run(KeyCounter, streams(), on=on)


def test_what_only_spark_has_is_refused_on_this_machine() -> None:
    with pytest.raises(fl.UsageError, match=r"UNKNOWN_OPTION.*run on this machine has no option on_lost_slots="):
        fl.run(KeyCounter, streams(), on_lost_slots="shrink")


def test_pyspark_is_not_imported_to_find_out() -> None:
    code = (
        "import sys, flumina as fl\n"
        "from flumina.apps.key_counter import KeyCounter as K\n"
        "fl.run(K, [fl.Stream('incs', K.inc, [{'ts': 1, 'k': 7}])], workers=1, progress=False)\n"
        "assert not {'pyspark', 'hypothesis'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
