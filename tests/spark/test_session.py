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
