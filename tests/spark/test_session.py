"""Where the driver of a run listens, and where tasks reach it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flumina.errors import UsageError

session = pytest.importorskip("flumina.spark.session", reason="pyspark is not installed")


EVERYWHERE = "0.0.0.0"  # noqa: S104 -- nothing listens there


def cluster(master: str = "spark://there:7077", **settings: str) -> Any:
    """A cluster whose context has these settings."""
    given = {f"spark.driver.{name}": value for name, value in settings.items()}
    conf = SimpleNamespace(get=given.get)
    java = SimpleNamespace(sc=lambda: SimpleNamespace(conf=lambda: conf))
    return session.Cluster(SimpleNamespace(sparkContext=SimpleNamespace(_jsc=java, master=master)))


@pytest.mark.parametrize(
    ("settings", "listens", "reached"),
    [
        ({"host": "127.0.0.7"}, "127.0.0.7", "127.0.0.7"),
        ({"host": "driver.example.org", "bindAddress": EVERYWHERE}, EVERYWHERE, "driver.example.org"),
        ({"host": "driver.example.org", "bindAddress": "127.0.0.9"}, "127.0.0.9", "driver.example.org"),
        ({"host": "driver.example.org", "bindAddress": "::"}, "::", "driver.example.org"),
        ({"bindAddress": "127.0.0.9"}, "127.0.0.9", "127.0.0.9"),
        ({}, "127.0.0.1", "127.0.0.1"),
    ],
)
def test_the_driver_listens_where_it_binds_and_is_reached_at_its_host(
    settings: dict[str, str], listens: str, reached: str
) -> None:
    found = cluster(**settings)
    assert (found.listens_at, found.reached_at) == (listens, reached)


@pytest.mark.parametrize("address", [EVERYWHERE, "::"])
def test_all_addresses_only_with_tls(address: str) -> None:
    everywhere = cluster(host="driver.example.org", bindAddress=address)
    everywhere.check_listening(tls=True)
    with pytest.raises(UsageError, match=rf"LISTENS_EVERYWHERE.*got {address}") as caught:
        everywhere.check_listening(tls=False)
    assert "spark.driver.bindAddress" in str(caught.value.hint)
    assert "tls=True" in str(caught.value.hint)


def test_one_address_needs_no_tls() -> None:
    cluster(host="127.0.0.7").check_listening(tls=False)


def test_a_session_in_one_process_stays_on_loopback() -> None:
    local = cluster("local[4]", host="driver.example.org", bindAddress=EVERYWHERE)
    local.check_listening(tls=False)
    assert (local.listens_at, local.reached_at) == ("127.0.0.1", "127.0.0.1")


def with_slots(monkeypatch: pytest.MonkeyPatch, numbers: list[int], master: str = "spark://there:7077") -> Any:
    """A cluster whose slots are these numbers, one after the other, on a clock that only sleeping moves."""
    found, now = cluster(master), [0.0]
    monkeypatch.setattr(type(found), "slots", lambda _: numbers.pop(0) if len(numbers) > 1 else numbers[0])
    monkeypatch.setattr(session.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(session.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return found


def test_executors_that_come_back_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert with_slots(monkeypatch, [0] * 100 + [2, 4]).wait_for_slots(4, 300.0) == 4


def test_slots_that_do_not_come_back_end_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    assert with_slots(monkeypatch, [0] * 100 + [2]).wait_for_slots(4, 60.0) == 2


def test_too_few_slots_are_refused_after_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"\[TOO_FEW_SLOTS\].*needs 4 tasks.*has 1 slot "):
        with_slots(monkeypatch, [0, 1]).require(4)


def test_a_session_in_one_process_gets_no_more_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    assert with_slots(monkeypatch, [2, 4], "local[2]").wait_for_slots(4, 300.0) == 2
