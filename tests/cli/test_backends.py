import importlib.util
import shutil
from pathlib import Path

import pytest

import flumina as fl
from flumina import local
from flumina.apps import ValueBarrier
from flumina.apps.registry import find_app
from flumina.cli.backends import backend, why_no_spark


def test_local_needs_nothing() -> None:
    streams = find_app("value-barrier").generate(events=100, ratio=10).streams()
    with backend("local", title="t", conf={}) as where:
        assert where.module is local
        assert where.near
        assert where.run(ValueBarrier, streams, workers=1, progress=False).stats.events == 105


@pytest.mark.parametrize(("master", "conf", "said"), [("local[2]", {}, "--master"), (None, {"a": "b"}, "--conf")])
def test_options_of_spark_are_for_spark(master: str | None, conf: dict[str, str], said: str) -> None:
    with (
        pytest.raises(fl.UsageError, match=rf"{said} is for Spark[\s\S]*--engine spark"),
        backend("local", title="t", master=master, conf=conf),
    ):
        pass


def test_without_pyspark_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with (
        pytest.raises(fl.UsageError, match=r"\[NO_SPARK\] pyspark is not installed: pip install[\s\S]*--engine local"),
        backend("spark", title="t", conf={}),
    ):
        pass


def test_without_java_it_is_said_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: True)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert "install version 17 or 21" in str(why_no_spark())
    monkeypatch.setattr(shutil, "which", lambda _: "java")
    assert why_no_spark() is None
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert str(tmp_path) in str(why_no_spark())
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch()
    assert why_no_spark() is None
