"""Whether a run did what the oracle says."""

from collections import Counter
from collections.abc import Mapping
from itertools import groupby

import pyarrow as pa

from flumina.engine.results import RunResult
from flumina.model.emit import Row
from flumina.state.compare import same
from flumina.testing import assert_same_outputs
from tests.system.cases import Case


def assert_agrees(
    case: Case, result: RunResult, outputs: Mapping[str, pa.Table], *, ordered: bool, cut: bool = True
) -> None:
    """Outputs as multisets in both directions (or in order), their schemas, the state, and the numbers.

    ``cut`` says that the input was in the same parts as the oracle's.
    """
    expected = case.expected
    assert list(outputs) == list(expected.outputs)
    for name, table in outputs.items():
        assert table.schema == expected.outputs[name].schema, name
    assert_same_outputs(outputs, expected.outputs)
    if ordered:
        for name, table in outputs.items():
            assert_in_order(case, name, table, cut=cut)
    assert same(result.state, expected.state), f"the state is {result.state!r}, not {expected.state!r}"
    assert result.stats.events == expected.events
    assert set(result.stats.workers) == {worker.id for worker in result.plan.workers}
    if case.busy:
        working = [name for name, stats in result.stats.workers.items() if stats.events]
        assert len(working) > 1, f"only {working} processed events"


def assert_in_order(case: Case, name: str, table: pa.Table, *, cut: bool) -> None:
    """Rows are in O; only those of several events at one point of O (on several parts) can be either way round."""
    positions = cut or case.input.ties == "seq"  # otherwise the place of an event in its part is unknown
    ranks = {stream.name: rank for rank, stream in enumerate(case.streams)}
    found = [tuple(row.values()) for row in table.to_pylist()]
    wanted = [tuple(row.values()) for row in case.expected.outputs[name].to_pylist()]
    rows = [row for row in case.expected.rows if row.output == name]
    start = 0

    def place(row: Row) -> tuple[int, int, int]:
        return row.event.ts, ranks[row.event.stream], row.event.seq if positions else 0

    for point, group in groupby(rows, key=place):
        events = [id(row.event) for row in group]
        here = slice(start, start + len(events))
        start = here.stop
        if len(set(events)) == 1:
            assert found[here] == wanted[here], f"{name!r} at {point}"
        else:
            assert Counter(found[here]) == Counter(wanted[here]), f"{name!r} at {point}"
