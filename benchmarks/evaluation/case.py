"""The programs as the evaluation runs them: input in files, and the same input as the simulator needs it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flumina.apps.app import App
from flumina.apps.page_views import Visits
from flumina.apps.registry import APPS
from flumina.apps.workload import Workload
from flumina.plan.sources import StreamRates

PROGRAMS = ("value-barrier", "page-views", "fraud")
"""The three of the paper's section 4."""

RARE = {"value-barrier": "barrier", "page-views": "change", "fraud": "rule", "outliers": "query"}
OFTEN = {"value-barrier": "value", "page-views": "view", "fraud": "transaction", "outliers": "connection"}
RATIO = 10_000
"""Events on each part for one that synchronizes, as in the paper."""


@dataclass(frozen=True)
class Case:
    """A program with so many parts of input, and so many events on each part for one that synchronizes."""

    name: str
    parts: int
    ratio: int = RATIO
    rate: float = 1e6
    """Events a second on each part, where time passes."""

    @property
    def app(self) -> App:
        """The program and its generator."""
        return APPS[self.name]

    def workload(self, events: int) -> Workload:
        """Input with so many events on each part."""
        names = ("changes", "gets") if self.name == "page-views" else ("ratio",)  # the paper has no gets here
        ratios: dict[str, Any] = dict.fromkeys(names, self.ratio)
        return self.app.generate(
            events=events * self.parts, parts=self.parts, rate=round(self.rate * self.parts), **ratios
        )

    def sources(self) -> list[StreamRates]:
        """The input as the optimizers and the simulator know it, in events a second."""
        workload = self.workload(self.ratio)
        pages = [str(page) for page in range(workload.hot)] if isinstance(workload, Visits) else []
        return [
            StreamRates(
                flow.name,
                {flow.tag.name: flow.rate},
                flow.parts,
                {flow.tag.name: {page: flow.rate / len(pages) for page in pages}} if pages else {},
            )
            for flow in workload.flows()
        ]


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for input, gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="flumina-evaluation-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
