"""A program whose rows can be broken in ten ways, and such rows."""

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

import flumina as fl

BROKEN = 10_000
"""Of a hundred thousand rows, broken in ten ways."""


class Strict(fl.KeyedProgram):
    """Many things that a row can do wrong."""

    add = fl.Tag("v long NOT NULL, price decimal(5,2)", key="shop string", keys=["a", "b", "c"])
    note = fl.Tag("text string NOT NULL", key="shop string", keys=["a", "b", "c"])
    close = fl.Tag(key="shop string", keys=["a", "b", "c"])
    depends = fl.depends((close, close), (close, add), (close, note))
    output = "shop string, total long, notes long"
    total = fl.Sum()
    notes = fl.Count()

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.add:
            state.total += event.v
        elif event.tag is self.note:
            state.notes += 1
        else:
            emit(event.shop, state.total, state.notes)
            state.total = 0


SHOPS = fl.Stream(
    "shops",
    {"add": Strict.add, "note": Strict.note, "close": Strict.close},
    None,
    tag_column="kind",
    seq="n",
    sorted=False,
)
STRICT_DDL = "ts long, n long, kind string, shop string, v long, text string, price decimal(18,2)"
CONDITIONS = (
    "NULL_TIMESTAMP",
    "NULL_SEQ",
    "NULL_TAG",
    "UNKNOWN_TAG",
    "NULL_KEY",
    "NULL_VALUE",
    "NULL_VALUE",
    "COLUMN_TYPE",
    "UNKNOWN_KEY",
)
"""What is wrong in the first nine ways. In the tenth, the time is out of reach, or there is nothing but nulls."""


def strict_rows(rows: int, seed: int = 3, *, far: bool = False) -> tuple[pa.Table, Any]:
    """Rows, and for each the number of the way in which it is broken, -1 if it is not."""
    rng = np.random.default_rng(seed)
    ways = np.full(rows, -1)
    ways[rng.choice(rows, rows // 10, replace=False)] = np.repeat(np.arange(10), rows // 100)
    kinds = rng.choice(["add", "note", "close"], rows, p=[0.7, 0.25, 0.05]).astype(object)
    kinds[np.isin(ways, (5, 7))], kinds[ways == 6] = "add", "note"
    shops = rng.choice(["a", "b", "c"], rows).astype(object)
    ts, n = (np.arange(rows) // 3 + 1000).astype(object), np.arange(rows).astype(object)
    values, texts = rng.integers(0, 9, rows).astype(object), np.full(rows, "x", object)
    cents = rng.integers(0, 99_999, rows).astype(object)
    ts[ways == 0], n[ways == 1], kinds[ways == 2], kinds[ways == 3] = None, None, None, "strange"
    shops[ways == 4], values[ways == 5], texts[ways == 6] = None, None, None
    cents[ways == 7] = 10**9
    shops[ways == 8] = "z"
    if far:
        ts[ways == 9] = 2**62
    else:
        for column in (ts, n, kinds, shops, values, texts):
            column[ways == 9] = None
    prices = pa.array([Decimal(number).scaleb(-2) for number in cents.tolist()], pa.decimal128(18, 2))
    columns = {"ts": ts, "n": n, "kind": kinds, "shop": shops, "v": values, "text": texts}
    table = pa.table({name: pa.array(column.tolist()) for name, column in columns.items()})
    return table.append_column("price", prices), ways
