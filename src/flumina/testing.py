"""Assertions for tests of programs: laws and outputs.

>>> from flumina.apps import KeyCounter
>>> assert_lawful(KeyCounter, examples=20)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, TypeAlias

import pyarrow as pa

from flumina.check import check
from flumina.errors import LawError
from flumina.program.base import AnyProgram
from flumina.state.multiset import difference

Tables: TypeAlias = pa.Table | Mapping[str, pa.Table]
"""One output, or several by name."""


def assert_lawful(program: AnyProgram, *, examples: int = 200, seed: int = 0, tolerance: float | None = None) -> None:
    """Raise :class:`~flumina.errors.LawError` with the counterexample if the program breaks a law."""
    report = check(program, examples=examples, seed=seed, tolerance=tolerance)
    if not report.ok:
        raise LawError("UNLAWFUL", str(report))


def assert_same_outputs(actual: Tables, expected: Tables, *, tolerance: float = 0.0) -> None:
    """Raise AssertionError unless both have the same rows equally often, in any order.

    ``tolerance`` is the relative error (absolute below 1) within which floats count as equal.
    """
    left, right = _named(actual), _named(expected)
    if left.keys() != right.keys():
        raise AssertionError(f"different outputs: {sorted(left)} and {sorted(right)}")
    for name in left:
        missing, surplus = difference(left[name], right[name], tolerance=tolerance)
        if missing or surplus:
            raise AssertionError(
                f"output {name!r}: {len(missing):,} rows missing, {len(surplus):,} surplus\n"
                f"  ({', '.join(right[name].column_names)})\n" + _side_by_side("missing", missing, "surplus", surplus)
            )


def _named(tables: Tables) -> Mapping[str, pa.Table]:
    return {"output": tables} if isinstance(tables, pa.Table) else tables


def _side_by_side(left_name: str, left: Sequence[Any], right_name: str, right: Sequence[Any], most: int = 10) -> str:
    rows = list(zip_longest((repr(row) for row in left[:most]), (repr(row) for row in right[:most]), fillvalue=""))
    wide = max(len(left_name), *(len(a) for a, _ in rows))
    lines = [f"  {a:<{wide}} | {b}".rstrip() for a, b in ((left_name, right_name), *rows)]
    more = max(len(left), len(right)) - most
    return "\n".join(lines + ([f"  ... and {more:,} more"] if more > 0 else []))
