"""The documentation as files: links lead somewhere, pages can be found, and the reference has every public name."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import flumina
import flumina.local
import flumina.plan
import flumina.spark
import flumina.testing
from tools.navigation import INDEX, links, navigation, pages, place

ROOT = Path(__file__).parents[1]
BESIDE = sorted(path.name for path in ROOT.glob("*.md"))
DOCUMENTS = [*BESIDE, *pages(ROOT)]


def anchors(path: Path) -> set[str]:
    """The headings of a document as they can be linked to."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


def broken(root: Path, name: str) -> list[str]:
    """The links of a document that lead nowhere."""
    document = root / name
    wrong = []
    for path, anchor in links(document.read_text(encoding="utf-8")):
        target = document.parent / path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(f"{path}#{anchor}" if anchor else path)
    return wrong


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    assert broken(ROOT, name) == []


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(
        "# A\n[b](b.md), [c](c.md), [d](b.md#that-is-b), [e](b.md#no)\n```\n[f](f.md)\n```\n"
    )
    (tmp_path / "b.md").write_text("## That is b!\n```sh\n# no\n```\n")
    assert broken(tmp_path, "a.md") == ["c.md", "b.md#no"]


def test_every_page_is_in_the_navigation_once() -> None:
    listed = [path for section in navigation(ROOT) for _, path in section.pages]
    assert sorted(listed) == sorted(set(listed))
    assert set(pages(ROOT)) - {INDEX} - set(listed) == set(), "list these in docs/index.md"
    assert [path for path in listed if not (ROOT / path).is_file()] == []


def test_pages_of_the_site_link_to_pages_of_the_site() -> None:
    shown = {place(path) for section in navigation(ROOT) for _, path in section.pages} | {"index.md"}
    for name in pages(ROOT):
        for path, _ in links((ROOT / name).read_text(encoding="utf-8")):
            target = ((ROOT / name).parent / path).resolve().relative_to(ROOT)
            if target.suffix == ".md":
                assert place(target.as_posix()) in shown, f"{name} links to {path}"


def test_every_picture_is_used_and_needs_no_other_file() -> None:
    used = {
        ((ROOT / name).parent / path).resolve()
        for name in pages(ROOT)
        for path, _ in links((ROOT / name).read_text(encoding="utf-8"))
    }
    pictures = set((ROOT / "docs").rglob("*.svg"))
    assert pictures == {path for path in used if path.suffix == ".svg"}
    for picture in pictures:
        drawn = ET.parse(picture).getroot()  # noqa: S314 -- our own
        assert drawn.find("{*}title") is not None
        assert not re.search(r"href=|url\((?!#)|@import|<script|<image", picture.read_text(encoding="utf-8"))


def test_every_concept_has_a_picture() -> None:
    for page in (ROOT / "docs" / "concepts").glob("*.md"):
        assert len(re.findall(r"^!\[.+\]\(.+\.svg\)$", page.read_text(encoding="utf-8"), re.MULTILINE)) == 1


def referred() -> list[str]:
    """The names that the reference shows, under the names that users know."""
    names = []
    for page in sorted((ROOT / "docs" / "reference").glob("*.md")):
        for block in re.findall(r"^::: .+(?:\n(?: .*)?)*", page.read_text(encoding="utf-8"), re.MULTILINE):
            heading = re.search(r"^ +heading: (\S+)$", block, re.MULTILINE)
            names.append(heading[1] if heading else block.splitlines()[0].removeprefix("::: ").strip())
    return names


def test_the_reference_has_every_public_name_once() -> None:
    names = referred()
    assert sorted(names) == sorted(set(names))
    errors = {name for name in flumina.__all__ if name.endswith("Error")}
    wanted = {f"flumina.{name}" for name in set(flumina.__all__) - errors}
    wanted |= {f"{m.__name__}.{n}" for m in (flumina.local, flumina.spark, flumina.plan) for n in m.__all__}
    assert wanted - set(names) == set(), "show these on a page of docs/reference"
    assert {"flumina.errors", "flumina.testing"} <= set(names)  # whole modules
