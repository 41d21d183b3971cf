"""Programs of the kept failures: as small as the bugs allow."""

from __future__ import annotations

import flumina as fl


class TwoReaders(fl.Program):
    """``a`` and ``b`` are independent of each other; ``x`` depends on both, ``y`` on neither."""

    a = fl.Tag()
    b = fl.Tag()
    x = fl.Tag()
    y = fl.Tag()
    depends = fl.depends((a, a), (a, x), (b, b), (b, x))
    output = "n long"
    for_a = fl.Count()
    for_b = fl.Count()
    others = fl.Count()

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.x:
            state.for_a += 1
            state.for_b += 1
        elif event.tag is self.y:
            state.others += 1
        elif event.tag is self.a:
            emit(state.for_a)
            state.for_a = 0
        else:
            emit(state.for_b)
            state.for_b = 0


class Window(fl.Program):
    """Additions, which a leaf can hand over, and resets."""

    add = fl.Tag()
    top = fl.Tag()
    depends = fl.depends((top, top), (top, add))
    output = "n long"
    count = fl.Count()

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.add:
            state.count += 1
        else:
            emit(state.count)
            state.count = 0


class Levels(fl.Program):
    """``a`` reads what ``y`` adds, ``c`` what ``z`` adds."""

    a = fl.Tag()
    c = fl.Tag()
    y = fl.Tag()
    z = fl.Tag()
    depends = fl.depends((a, a), (a, y), (c, c), (c, z))
    output = "n long"
    ys = fl.Count()
    zs = fl.Count()

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.y:
            state.ys += 1
        elif event.tag is self.z:
            state.zs += 1
        elif event.tag is self.a:
            emit(state.ys)
            state.ys = 0
        else:
            emit(state.zs)
            state.zs = 0
