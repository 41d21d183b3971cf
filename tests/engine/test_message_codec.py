"""Messages must mean the same at the other end, and name there what that end has itself."""

import pickle
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import flumina as fl
from flumina.apps.fraud import Fraud
from flumina.apps.page_views import PageViews
from flumina.engine.message_codec import APART, Codec, EncodedMessage
from flumina.model.batch import Batch
from flumina.model.order import END, START, Point
from flumina.model.tick import Horizon
from flumina.program.base import define
from flumina.program.definition import initial_state
from flumina.runtime.messages import (
    EVERYTHING,
    Credit,
    Data,
    ForkState,
    Item,
    KeyStates,
    Message,
    Request,
    Response,
    Shown,
    Stop,
)
from flumina.runtime.run import EMPTY, Run
from flumina.state.keyed_map import FloatSet

NAMES = ("views", "changes")
P = Point(7, 1, 3)


def carried(codec: Codec, message: Message) -> Message:
    [(to, sender, again)] = codec.decode([bytes(buffer) for buffer in codec.encode([("w2", "w1", message)])])
    assert (to, sender) == ("w2", "w1")
    return again


@pytest.mark.parametrize(
    "message",
    [
        Request((Item(P, ("w1", "change"), "home"), Item(END, EVERYTHING)), P, END),
        Request((), P, END, 12, Horizon(13, closed=True)),
        Response(P, [1], {EVERYTHING: P}, "home", P),
        Shown(14),
        Credit(("views", 1), 17),
        Stop(),
        Data(("views", 0), EMPTY, P),
    ],
)
def test_messages_without_state_come_back_equal(message: Message) -> None:
    again = carried(Codec(fl.define(PageViews), NAMES), message)
    if isinstance(message, Data):
        assert isinstance(again, Data)
        assert (again.part, len(again.run), again.frontier) == (message.part, 0, message.frontier)
        assert type(again.frontier) is Point
    else:
        assert again == message


def test_states_of_several_keys_come_back_in_their_order() -> None:
    codec = Codec(fl.define(PageViews), NAMES)
    answers = KeyStates(tuple(Response(P, [ts], {EVERYTHING: P}, f"page {ts}") for ts in range(3)))
    handed = KeyStates((ForkState("a", P, "home"), ForkState(None, END, "about")))
    for message in (answers, handed):
        again = carried(codec, message)
        assert again == message
        assert isinstance(again, KeyStates)
        assert {type(one.point if isinstance(one, Response) else one.served) for one in again.each} == {Point}
    sizes: dict[str, int] = {}
    codec.encode(
        [("w2", "w1", KeyStates((ForkState(b"x" * 5000, P, "home"), ForkState(b"y" * 5000, P, "about"))))], sizes
    )
    assert 10_000 < sizes["w1"] < 11_000


def test_points_stay_points() -> None:
    again = carried(Codec(fl.define(PageViews), NAMES), Request((Item(P, EVERYTHING),), P, START))
    assert isinstance(again, Request)
    assert {type(point) for point in (again.frontier, again.snapshot_frontier, again.items[0].point)} == {Point}


def test_states_refer_to_the_program_of_the_receiver() -> None:
    definition, other = fl.define(PageViews), fl.define(PageViews)
    assert definition.lifted is not None
    states = definition.init()
    states["home"].info = "new"
    buffers = Codec(definition, NAMES).encode([("w1", "w2", Response(P, states, {EVERYTHING: P}))])
    [(_, _, again)] = Codec(other, NAMES).decode(buffers)
    assert isinstance(again, Response)
    assert again.state["home"].info == "new"
    assert again.state.field is other.lifted
    assert again.settled == {EVERYTHING: P}
    assert sum(map(len, buffers)) < 400, "the program itself does not travel"


def test_one_key_is_as_small_as_it_is() -> None:
    definition = fl.define(PageViews)
    assert definition.lifted is not None
    state = definition.lifted.one.init()
    state.info = "x" * 100
    again = carried(Codec(definition, NAMES), ForkState(state, P, "home"))
    assert isinstance(again, ForkState)
    assert again.state.info == "x" * 100
    assert (again.served, again.key) == (P, "home")


def batch_of(tag: fl.Tag, ts: Sequence[int], **columns: Any) -> Batch:
    table = pa.record_batch([pa.array(columns[f.name], f.type) for f in tag.schema], schema=tag.schema)
    return Batch.one_tag(tag, table, np.array(ts), 0, np.arange(len(ts)), NAMES)


def test_columns_come_back_with_the_tags_of_the_receiver() -> None:
    batch = batch_of(PageViews.view, [1, 2, 3], page=["a", "b", "a"], user=[1, 2, None])
    again = carried(Codec(fl.define(PageViews), NAMES), Data(("views", 0), Run(batch=batch), P))
    assert isinstance(again, Data)
    assert again.run.batch is not None
    assert list(again.run.batch) == list(batch)
    assert again.run.batch.tag is PageViews.view


def test_a_slice_sends_its_own_rows_only() -> None:
    count = 100_000
    batch = batch_of(Fraud.transaction, range(count), v=range(count))
    piece = Run(batch=batch).split(Point(9, 0, 9))[0]
    buffers = Codec(fl.define(Fraud), NAMES).encode([("w1", ("views", 0), Data(("views", 0), piece, P))])
    assert sum(map(len, buffers)) < 2000
    [(_, _, again)] = Codec(fl.define(Fraud), NAMES).decode(buffers)
    assert isinstance(again, Data)
    assert again.run.batch is not None
    assert again.run.batch["v"].tolist() == list(range(10))


def test_mixed_batches_and_their_slices() -> None:
    views = batch_of(PageViews.view, [1, 3, 5], page=["a", "b", "a"], user=[1, 2, 3])
    changes = batch_of(PageViews.change, [2, 4], page=["a", "b"], info=["x", "y"])
    merged = Batch.merge([views, changes])
    for piece in (merged, merged.slice(1, 4)):
        again = carried(Codec(fl.define(PageViews), NAMES), Data(("views", 0), Run(batch=piece), P))
        assert isinstance(again, Data)
        assert again.run.batch is not None
        assert list(again.run.batch) == list(piece)


def test_tags_without_columns() -> None:
    class Ticks(fl.Program):
        tick = fl.Tag()
        depends = fl.depends((tick, tick))
        output = "n long"
        n = fl.Count()

        def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
            state.n += 1
            emit(state.n)

    table = pa.RecordBatch.from_struct_array(pa.array([{}] * 3, pa.struct([])))
    batch = Batch.one_tag(Ticks.tick, table, np.arange(3), 0, np.arange(3), NAMES)
    again = carried(Codec(fl.define(Ticks), NAMES), Data(("views", 0), Run(batch=batch), P))
    assert isinstance(again, Data)
    assert list(again.run) == list(Run(batch=batch))


def test_large_arrays_travel_beside_the_pickle_and_are_not_copied() -> None:
    state = np.arange(APART)
    codec = Codec(fl.define(Fraud), NAMES)
    first, *apart = codec.encode([("w1", "w2", Response(P, {"sums": state}, {}))])
    assert len(apart) == 1
    assert np.shares_memory(np.frombuffer(apart[0], state.dtype), state)
    assert len(first) < 1000
    [(_, _, again)] = codec.decode([first, *apart])
    assert isinstance(again, Response)
    assert (again.state["sums"] == state).all()


def test_many_small_arrays_stay_inside() -> None:
    states = {key: np.arange(4) for key in range(1000)}
    assert len(Codec(fl.define(Fraud), NAMES).encode([("w1", "w2", Response(P, states, {}))])) == 1


SCRIPT = """
import pickle, sys
from dataclasses import dataclass
import flumina as fl
from flumina.program import pickling
from flumina.engine.message_codec import Codec
from flumina.model.order import Point
from flumina.runtime.messages import Response

@dataclass
class Totals:
    n: int = 0

class Counter(fl.Program):
    tick = fl.Tag()
    depends = fl.depends((tick, tick))
    output = "n long"
    def init(self): return Totals()
    def update(self, state, event, emit): state.n += 1
    def fork(self, state, left, right): return state, Totals()
    def join(self, left, right): return Totals(left.n + right.n)

codec = Codec(fl.define(Counter), ["s"])
buffers = codec.encode([("a", "b", Response(Point(1, 0, 0), Totals(5), {}))])
sys.stdout.buffer.write(pickle.dumps((pickling.dumps(Counter), [bytes(b) for b in buffers])))
"""


def test_classes_of_a_script_are_the_same_class_at_the_other_end() -> None:
    from flumina.program import pickling  # noqa: PLC0415

    made = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True)
    program, buffers = pickle.loads(made.stdout)  # noqa: S301 -- what we just wrote
    definition = fl.define(pickling.loads(program))
    [(_, _, again)] = Codec(definition, ["s"]).decode(buffers)
    assert isinstance(again, Response)
    assert again.state == type(definition.init())(5)
    assert sum(map(len, buffers)) < 400, "the class itself does not travel"


def test_letters_keep_their_order_and_the_size_of_states_is_told() -> None:
    codec = Codec(fl.define(Fraud), NAMES)
    large = np.arange(APART)
    letters: list[EncodedMessage] = [
        ("w1", "w2", Response(P, {"sums": large}, {EVERYTHING: P})),
        ("w1", "w3", Response(P, {"sums": large[:3]}, {})),
        (("views", 1), "w2", Credit(("views", 1), 5)),
        ("w1", "w2", Response(END, None, {})),
    ]
    sizes: dict[str, int] = {}
    buffers = codec.encode(letters, sizes)
    again = list(codec.decode(buffers))
    assert [(to, sender) for to, sender, _ in again] == [(to, sender) for to, sender, _ in letters]
    assert again[2] == letters[2]
    first, second = again[0][2], again[1][2]
    assert isinstance(first, Response)
    assert isinstance(second, Response)
    assert (first.state["sums"] == large).all()
    assert second.state["sums"].tolist() == [0, 1, 2]
    assert large.nbytes < sizes["w2"] < large.nbytes + 1000
    assert 0 < sizes["w3"] < 1000


def moved(*, swapped: bool) -> type[fl.Program]:
    """A class whose lines stand in one order or the other."""

    class Limits(fl.Program):
        if swapped:
            lower = fl.Tag("v long", key="k long")
            pay = fl.Tag("v long", key="k long")
            spent = fl.PerKey(fl.Tuple(fl.Replicated("long", 0), fl.Max()))
            limit = fl.PerKey(fl.Tuple(fl.Replicated("long", 100), fl.Min()))
        else:
            pay = fl.Tag("v long", key="k long")
            lower = fl.Tag("v long", key="k long")
            limit = fl.PerKey(fl.Tuple(fl.Replicated("long", 100), fl.Min()))
            spent = fl.PerKey(fl.Tuple(fl.Replicated("long", 0), fl.Max()))
        depends = fl.depends((pay, pay), (pay, lower), (lower, lower))
        output = "n long"

        def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
            emit(state.limit[event.key][0] + state.spent[event.key][0])

    return Limits


def test_a_state_is_the_same_for_who_has_moved_lines_of_the_class() -> None:
    before, after = (define(moved(swapped=swapped)) for swapped in (False, True))
    state = initial_state(before)
    again = Codec(after, ["s"]).unpack(Codec(before, ["s"]).pack([state, before.tags["pay"]]))
    assert again[1] is after.tags["pay"]
    assert (again[0].limit[7], again[0].spent[7]) == ((100, None), (0, None))


def test_a_state_can_be_read_wherever_the_modules_of_its_classes_lie() -> None:
    definition = fl.define(PageViews)
    states = definition.init()
    states["home"].info = FloatSet([1.5])
    codec = Codec(definition, NAMES)
    packed = moved = codec.pack(states)
    for module in (b"flumina.state.keyed_map", b"flumina.engine.message_codec"):
        assert module in packed
        moved = moved.replace(module, b"flumina.a" + b"_" * (len(module) - 9))
    assert codec.unpack(moved)["home"].info == {1.5}
