import time
from typing import Any

import pytest

import flumina as fl
from flumina.apps import KeyCounterMap, PageViews, ValueBarrier
from flumina.errors import UsageError, UserCodeError
from flumina.plan import StateSize, sample_states


class Notes(fl.KeyedProgram):
    """The last text of each key."""

    note = fl.Tag("text string NOT NULL", key="k long")
    peek = fl.Tag(key="k long")
    depends = fl.depends((note, note), (note, peek))
    output = "text string"
    text = fl.Replicated("string", "")

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.note:
            state.text = event.text
        else:
            emit(state.text)


class Slow(Notes):
    """Takes ten milliseconds an event."""

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        time.sleep(0.01)
        if event.tag is self.note:
            state.text = event.text
        else:
            emit(state.text)


def notes(count: int, keys: int, size: int) -> list[fl.Stream]:
    texts = [chr(97 + n % 20) * size + str(n % keys) for n in range(count)]  # pickle stores equal objects once
    columns = {"ts": range(count), "k": [n % keys for n in range(count)], "text": texts}
    return [fl.Stream("n", Notes.note, columns)]


@pytest.mark.parametrize("size", [100, 5000])
def test_the_size_of_a_key_is_that_of_what_it_holds(size: int) -> None:
    found = sample_states(Notes, notes(400, 200, size))
    assert found.keys == 200
    assert size < found.key_bytes < 2 * size + 100
    assert found.rest_bytes == 0


def test_keys_beyond_the_sample_are_extrapolated() -> None:
    found = sample_states(Notes, notes(1000, 1000, 10), events=100, distinct=50_000.0)
    assert found.keys == pytest.approx(50_000)
    assert found.bytes == pytest.approx(50_000 * found.key_bytes)


def test_keys_that_are_merely_looked_up_do_not_count() -> None:
    looked = fl.Stream("p", Notes.peek, {"ts": range(100), "k": range(100)})
    found = sample_states(Notes, [*notes(10, 10, 10), looked], distinct=1000.0)
    assert found.keys == pytest.approx(100)


def test_maps_inside_a_state_are_keyed_and_the_rest_is_not() -> None:
    stream = fl.Stream("i", KeyCounterMap.inc, {"ts": range(300), "k": range(300)})
    found = sample_states(KeyCounterMap, [stream])
    assert found.keys == 300
    assert 2 < found.key_bytes < 40
    assert found.rest_bytes < 400
    total = sample_states(ValueBarrier, [fl.Stream("v", ValueBarrier.value, {"ts": range(9), "v": range(9)})])
    assert total.keys == total.key_bytes == 0
    assert 0 < total.rest_bytes < 400


def test_the_sample_is_bounded_in_events_and_in_time() -> None:
    streams = [fl.Stream("n", Slow.note, {"ts": range(1000), "k": range(1000), "text": ["x"] * 1000})]
    assert sample_states(Slow, streams, events=7, seconds=60.0).keys == 7
    assert 0 < sample_states(Slow, streams, seconds=0.02).keys < 1000


def test_events_of_all_streams_are_folded_in_order() -> None:
    views = fl.Stream("v", PageViews.view, {"ts": [5, 6], "page": ["a", "b"], "user": [1, 2]})
    changes = fl.Stream("c", PageViews.change, {"ts": [9, 1], "page": ["b", "a"], "info": ["z", "y"]}, sorted=False)
    assert sample_states(PageViews, [views, changes]).keys == 2
    assert sample_states(PageViews, [views, changes], events=2).keys == 1  # the change at 1 and the view at 5
    assert sample_states(PageViews, [fl.Stream("v", PageViews.view, [])]).keys == 0


def test_what_update_raises_is_raised() -> None:
    class Fails(Notes):
        def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> None:
            raise ZeroDivisionError

    with pytest.raises(UserCodeError):
        sample_states(Fails, [fl.Stream("n", Fails.note, {"ts": [1], "k": [1], "text": ["x"]})])


def test_sizes_that_are_none() -> None:
    for bad in (-1.0, float("nan"), True, "many"):
        with pytest.raises(UsageError, match="STATE_SIZE"):
            StateSize(keys=bad)  # type: ignore[arg-type]
