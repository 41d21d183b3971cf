import re

from flumina.report.style import STYLE
from flumina.runtime.stats import Wait


def test_every_kind_of_bar_has_its_own_color() -> None:
    colors = dict(re.findall(r"i\.(\w+)\{background:(#\w+)\}", STYLE))
    assert {wait.name.lower() for wait in Wait} | {"working", "idle"} == colors.keys()
    assert len(set(colors.values())) == len(colors)


def test_nothing_is_loaded() -> None:
    assert "url(" not in STYLE
    assert "@import" not in STYLE


def test_braces_match() -> None:
    assert STYLE.count("{") == STYLE.count("}")
