"""Docstrings as Markdown: the few conventions that they have in common with each other rather than with Markdown.

==========================================  =====================================
in a docstring                              becomes
==========================================  =====================================
``name``  what it is, line under line       a table
a paragraph that ends with two colons       an example, shown as it stands
``>>>`` and what follows up to a blank      an example in Python
a cross-reference, as ``:class:``           a link, if the thing is on the site
a table between lines of ``=``, as this     shown as it stands
==========================================  =====================================
"""

import re
import textwrap
from collections.abc import Iterator

_ENTRY = re.compile(r"^((?:``[^`]+``)(?:, ``[^`]+``)*)\s+(\S.*)$")
_ROLE = re.compile(r":(?:class|func|meth|mod|data|attr|exc):`(?:([^`<]+?) <)?(~?)([\w.]+)>?`")


def to_markdown(text: str) -> str:
    """A docstring as Markdown."""
    return "\n\n".join(_converted(_blocks(text))) + "\n"


def _blocks(text: str) -> list[str]:
    return [block.strip("\n") for block in re.split(r"\n[ \t]*\n", text.strip("\n")) if block.strip()]


def _converted(blocks: list[str]) -> Iterator[str]:
    rest = iter([*blocks, ""])
    block = next(rest)
    while block:
        following = next(rest, "")
        if block.startswith(">>>"):
            yield _fenced("pycon", block)
        elif re.match(r"=+( +=+)+ *\n", block):
            yield _fenced("text", block)
        elif block.endswith("::"):
            if told := block.removesuffix("::").rstrip():
                yield _prose(f"{told}:")
            literal = []
            while following.startswith(" "):
                literal.append(following)
                following = next(rest, "")
            yield _fenced("text", textwrap.dedent("\n\n".join(literal)))
        elif (entries := _entries(block)) is not None:
            rows = [f"| {name} | {_prose(told).replace('|', chr(92) + '|')} |" for name, told in entries]
            yield "\n".join(["| | |", "|---|---|", *rows])
        else:
            yield _prose(block)
        block = following


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


def _entries(block: str) -> list[tuple[str, str]] | None:
    """Names and what is told of them, if that is what a block consists of."""
    if not re.search(r"^``[^`]+`` {2,}\S", block, re.MULTILINE):  # else it is a sentence that begins with a name
        return None
    entries: list[tuple[str, str]] = []
    for line in block.splitlines():
        if match := _ENTRY.match(line):
            entries.append((match[1], match[2]))
        elif line.startswith(" ") and entries:
            entries[-1] = (entries[-1][0], f"{entries[-1][1]} {line.strip()}")
        else:
            return None
    return entries


def _prose(text: str) -> str:
    """Text with its cross-references as links, which vanish where there is nothing to link to."""

    def link(role: re.Match[str]) -> str:
        target = role[3]
        shown = role[1] or (target.rpartition(".")[2] if role[2] else target)
        return f'<autoref optional identifier="{target}">`{shown}`</autoref>'

    return _ROLE.sub(link, text)
