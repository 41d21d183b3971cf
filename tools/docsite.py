"""What mkdocs calls while it builds the site: hooks for the navigation, the documents beside the README, docstrings."""

from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File

from tools.docstrings import to_markdown
from tools.navigation import DOCS, navigation, place, relinked

ROOT = Path(__file__).resolve().parents[1]


class HouseStyle(griffe.Extension):
    """Docstrings are turned into Markdown as they are read."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:  # noqa: ANN401 -- griffe is not there when types are checked
        """A module, class, function or attribute was found in the source."""
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)


def on_config(config: Any) -> Any:  # noqa: ANN401 -- as above
    """The navigation comes from docs/index.md."""
    nav: list[Any] = [{"Home": "index.md"}]
    for section in navigation(ROOT):
        listed = [place(path) if title is None else {title: place(path)} for title, path in section.pages]
        nav += [{section.title: listed}] if section.title else listed
    config.nav = nav
    return config


def on_files(files: Any, config: Any) -> Any:  # noqa: ANN401 -- as above
    """Documents that lie beside the README are pages, too."""
    for section in navigation(ROOT):
        for _, path in section.pages:
            if not path.startswith(f"{DOCS}/"):
                files.append(File.generated(config, place(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:  # noqa: ANN401 -- as above
    """Links lead to where things are on the site rather than in the project."""
    return relinked(markdown, Path(page.file.abs_src_path).relative_to(ROOT).as_posix())
