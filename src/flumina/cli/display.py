"""Format the outputs of a run for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from flumina.engine.results import RunResult
from flumina.formatting import printable, table
from flumina.model.emit import ONLY_OUTPUT
from flumina.output.commit import CommittedOutput

DEAD_LETTER_COLUMNS = ("stream", "file", "partition", "row", "reason", "column", "data")
"""The columns of dead letters that are shown; either file or partition."""

_WIDEST = 40
"""The most characters of a value that are shown."""


def samples(result: RunResult, rows: int) -> dict[str, pa.Table]:
    """Return the first rows of each output that was kept; no other rows are read."""
    return {name: one.dataset().head(rows) for name, one in result.committed.items() if one.kept}


def shown_outputs(result: RunResult, rows: int, *, place: str | None = None) -> str:
    """Return the number of rows, the folder and the first rows of each output, and of dead letters, if any."""
    blocks = [
        _shown("outputs" if name == ONLY_OUTPUT else f"outputs {name}", one, rows, place)
        for name, one in result.committed.items()
    ]
    if result.committed_dead_letters.rows:
        blocks.append(_shown("dead letters", result.committed_dead_letters, rows, place, DEAD_LETTER_COLUMNS))
    return "\n".join(blocks)


def _shown(
    called: str, one: CommittedOutput, rows: int, place: str | None, columns: Sequence[str] | None = None
) -> str:
    where = f" in {one.path}" if place is not None else ", counted and not kept" if not one.kept else ""
    lines = [f"{called}: {one.rows:,} row{'' if one.rows == 1 else 's'}{where}"]
    if one.kept and one.rows and rows:
        first = one.dataset().head(rows)
        if columns is not None:
            first = _placed(first.select(columns))
        lines += [f"  {line}" for line in rows_text(first).splitlines()]
        lines += ["  ..."] if one.rows > rows else []
    return "\n".join(lines)


def _placed(dead_letters: pa.Table) -> pa.Table:
    """Return dead letters with the names of their files or, if not known, the numbers of their partitions."""
    if dead_letters.column("file").null_count:
        return dead_letters.drop_columns(["file"])
    names = [path.rpartition("/")[2] for path in dead_letters.column("file").to_pylist()]
    at = dead_letters.schema.get_field_index("file")
    return dead_letters.set_column(at, "file", pa.array(names)).drop_columns(["partition"])


def rows_text(rows: pa.Table) -> str:
    """Format rows as aligned columns, with numbers right-aligned.

    >>> print(rows_text(pa.table({"page": ["home", None], "user": [7, 12]})))
    page  user
    home     7
    null    12
    """
    numbers = [n for n, f in enumerate(rows.schema) if pa.types.is_integer(f.type) or pa.types.is_floating(f.type)]
    cells = [[_cell(value) for value in row.values()] for row in rows.to_pylist()]
    return table([list(rows.column_names), *cells], right=numbers)


def _cell(value: object) -> str:
    text = "null" if value is None else printable(str(value)).replace("\n", "\\n")
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"
