"""A source in Python for tests of streaming: two rows at every tick, and a heartbeat now and then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

AT_ONCE = 8


def rows_of(first: int, last: int) -> list[dict[str, Any]]:
    """The rows of the ticks from the first on, before the last."""
    found: list[dict[str, Any]] = []
    for tick in range(first * AT_ONCE, last * AT_ONCE):
        found.append({"ts": tick, "n": 3 * tick, "kind": "value", "v": tick})
        if tick % 5 == 4:
            found.append({"ts": tick, "n": 3 * tick + 1, "kind": "barrier", "v": None})
        if tick % 3 == 2:
            found.append({"ts": tick - 1, "n": 3 * tick + 2, "kind": "beat", "v": None})
    return found


class TickSource(DataSource):
    """Eight ticks a batch, without end."""

    @classmethod
    def name(cls) -> str:
        return "ticks"

    def schema(self) -> str:
        return "ts long, n long, kind string, v long"

    def simpleStreamReader(self, schema: object) -> TickReader:  # noqa: N802 -- Spark's own name
        return TickReader()


class TickReader(SimpleDataSourceStreamReader):
    """Batch k is the ticks from 8 k on."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"at": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[Any, ...]], dict[str, int]]:
        after = {"at": start["at"] + 1}
        return self.readBetweenOffsets(start, after), after

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[Any, ...]]:  # noqa: N802
        return iter([tuple(row.values()) for row in rows_of(start["at"], end["at"])])

    def commit(self, end: dict[str, int]) -> None:
        """Nothing is kept."""
