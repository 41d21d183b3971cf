"""Tables in the documentation, kept equal to the report's: between two comments that name the table.

<!-- table: trade-offs -->
...
<!-- end of table -->
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from benchmarks.evaluation.tables import Table

DOCUMENTS = ("README.md", "docs/evaluation.md")
_BLOCK = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def renewed(text: str, tables: Mapping[str, Table]) -> str:
    """The text with all tables that there are; others stay as they were."""

    def block(found: re.Match[str]) -> str:
        table = tables.get(found["name"])
        if table is None:
            return found[0]
        return f"{found[1]}\n{table.markdown()}\n\n{table.how} {table.caption}\n\n{found[3]}"

    return _BLOCK.sub(block, text)


def renew(root: Path, tables: Mapping[str, Table]) -> list[Path]:
    """Write the documents anew whose tables have changed."""
    changed = []
    for path in (root / name for name in DOCUMENTS):
        before = path.read_text(encoding="utf-8")
        after = renewed(before, tables)
        if after != before:
            path.write_text(after, encoding="utf-8")
            changed.append(path)
    return changed
