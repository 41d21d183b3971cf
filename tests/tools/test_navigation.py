from pathlib import Path

import pytest

from tools.navigation import Section, links, navigation, pages, place, relinked

INDEX = """# Site
Text with a [link](guide/b.md).

- [First](first.md): comes before all sections

## Guide

- [B](guide/b.md): about b
- [A](guide/a.md)

## Project

- [Security](../SECURITY.md)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "docs" / "guide").mkdir(parents=True)
    (tmp_path / "docs" / "index.md").write_text(INDEX)
    for name in ("first.md", "guide/a.md", "guide/b.md"):
        (tmp_path / "docs" / name).write_text("# A page\n")
    return tmp_path


def test_sections_and_pages_as_listed(root: Path) -> None:
    assert navigation(root) == [
        Section("", [("First", "docs/first.md")]),
        Section("Guide", [("B", "docs/guide/b.md"), ("A", "docs/guide/a.md")]),
        Section("Project", [("Security", "SECURITY.md")]),
    ]


def test_a_page_that_nobody_listed_joins_those_of_its_folder(root: Path) -> None:
    (root / "docs" / "guide" / "new.md").write_text("# New\n")
    guide = navigation(root)[1]
    assert guide.pages[-1] == (None, "docs/guide/new.md")


@pytest.mark.parametrize("name", ["new.md", "elsewhere/new.md"])
def test_a_page_without_such_neighbors_is_not_in_it(root: Path, name: str) -> None:
    path = root / "docs" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("# New\n")
    assert f"docs/{name}" in pages(root)
    assert f"docs/{name}" not in [page for section in navigation(root) for _, page in section.pages]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("docs/guide/a.md", "guide/a.md"),
        ("SECURITY.md", "project/security.md"),
        ("README.md", "index.md"),
        ("src/flumina/order.py", None),
        ("tests/README.md", None),
    ],
)
def test_places(path: str, expected: str | None) -> None:
    assert place(path) == expected


def test_links_are_those_of_the_text() -> None:
    text = (
        "[a](a.md) ![b](x/b.svg)\n[c](https://example.org/c.md) [d](d.md#e) [f](#f)\n```\n[g](g.md)\n```\n[h](h.md)\n"
    )
    assert list(links(text)) == [("a.md", ""), ("x/b.svg", ""), ("d.md", "e"), ("h.md", "")]


def test_links_are_moved_with_the_pages() -> None:
    page = "[s](../../SECURITY.md#what) [b](b.md) [r](../../README.md) [x](https://example.org)\n```\n[n](../../SECURITY.md)\n```\n"
    assert relinked(page, "docs/guide/a.md") == page.replace(
        "../../SECURITY.md#what", "../project/security.md#what", 1
    ).replace("../../README.md", "../index.md")
    beside = "[a](docs/guide/a.md) [s](SECURITY.md) [code](src/flumina/order.py)"
    assert relinked(beside, "ARCHITECTURE.md") == "[a](../guide/a.md) [s](security.md) [code](src/flumina/order.py)"
