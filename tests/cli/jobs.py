"""Programs as users have them, in files of their own."""

from pathlib import Path

ORDERS = """
import pyarrow as pa
import flumina as fl

class Orders(fl.Program):
    order = fl.Tag("amount long NOT NULL")
    close = fl.Tag()
    depends = fl.depends((close, close), (close, order))
    output = "total long"
    total = fl.Sum("long")

    def update(self, state, event, emit):
        if event.tag is self.order:
            state.total += event.amount
        else:
            emit(state.total)
            state.total = 0

def streams(count: int = 100, scale=1.0, word="x", *, parts: int = 2):
    ts = list(range(count))
    parts = [pa.table({"ts": ts[p::parts], "amount": [int(n * scale) for n in ts[p::parts]]}) for p in range(parts)]
    closes = pa.table({"ts": [count // 2, count]})
    return [fl.Stream("orders", Orders.order, parts), fl.Stream("closes", Orders.close, closes)]

def needy(day): return streams()
def broken(): return 1 // 0
def nothing(): return None
ready = streams(10)
"""

FORGETFUL = """
import pyarrow as pa
import flumina as fl

class Forgetful(fl.Program):
    value = fl.Tag("v long NOT NULL")
    ask = fl.Tag()
    depends = fl.depends((ask, ask), (ask, value))
    output = "total long"

    def init(self): return 0

    def update(self, state, event, emit):
        if event.tag is self.ask:
            emit(state)
            return 0
        if event.v == FAILS:
            raise ValueError("seven is too much")
        return state + event.v

    def fork(self, state, left, right): return (0, state) if right.has(self.ask) else (state, 0)

    def join(self, left, right): return left  # and forgets what the right side knows

FAILS = -1

def streams(fails: int = -1):
    values = [pa.table({"ts": [n, n + 2, n + 4], "v": [fails if fails > 0 else 1] * 3}) for n in (1, 2)]
    return [fl.Stream("values", Forgetful.value, values), fl.Stream("asks", Forgetful.ask, {"ts": [10]})]
"""


def write(folder: Path, name: str, text: str) -> str:
    """Write a job; gives its path."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)
