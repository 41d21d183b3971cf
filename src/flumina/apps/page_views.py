"""Page-view join: views of a page are joined with the page's current information.

Views of one page are independent of each other, so a hot page can be served by many workers; a change of its
information is the point of the stream at which all of them switch.
"""

from __future__ import annotations

import flumina as fl


class PageViews(fl.KeyedProgram):
    """One page: a view gives out its information, a change gives out the old one and sets the new."""

    view = fl.Tag("user long", key="page string")
    change = fl.Tag("info string", key="page string")
    depends = fl.depends((change, change), (change, view))
    output = "page string, user long, info string"
    info = fl.Replicated("string")

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        """Join a view with the information; give out the old information at a change."""
        if event.tag is self.view:
            emit(event.page, event.user, state.info)
        else:
            emit(event.page, None, state.info)
            state.info = event.info

    def update_batch(self, state: fl.State, batch: fl.Batch, emit: fl.Emit) -> None:
        """All views of a run see the same information; each change sees the one before it."""
        if batch.tag is self.view:
            emit.columns(batch.keys, batch.arrow("user"), fl.repeat(state.info, len(batch), "string"))
        elif len(batch):
            news = batch.arrow("info").to_pylist()
            emit.columns(batch.keys, fl.repeat(None, len(batch), "long"), [state.info, *news[:-1]])
            state.info = news[-1]


class PageViewsByHand(fl.Program):
    """The same with one map for all pages and its own fork and join."""

    view = fl.Tag("user long", key="page string")
    change = fl.Tag("info string", key="page string")
    depends = fl.depends((change, change), (change, view))
    output = "page string, user long, info string"

    def init(self) -> dict[str, str]:
        """No page has information."""
        return {}

    def update(self, state: dict[str, str], event: fl.Event, emit: fl.Emit) -> None:
        """Join a view with the information; give out the old information at a change."""
        if event.tag is self.view:
            emit(event.page, event.user, state.get(event.page))
        else:
            emit(event.page, None, state.get(event.page))
            state[event.page] = event.info

    def fork(self, state: dict[str, str], left: fl.TagSet, right: fl.TagSet) -> tuple[dict[str, str], dict[str, str]]:
        """A page's information goes to every side that has any of its events, and to the left if none has."""

        def wants(side: fl.TagSet, page: str) -> bool:
            return side.has(self.view, page) or side.has(self.change, page)

        of_right = {page: info for page, info in state.items() if wants(right, page)}
        of_left = {page: info for page, info in state.items() if wants(left, page) or page not in of_right}
        return of_left, of_right

    def join(self, left: dict[str, str], right: dict[str, str]) -> dict[str, str]:
        """Where both sides know a page they know the same; the left wins."""
        return right | left
