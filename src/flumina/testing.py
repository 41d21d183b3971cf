"""For users' own tests: laws and outputs as assertions.

>>> from flumina.apps import KeyCounter
>>> assert_lawful(KeyCounter, examples=20)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from flumina.check import check
from flumina.errors import LawError
from flumina.program import AnyProgram

Tables: TypeAlias = pa.Table | Mapping[str, pa.Table]
"""One output, or several by name."""


def assert_lawful(program: AnyProgram, *, examples: int = 200, seed: int = 0, tolerance: float | None = None) -> None:
    """Raise :class:`~flumina.errors.LawError` with the counterexample if the program breaks a law."""
    report = check(program, examples=examples, seed=seed, tolerance=tolerance)
    if not report.ok:
        raise LawError("UNLAWFUL", str(report))


def assert_same_outputs(actual: Tables, expected: Tables) -> None:
    """Fail unless both have the same rows the same number of times, in any order: nothing missing, nothing surplus."""
    left, right = _named(actual), _named(expected)
    if left.keys() != right.keys():
        raise AssertionError(f"different outputs: {sorted(left)} and {sorted(right)}")
    for name in left:
        missing, surplus = difference(left[name], right[name])
        if missing or surplus:
            raise AssertionError(
                f"output {name!r}: {len(missing)} rows missing, {len(surplus)} surplus\n"
                + _side_by_side("missing", missing, "surplus", surplus)
            )


def difference(actual: pa.Table, expected: pa.Table) -> tuple[list[Any], list[Any]]:
    """(rows of expected that actual lacks, rows of actual that expected lacks), as multisets."""
    if actual.column_names != expected.column_names:
        raise AssertionError(f"different columns: {actual.column_names} and {expected.column_names}")
    found, wanted = Counter(_rows(actual)), Counter(_rows(expected))
    return sorted((wanted - found).elements(), key=repr), sorted((found - wanted).elements(), key=repr)


def _named(tables: Tables) -> Mapping[str, pa.Table]:
    return {"output": tables} if isinstance(tables, pa.Table) else tables


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [[_hashable(value) for value in column.to_pylist()] for column in table.columns]
    return list(zip(*columns, strict=True))


def _hashable(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, list):
        return tuple(_hashable(v) for v in value)
    if isinstance(value, dict):
        return tuple((k, _hashable(v)) for k, v in value.items())
    return value


def _side_by_side(left_name: str, left: Sequence[Any], right_name: str, right: Sequence[Any], most: int = 10) -> str:
    rows = [(repr(a), repr(b)) for a, b in zip(_padded(left, most), _padded(right, most), strict=True)]
    wide = max(len(left_name), *(len(a) for a, _ in rows))
    lines = [f"  {left_name:<{wide}} | {right_name}"]
    lines += [f"  {a if a != repr('') else '':<{wide}} | {b if b != repr('') else ''}" for a, b in rows]
    more = max(len(left), len(right)) - most
    return "\n".join(lines + ([f"  ... and {more} more"] if more > 0 else []))


def _padded(values: Sequence[Any], size: int) -> list[Any]:
    shown = list(values[:size])
    return shown + [""] * (size - len(shown))
