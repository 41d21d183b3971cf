"""Describe the cluster of a Spark session, and check that runs are possible."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
import time
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from flumina.errors import UsageError

LOOPBACK = "127.0.0.1"
_SETTLE = 10.0
"""Seconds that a cluster which has just been started gets for its executors to appear."""


@dataclass(frozen=True)
class Cluster:
    """Cluster of a Spark session: its slots, addresses and settings."""

    spark: SparkSession

    @staticmethod
    def of(spark: SparkSession | None) -> Cluster:
        """Return the cluster of a session, by default the active one; raises UsageError if it can't run gangs."""
        found = SparkSession.getActiveSession() if spark is None else spark
        if found is None:
            raise UsageError("NO_SESSION", "there is no Spark session", hint="make one, or use flumina.local.run")
        if not hasattr(found, "_jsc") and not hasattr(found, "_jsparkSession"):
            raise UsageError(
                "SPARK_CONNECT",
                "expected a classic Spark session, got a Spark Connect session, which can't gang-schedule tasks that "
                "connect to this process",
                hint="use a classic session on the driver, or flumina.local.run",
            )
        try:
            alive = not found.sparkContext._jsc.sc().isStopped()
        except Exception:  # noqa: BLE001 -- Py4J raises many kinds for a closed gateway
            alive = False
        if not alive:
            raise UsageError("SESSION_STOPPED", "the Spark session has been stopped", hint="make a new one")
        cluster = Cluster(found)
        if cluster.local and "PYSPARK_PYTHON" not in os.environ:
            found.sparkContext.pythonExec = sys.executable  # else Spark uses the first python3 in PATH
        return cluster

    def conf(self, key: str, default: str = "") -> str:
        """Return a setting of the Spark context."""
        return str(self.spark.sparkContext._jsc.sc().conf().get(key, default))

    @property
    def local(self) -> bool:
        """Return whether the master is ``local``: tasks run on the driver's machine."""
        return (self.spark.sparkContext.master or "").startswith("local")

    @property
    def encrypted(self) -> bool:
        """Return whether Spark encrypts its own traffic; then Flumina's has to be encrypted, too."""
        keys = ("spark.network.crypto.enabled", "spark.ssl.enabled", "spark.ssl.rpc.enabled")
        return any(self.conf(key).lower() == "true" for key in keys)

    @property
    def listens_at(self) -> str:
        """Return the address at which the driver listens: ``spark.driver.bindAddress``, as for Spark's driver."""
        if self.local:
            return LOOPBACK
        host = self.conf("spark.driver.bindAddress") or self.conf("spark.driver.host") or LOOPBACK
        return host if ":" in host else socket.gethostbyname(host)

    @property
    def reached_at(self) -> str:
        """Return the host at which tasks reach the driver: ``spark.driver.host``, which may be a gateway."""
        return LOOPBACK if self.local else self.conf("spark.driver.host") or self.listens_at

    def check_listening(self, *, tls: bool) -> None:
        """Raise UsageError if the driver would listen on all addresses of its machine without TLS."""
        address = self.listens_at
        if not tls and ipaddress.ip_address(address).is_unspecified:
            raise UsageError(
                "LISTENS_EVERYWHERE",
                f"expected spark.driver.bindAddress to be one address of this machine, or TLS; got {address}, which is "
                "all its addresses, without TLS",
                hint="set spark.driver.bindAddress to the address of the cluster's network, or pass tls=True",
            )

    def slots(self) -> int:
        """Return the number of tasks that can run at the same time now."""
        context: Any = self.spark.sparkContext._jsc.sc()
        profile = context.resourceProfileManager().defaultResourceProfile()
        return int(context.maxNumConcurrentTasks(profile))

    def check(self) -> None:
        """Raise UsageError for a cluster that can't schedule gangs."""
        if self.conf("spark.dynamicAllocation.enabled", "false").lower() == "true":
            raise UsageError(
                "DYNAMIC_ALLOCATION",
                "Spark can't schedule a gang of tasks while it allocates executors dynamically",
                hint="set spark.dynamicAllocation.enabled=false for this session, or use flumina.local.run",
            )

    def wait_for_slots(self, tasks: int, seconds: float = _SETTLE) -> int:
        """Wait until there are slots for a gang, and return their number, which is too small after that time."""
        deadline = time.monotonic() + (0.0 if self.local else seconds)
        while (slots := self.slots()) < tasks and time.monotonic() < deadline:
            time.sleep(0.2)
        return slots

    def require(self, tasks: int) -> None:
        """Raise UsageError if there are too few slots for a gang, since Spark would wait for them."""
        slots = self.wait_for_slots(tasks)
        if slots < tasks:
            raise UsageError(
                "TOO_FEW_SLOTS",
                f"the run needs {tasks} tasks at the same time, but the cluster has {slots} "
                f"slot{'' if slots == 1 else 's'} (master {self.spark.sparkContext.master})",
                hint=f"give workers={max(slots, 1)} or fewer, or the session more cores, or use flumina.local.run",
            )
