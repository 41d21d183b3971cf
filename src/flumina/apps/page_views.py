"""Join views of a page with the page's current information.

Views of one page are independent of each other, so a hot page can be served by many workers; a change of its
information is the point of the stream at which all of them switch. A get asks for the information without a user; like
a view it depends on changes only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import flumina as fl
from flumina.apps.app import App
from flumina.apps.workload import Columns, Flow, Steady, below, noise, parameter, share
from flumina.model.order import Ints


class PageViews(fl.KeyedProgram):
    """One page: views and gets give out its information, a change gives out the old one and sets the new."""

    view = fl.Tag("user long", key="page string")
    get = fl.Tag(key="page string")
    change = fl.Tag("info string", key="page string")
    depends = fl.depends((change, change), (change, view), (change, get))
    output = "page string, user long, info string"
    info = fl.Replicated("string")

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        """Join a view with the information; give it out at a get, and at a change before it is replaced."""
        if event.tag is self.view:
            emit(event.page, event.user, state.info)
        else:
            emit(event.page, None, state.info)
            if event.tag is self.change:
                state.info = event.info

    def update_batch(self, state: fl.State, batch: fl.Batch, emit: fl.Emit) -> None:
        """Join all views of a run with the same information; each change emits the one before it."""
        if batch.tag is self.view:
            emit.columns(batch.keys, batch.arrow("user"), fl.repeat(state.info, len(batch), "string"))
        elif batch.tag is self.get:
            users, infos = fl.repeat(None, len(batch), "long"), fl.repeat(state.info, len(batch), "string")
            emit.columns(batch.keys, users, infos)
        elif len(batch):
            news = batch.arrow("info").to_pylist()
            emit.columns(batch.keys, fl.repeat(None, len(batch), "long"), [state.info, *news[:-1]])
            state.info = news[-1]


class PageViewsByHand(fl.Program):
    """The same with one map for all pages and its own fork and join."""

    view = fl.Tag("user long", key="page string")
    get = fl.Tag(key="page string")
    change = fl.Tag("info string", key="page string")
    depends = fl.depends((change, change), (change, view), (change, get))
    output = "page string, user long, info string"

    def init(self) -> dict[str, str]:
        """Return the map without pages."""
        return {}

    def update(self, state: dict[str, str], event: fl.Event, emit: fl.Emit) -> None:
        """Join a view with the information; give it out at a get, and at a change before it is replaced."""
        if event.tag is self.view:
            emit(event.page, event.user, state.get(event.page))
        else:
            emit(event.page, None, state.get(event.page))
            if event.tag is self.change:
                state[event.page] = event.info

    def fork(self, state: dict[str, str], left: fl.TagSet, right: fl.TagSet) -> tuple[dict[str, str], dict[str, str]]:
        """Give a page's information to every side with its events, and to the left if none has."""

        def wants(side: fl.TagSet, page: str) -> bool:
            return any(side.has(tag, page) for tag in (self.view, self.get, self.change))

        of_right = {page: info for page, info in state.items() if wants(right, page)}
        of_left = {page: info for page, info in state.items() if wants(left, page) or page not in of_right}
        return of_left, of_right

    def join(self, left: dict[str, str], right: dict[str, str]) -> dict[str, str]:
        """Merge the maps; pages that both sides know are equal."""
        return right | left


@dataclass(frozen=True, kw_only=True)
class Visits(Steady):
    """Views of pages, of which some may be hot; gets and changes of pages that are chosen in the same way."""

    pages: int = parameter(2, "how many pages there are")
    hot: int = parameter(2, "how many of them are hot")
    skew: float = parameter(1.0, "the share of all events that belong to hot pages; the others have the rest")
    gets: int = parameter(100, "views on each part for one get")
    changes: int = parameter(1_000, "views on each part for one change")

    def __post_init__(self) -> None:
        """Refuse invalid shares."""
        super().__post_init__()
        self.require("hot", self.hot <= self.pages, "are more than there are pages")
        self.require("skew", 0 <= self.skew <= 1, "should be between 0 and 1")

    def flows(self) -> list[Flow]:
        """Return views in parts, and one stream each of gets and changes."""
        return [
            self.often("views", PageViews.view, self._views),
            self.rare("gets", PageViews.get, self._gets, self.gets),
            self.rare("changes", PageViews.change, self._changes, self.changes),
        ]

    def page(self, what: str, numbers: Ints) -> pa.Array:
        """Return the pages of some events: numbers as text, the hot ones first."""
        page = below(self.hot, noise(self.seed, f"hot {what}", numbers))
        if self.hot < self.pages:
            cold = self.hot + below(self.pages - self.hot, noise(self.seed, f"cold {what}", numbers))
            page = np.where(share(noise(self.seed, f"skew {what}", numbers)) < self.skew, page, cold)
        return pa.array(page).cast(pa.string())

    def _views(self, numbers: Ints) -> Columns:
        return {"page": self.page("view", numbers), "user": below(1 << 30, noise(self.seed, "user", numbers))}

    def _gets(self, numbers: Ints) -> Columns:
        return {"page": self.page("get", numbers)}

    def _changes(self, numbers: Ints) -> Columns:
        infos = pc.binary_join_element_wise("edition", pa.array(numbers).cast(pa.string()), " ")
        return {"page": self.page("change", numbers), "info": infos}


APP = App("page-views", PageViews, Visits, by_hand=PageViewsByHand)
