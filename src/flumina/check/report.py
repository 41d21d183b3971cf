"""Report the result of a check: each law with its smallest counterexample."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

_WIDTH = 110


@dataclass(frozen=True)
class Counterexample:
    """The smallest situation found that breaks a law."""

    law: str
    equation: str
    meaning: str
    trace: tuple[str, ...] = ()
    bindings: tuple[tuple[str, str], ...] = ()
    sides: tuple[tuple[str, str, str], ...] = ()
    hint: str | None = None

    def __str__(self) -> str:
        lines = [f"{self.law}: {self.meaning}", f"    {self.equation}", ""]
        if self.trace:
            lines += ["  reached by", *(f"    {step}" for step in self.trace)]
        if self.bindings:
            wide = max(len(name) for name, _ in self.bindings)
            lines += ["  with", *(f"    {name:<{wide}} = {value}" for name, value in self.bindings)]
        for what, left, right in self.sides:
            lines += ["", *_side_by_side(what, left, right)]
        if self.hint is not None:
            lines += ["", f"  hint: {self.hint}"]
        return "\n".join(lines)


def _side_by_side(what: str, left: str, right: str) -> list[str]:
    mark = "=" if left == right else "≠"
    if len(left) + len(right) + len(what) < _WIDTH - 20:
        return [f"  {what}:  {left}  {mark}  {right}"]
    half = (_WIDTH - 8) // 2
    a, b = textwrap.wrap(left, half) or [""], textwrap.wrap(right, half) or [""]
    rows = max(len(a), len(b))
    a, b = a + [""] * (rows - len(a)), b + [""] * (rows - len(b))
    head = f"  {what}: {'left side':<{half - len(what)}} {mark} right side"
    return [head, *(f"    {x:<{half}} | {y}" for x, y in zip(a, b, strict=True))]


@dataclass(frozen=True)
class LawResult:
    """The result of one law: number of situations tried, and the counterexample."""

    law: str
    examples: int
    counterexample: Counterexample | None = None
    note: str = ""

    @property
    def ok(self) -> bool:
        """Whether no counterexample was found."""
        return self.counterexample is None


@dataclass(frozen=True)
class CheckReport:
    """The results of all laws for one program."""

    program: str
    results: Sequence[LawResult]

    @property
    def ok(self) -> bool:
        """Whether every law held wherever it was tried."""
        return all(result.ok for result in self.results)

    @property
    def broken(self) -> tuple[str, ...]:
        """The names of the laws that do not hold."""
        return tuple(result.law for result in self.results if not result.ok)

    def __str__(self) -> str:
        lines = [f"{self.program}: {'all laws hold' if self.ok else 'breaks ' + ', '.join(self.broken)}"]
        for result in self.results:
            mark = "ok" if result.ok else "BROKEN"
            outcome = result.note or f"{result.examples} examples"
            lines.append(f"  {result.law:<12} {mark:<7} {outcome}")
        for result in self.results:
            if result.counterexample is not None:
                lines += ["", str(result.counterexample)]
        return "\n".join(lines)
