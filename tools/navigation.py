"""The navigation of the documentation: what `docs/index.md` lists, which a reader of the plain files can click on too.

A heading of the second level begins a section, and a list item that begins with a link is a page of it. A page that
nobody has listed yet goes to the end of the section that has other pages of its folder.
"""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

DOCS = "docs"
INDEX = f"{DOCS}/index.md"
PROJECT = "project"
"""The folder of the site with the documents that lie beside the README."""

_HEADING = re.compile(r"^## +(.+?) *$")
_ITEM = re.compile(r"^- +\[([^\]]+)\]\(([^)#\s]+)\)")
_LINK = re.compile(r"(?<=\]\()([^)\s#:]+)((?:#[^)\s]*)?)(?=\))")
_FENCE = re.compile(r"^ *```")


@dataclass
class Section:
    """A part of the navigation: pages with their titles, as paths from the root of the project."""

    title: str
    pages: list[tuple[str | None, str]] = field(default_factory=list)


def navigation(root: Path) -> list[Section]:
    """All pages in sections; those outside of any section come first, in one without a title."""
    sections = [Section("")]
    for line in (root / INDEX).read_text(encoding="utf-8").splitlines():
        if heading := _HEADING.match(line):
            sections.append(Section(heading[1]))
        elif item := _ITEM.match(line):
            sections[-1].pages.append((item[1], posixpath.normpath(f"{DOCS}/{item[2]}")))
    listed = {path for section in sections for _, path in section.pages}
    for path in pages(root):
        if path not in listed and path != INDEX:
            folder = posixpath.dirname(path)
            for section in sections:
                if any(posixpath.dirname(other) == folder != DOCS for _, other in section.pages):
                    section.pages.append((None, path))
                    break
    return [section for section in sections if section.pages]


def pages(root: Path) -> list[str]:
    """Every document in the folder of the documentation."""
    return sorted(path.relative_to(root).as_posix() for path in (root / DOCS).rglob("*.md"))


def place(path: str) -> str | None:
    """Where on the site a document of the project is; None if it is not there.

    >>> place("docs/guide/plans.md"), place("SECURITY.md"), place("README.md"), place("src/flumina/order.py")
    ('guide/plans.md', 'project/security.md', 'index.md', None)
    """
    if path.startswith(f"{DOCS}/"):
        return path.removeprefix(f"{DOCS}/")
    if path == "README.md":
        return "index.md"
    return f"{PROJECT}/{path.lower()}" if re.fullmatch(r"[A-Z]+\.md", path) else None


def relinked(text: str, path: str) -> str:
    """A document whose links lead from its place on the site to the places of others."""
    here = place(path)
    assert here is not None, f"{path} is no page"

    def moved(link: re.Match[str]) -> str:
        target = place(posixpath.normpath(posixpath.join(posixpath.dirname(path), link[1])))
        return link[0] if target is None else posixpath.relpath(target, posixpath.dirname(here) or ".") + link[2]

    return "".join(line if fenced else _LINK.sub(moved, line) for line, fenced in _lines(text))


def links(text: str) -> Iterator[tuple[str, str]]:
    """The links of a document to other files: path and anchor; not those in examples, nor those to other sites."""
    for line, fenced in _lines(text):
        if not fenced:
            yield from ((link[1], link[2].removeprefix("#")) for link in _LINK.finditer(line))


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """The lines of a document, and whether each belongs to an example."""
    fenced = False
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line) is not None
        yield line, fenced or mark
        fenced ^= mark
