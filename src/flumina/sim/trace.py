"""Trace a run step by step: each message and its effects."""

from __future__ import annotations

from flumina.model.emit import Row
from flumina.model.order import END, START, Point
from flumina.runtime.messages import Credit, Data, ForkState, Item, KeyStates, Message, Request, Response, Shown, Stop
from flumina.runtime.worker import Address, Effects


class Trace:
    """Collects lines; pass it to a simulation as its witness."""

    def __init__(self, most: int = 400) -> None:
        self.lines: list[str] = []
        self.most = most
        self.step = 0

    def saw(self, sender: Address, receiver: Address, message: Message, effects: Effects) -> None:
        """Record a delivered message and its effects."""
        self.step += 1
        self._add(f"{self.step:4} {address(sender)} -> {address(receiver)}: {describe(message)}")
        for to, sent in effects.sends:
            if not isinstance(sent, Credit):
                self._add(f"       sends {address(to)} {describe(sent)}")
        for output in effects.outputs:
            shown = f"{output.output}{output.values!r}" if isinstance(output, Row) else f"{output.output} in columns"
            self._add(f"       emits {shown}")

    def _add(self, line: str) -> None:
        self.lines.append(line)

    def __str__(self) -> str:
        left_out = len(self.lines) - self.most
        shown = self.lines if left_out <= 0 else [f"... {left_out} lines", *self.lines[-self.most :]]
        return "\n".join(shown)


def address(of: Address) -> str:
    """Format an address."""
    return of if isinstance(of, str) else f"{of[0]}[{of[1]}]"


def place(point: Point) -> str:
    """Format a point.

    >>> place(Point(3, 0, 7)), place(END)
    ('3/0/7', 'END')
    """
    if point in (START, END):
        return "START" if point == START else "END"
    ts, rank, seq = (("*" if abs(n) >= 2**62 else str(n)) for n in point)
    return f"{ts}/{rank}/{seq}"


def describe(message: Message) -> str:
    """Format a message."""
    match message:
        case Data(run=run, frontier=frontier):
            events = ", ".join(repr(event) for _, event in run)
            return f"{events or 'nothing'}; frontier {place(frontier)}"
        case Request(items=items, frontier=frontier, snapshot_frontier=snapshot_frontier):
            points = ", ".join(map(_item, items)) or "nothing"
            return f"request {points}; frontier {place(frontier)}, snapshot frontier {place(snapshot_frontier)}"
        case Response(point=point, state=state, settled=settled):
            bounds = ", ".join(f"{worker}.{tag}: {place(bound)}" for (worker, tag), bound in settled.items())
            return f"response at {place(point)} with {state!r}; settled {bounds}"
        case ForkState(state=state, served=served):
            return f"fork state {state!r}; served {place(served)}"
        case KeyStates(each=each):
            return " and ".join(f"of {one.key!r}: {describe(one)}" for one in each)
        case Shown(ts=ts):
            return f"shown {ts}"
        case Stop():
            return "stop"
        case Credit(events=events):
            return f"credit for {events}"


def _item(item: Item) -> str:
    return f"{place(item.point)} for {item.cause[0]}.{item.cause[1]}"
