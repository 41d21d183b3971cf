"""Tables in the documentation, kept equal to the report's: between two comments that name the table.

<!-- table: trade-offs -->
...
<!-- end of table -->
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from benchmarks.evaluation.figures import Drawn
from benchmarks.evaluation.tables import Table

DOCUMENTS = ("README.md", "docs/evaluation.md")
_PICTURE = re.compile(r"\]\(figures/([\w-]+)\.svg\)")
_BLOCK = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def renewed(text: str, tables: Mapping[str, Table]) -> str:
    """The text with all tables that there are; others stay as they were."""

    def block(found: re.Match[str]) -> str:
        table = tables.get(found["name"])
        if table is None:
            return found[0]
        return f"{found[1]}\n{table.markdown()}\n\n{table.how} {table.caption}\n\n{found[3]}"

    return _BLOCK.sub(block, text)


def renew(root: Path, tables: Mapping[str, Table], figures: Mapping[str, Drawn]) -> list[Path]:
    """Write what has changed in documents: their tables, and the pictures that they show."""
    wanted: dict[Path, str] = {}
    for path in (root / name for name in DOCUMENTS):
        wanted[path] = renewed(path.read_text(encoding="utf-8"), tables)
        for name in _PICTURE.findall(wanted[path]):
            if name in figures:
                wanted[path.parent / "figures" / f"{name}.svg"] = figures[name].svg + "\n"
    changed = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in changed:
        path.parent.mkdir(exist_ok=True)
        path.write_text(wanted[path], encoding="utf-8")
    return changed
