import inspect

import pytest

import flumina as fl
from tools.docstrings import to_markdown


def converted(text: str) -> str:
    return to_markdown(inspect.cleandoc(text)).rstrip("\n")


def test_prose_stays() -> None:
    text = "One line.\n\nA paragraph with ``code``,\nand another line."
    assert converted(text) == text


def test_names_and_what_they_are_become_a_table() -> None:
    text = """What it is.

    ``a``       the first, which
                goes on
    ``b``, ``c`` two | more
    """
    assert converted(text) == (
        "What it is.\n\n| | |\n|---|---|\n| ``a`` | the first, which goes on |\n| ``b``, ``c`` | two \\| more |"
    )


@pytest.mark.parametrize(
    "text",
    ["``a`` is a name that begins a sentence.", "``a`` and then\n``b`` begin lines by chance.", "``a``  b\nc  d"],
)
def test_sentences_that_begin_with_names_stay(text: str) -> None:
    assert converted(text) == text


def test_literal_blocks() -> None:
    assert converted("See::\n\n    a = b\n\n      c\n\nThen.") == "See:\n\n```text\na = b\n\n  c\n```\n\nThen."
    assert converted("A.\n\n::\n\n    a\n    └── b") == "A.\n\n```text\na\n└── b\n```"


def test_examples() -> None:
    assert converted("Text.\n\n>>> f(1)\n2\n\nMore.") == "Text.\n\n```pycon\n>>> f(1)\n2\n```\n\nMore."


def test_tables_stand_as_they_are() -> None:
    table = "====  ====\na     b\n====  ====\n1     2\n====  ===="
    assert converted(f"A.\n\n{table}\n\nB.") == f"A.\n\n```text\n{table}\n```\n\nB."


def test_references_become_links_that_may_lead_nowhere() -> None:
    link = '<autoref optional identifier="{}">`{}`</autoref>'
    assert converted("A :class:`~flumina.Stream` is") == "A " + link.format("flumina.Stream", "Stream") + " is"
    assert converted(":func:`depends`") == link.format("depends", "depends")
    assert converted("is :mod:`cut off <flumina.runtime.truncate>`.") == (
        "is " + link.format("flumina.runtime.truncate", "cut off") + "."
    )


@pytest.mark.parametrize("name", fl.__all__)
def test_of_every_public_name_nothing_is_lost(name: str) -> None:
    text = inspect.getdoc(getattr(fl, name))
    assert text
    shown = to_markdown(text)
    assert shown.count("```") % 2 == 0
    assert ":class:" not in shown
    for word in text.replace("`", " ").replace("|", " ").split():
        if word.isalpha():
            assert word in shown
