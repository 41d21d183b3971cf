"""Messages between workers can leave the process: what arrives is as good as what was sent."""

from __future__ import annotations

import pickle
from random import Random

import pytest

from flumina.apps import KeyCounter, ValueBarrier
from flumina.apps.fraud import Fraud
from flumina.model.order import END, START, Point
from flumina.program.base import AnyProgram, define
from flumina.runtime.messages import EVERYTHING, ForkState, Item, KeyStates, Message, Request, Response, Stop
from flumina.runtime.topology import ProtocolOptions
from flumina.runtime.worker import Address, Effects
from flumina.sim.plans import random_case
from flumina.sim.programs import random_program
from flumina.sim.scheduler import Simulation, judge
from tests.runtime.support import PLAIN

MESSAGES: list[Message] = [
    Request((Item(Point(1, 0, 0), ("w", "t")), Item(END, EVERYTHING)), START, END),
    Response(Point(1, 0, 0), {"a": [1]}, {EVERYTHING: END}),
    ForkState((1, "x"), Point(1, 2, 3)),
    KeyStates((ForkState((1, "x"), Point(1, 2, 3), "a"), ForkState(None, Point(1, 2, 4), "b"))),
    KeyStates(tuple(Response(Point(ts, 0, 0), {"a": [ts]}, {EVERYTHING: END}, "a") for ts in (1, 2))),
    Stop(),
]


class Pickling(Simulation):
    """Everything that workers say to each other is written down and read again."""

    def perform(self, sender: Address, effects: Effects) -> None:
        sends: list[tuple[Address, Message]] = pickle.loads(pickle.dumps(effects.sends))  # noqa: S301 -- our own
        super().perform(sender, Effects(sends, effects.outputs))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_survives_the_journey(message: Message) -> None:
    assert pickle.loads(pickle.dumps(message)) == message  # noqa: S301 -- our own


@pytest.mark.parametrize("program", [ValueBarrier, Fraud, KeyCounter], ids=lambda program: program.__name__)
def test_runs_in_which_every_message_has_been_pickled(program: AnyProgram) -> None:
    definition = define(program)
    for seed in range(20):
        case = random_case(Random(seed), definition, 30)
        points = sorted({case.in_order[10][0], case.in_order[20][0]})
        judge(
            case, Pickling(case, Random(seed), options=PLAIN if seed % 3 else ProtocolOptions(), snapshots=points).run()
        )


def test_random_programs_in_which_every_message_has_been_pickled() -> None:
    for seed in range(30):
        random = Random(seed)
        case = random_case(random, define(random_program(random)), 30)
        points = sorted({case.in_order[10][0], case.in_order[20][0]})
        judge(case, Pickling(case, random, options=PLAIN if seed % 3 else ProtocolOptions(), snapshots=points).run())
