from __future__ import annotations

from flumina.model.order import END, START, Point, heartbeat
from flumina.model.tag import Tag
from flumina.runtime.messages import EVERYTHING, Credit, Data, ForkState, Item, KeyStates, Request, Response, Stop
from flumina.runtime.run import EMPTY, Run
from flumina.runtime.worker import Effects
from flumina.sim.trace import Trace, address, describe, place

P = Point(3, 0, 7)


def test_messages_in_words() -> None:
    tag = Tag()
    tag.name = "tick"
    run = Run([P], [tag.event(ts=3, stream="s", seq=7)])
    assert describe(Data(("s", 0), run, P)) == "tick()@3 s#7; frontier 3/0/7"
    assert describe(Data(("s", 0), EMPTY, END)) == "nothing; frontier END"
    asked = Request((Item(P, ("w1", "tick")), Item(END, EVERYTHING)), P, START)
    assert describe(asked) == "request 3/0/7 for w1.tick, END for *.*; frontier 3/0/7, snapshot frontier START"
    assert describe(Response(P, {}, {EVERYTHING: P})) == "response at 3/0/7 with {}; settled *.*: 3/0/7"
    assert describe(ForkState(1, P)) == "fork state 1; served 3/0/7"
    both = KeyStates((ForkState(1, P, "a"), ForkState(2, P, "b")))
    assert describe(both) == "of 'a': fork state 1; served 3/0/7 and of 'b': fork state 2; served 3/0/7"
    assert (describe(Stop()), describe(Credit(("s", 0), 2))) == ("stop", "credit for 2")
    assert place(heartbeat(4, 1)) == "4/1/*"
    assert (address("w1"), address(("s", 2))) == ("w1", "s[2]")


def test_long_stories_keep_their_end() -> None:
    trace = Trace(most=3)
    for _ in range(5):
        trace.saw("w1", "w2", Stop(), Effects([("w3", Stop()), (("s", 0), Credit(("s", 0), 1))]))
    assert str(trace).splitlines() == [
        "... 7 lines",
        "       sends w3 stop",
        "   5 w1 -> w2: stop",
        "       sends w3 stop",
    ]
