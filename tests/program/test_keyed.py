import pickle
import random
from typing import Any

import pytest

import flumina as fl
from flumina.errors import UserCodeError
from flumina.model.batch import Batch
from flumina.model.emit import Emit, rows
from flumina.model.tag_set import UNKEYED, KeySet, TagSet
from flumina.program.base import define
from flumina.program.definition import fold, fold_batch
from flumina.state.compare import copied
from flumina.state.keyed_map import KeyedMap


class Counter(fl.KeyedProgram):
    inc = fl.Tag("v long NOT NULL", key="k long")
    read = fl.Tag(key="k long")
    report = fl.Tag()
    clear = fl.Tag()
    depends = fl.depends(
        (read, read),
        (read, inc),
        (report, inc),
        (report, read),
        (report, report),
        (report, clear),
        (clear, inc),
        (clear, read),
        (clear, clear),
    )
    output = "k long, n long"
    total = fl.Sum()

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.inc:
            state.total += event.v
        else:
            emit(event.k, state.total)
            state.total = 0

    def update_batch(self, state: fl.State, batch: fl.Batch, emit: fl.Emit) -> None:
        if batch.tag is self.inc:
            state.total += int(batch["v"].sum())
        else:
            emit.columns(batch.keys, [state.total] + [0] * (len(batch) - 1))
            state.total = 0

    def update_all(self, states: Any, event: fl.Event, emit: fl.Emit) -> Any:
        if event.tag is self.clear:
            return {}
        emit(None, len(states))
        for key, state in sorted(states.items()):
            emit(key, state.total)
        return None


DEFINITION = fl.define(Counter)
KIND = DEFINITION.kinds["States"]


def state_of(**totals: int) -> KeyedMap:
    states: KeyedMap = DEFINITION.init()
    for key, total in totals.items():
        states[int(key[1:])].total = total
    return states


def totals(states: KeyedMap) -> dict[Any, int]:
    return {key: state.total for key, state in states.items()}


def events(text: str) -> list[fl.Event]:
    """``+1 +2 ?1 ! 0``: increments and reads of keys, a report, a clearing."""
    made = []
    for t, word in enumerate(text.split()):
        fixed: dict[str, Any] = {"ts": t, "stream": "s", "seq": t}
        if word == "!":
            made.append(Counter.report.event(**fixed))
        elif word == "0":
            made.append(Counter.clear.event(**fixed))
        elif word[0] == "+":
            made.append(Counter.inc.event(k=int(word[1:]), v=1, **fixed))
        else:
            made.append(Counter.read.event(k=int(word[1:]), **fixed))
    return made


def run(text: str) -> tuple[list[tuple[Any, ...]], KeyedMap]:
    emit = Emit(DEFINITION.outputs)
    states = fold(KIND, DEFINITION.init(), events(text), emit)
    return [row.values for row in rows(emit.drain())], states


def test_every_key_has_a_state_of_its_own() -> None:
    out, states = run("+1 +1 +2 ?1 +1 ?3")
    assert out == [(1, 2), (3, 0)]
    assert totals(states) == {1: 1, 2: 1}


def test_an_unkeyed_tag_sees_all_keys_that_hold_anything() -> None:
    """Key 1 is back at its initial state and key 3 was only read: neither can be told from a key never seen."""
    out, _ = run("+1 +2 ?1 ?3 !")
    assert out[2:] == [(None, 1), (2, 1)]


def test_update_all_may_replace_all_states_even_by_none() -> None:
    out, states = run("+1 +2 0 ! +1 ?1")
    assert out == [(None, 0), (1, 1)]
    assert isinstance(states, KeyedMap)


@pytest.mark.parametrize("seed", range(20))
def test_batches_agree_with_single_events(seed: int) -> None:
    rng = random.Random(seed)
    words = [rng.choice(["!", "0", *(f"{c}{k}" for c in "++++?" for k in range(3))]) for _ in range(40)]
    inputs = events(" ".join(words))
    one, other = Emit(DEFINITION.outputs), Emit(DEFINITION.outputs)
    expected = fold(KIND, DEFINITION.init(), inputs, one)
    states = DEFINITION.init()
    for start in range(0, 40, 7):
        states = fold_batch(KIND, states, Batch.of_events(inputs).slice(start, start + 7), other)
    assert states == expected
    assert sorted(map(repr, rows(other.drain()))) == sorted(map(repr, rows(one.drain())))
    assert (other.event, other.batch) == (None, None)


class TestFork:
    def fork(self, states: KeyedMap, left: TagSet, right: TagSet) -> tuple[dict[Any, int], dict[Any, int]]:
        one, other = DEFINITION.forks[0].function(states, left, right)
        halves = totals(one), totals(other)
        joined = DEFINITION.joins[0].function(one, other)
        assert totals(joined) == {
            key: halves[0].get(key, 0) + halves[1].get(key, 0) for key in {**halves[0], **halves[1]}
        }
        return halves

    def test_a_key_goes_whole_to_the_side_that_has_it_and_to_the_left_if_none_has(self) -> None:
        left, right = TagSet({"inc": KeySet.of(1)}), TagSet({"inc": KeySet.of(2), "read": KeySet.of(3)})
        assert self.fork(state_of(_1=1, _2=2, _3=3, _4=4), left, right) == ({1: 1, 4: 4}, {2: 2, 3: 3})

    def test_a_key_of_both_sides_is_divided_by_the_program_for_one_key(self) -> None:
        left, right = TagSet({"inc": KeySet.of(1)}), TagSet({"inc": KeySet.of(1)})
        assert self.fork(state_of(_1=5), left, right) == ({1: 5}, {})
        right = TagSet({"read": KeySet.of(1)})
        assert self.fork(state_of(_1=5), left, right) == ({}, {1: 5})

    def test_a_side_with_an_unkeyed_tag_has_all_keys(self) -> None:
        left, right = TagSet({"inc": KeySet.of(1)}), TagSet({"report": UNKEYED})
        assert self.fork(state_of(_1=1, _2=2), left, right) == ({}, {1: 1, 2: 2})


def test_join_of_maps_of_any_size_keeps_sides() -> None:
    class Sides(fl.KeyedProgram):
        a = fl.Tag(key="k long")
        depends = fl.depends()

        def init(self) -> str:
            return ""

        def update(self, state: str, event: fl.Event, emit: fl.Emit) -> str:
            return state + "x"

        def fork(self, state: str, left: fl.TagSet, right: fl.TagSet) -> tuple[str, str]:
            return state, ""

        def join(self, left: str, right: str) -> str:
            return f"{left}{right}"

    definition = fl.define(Sides)
    join = definition.joins[0].function
    lifted = definition.lifted
    assert lifted is not None
    extras: list[dict[Any, str]] = [{}, {2: "l", 3: "l"}]
    for extra in extras:
        left, right = KeyedMap(lifted, {1: "l", **extra}), KeyedMap(lifted, {1: "r", 4: "r"})
        assert dict(join(left, right)) == {1: "lr", 4: "r", **extra}
    states = definition.init()
    definition.kinds["States"].update(states, Sides.a.event(k=7), fl.Emit({}))
    assert dict(states) == {7: "x"}


def test_the_definition_is_lifted() -> None:
    assert DEFINITION.lifted is not None
    assert DEFINITION.lifted.one.initial == "State"
    assert DEFINITION.lifted.kind.name == "State"
    assert KIND.predicate == DEFINITION.everything
    assert DEFINITION.init() == {} or not DEFINITION.init()
    assert DEFINITION.tags["inc"] is Counter.inc


def test_an_exception_names_the_user_s_method_and_event() -> None:
    class Wrong(Counter):
        def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
            state.total += 1 // event.v

        def update_batch(self, state: fl.State, batch: fl.Batch, emit: fl.Emit) -> None:
            raise LookupError

        def update_all(self, states: Any, event: fl.Event, emit: fl.Emit) -> None:
            raise ValueError("no")

    definition = fl.define(Wrong)
    kind = definition.kinds["States"]
    zero = Counter.inc.event(k=1, v=0, stream="s")
    with pytest.raises(UserCodeError, match=r"Wrong\.update raised ZeroDivisionError.* on inc\(k=1, v=0\)@0 s#0"):
        fold(kind, definition.init(), [zero], Emit(definition.outputs))
    with pytest.raises(UserCodeError, match=r"Wrong\.update_batch raised LookupError"):
        fold_batch(kind, definition.init(), Batch.of_events([zero]), Emit(definition.outputs))
    report = Batch.of_events([Counter.report.event(ts=4, stream="s")])
    with pytest.raises(UserCodeError, match=r"Wrong\.update_all raised ValueError: no on report\(\)@4"):
        fold_batch(kind, definition.init(), report, Emit(definition.outputs))


def test_many_keys_with_few_events_are_folded_one_by_one_and_the_others_as_batches() -> None:
    calls: list[int] = []
    note = calls.append

    class Counted(Counter):
        def update_batch(self, state: fl.State, batch: fl.Batch, emit: fl.Emit) -> None:
            note(len(batch))
            Counter.update_batch(self, state, batch, emit)

    keys = [*range(100), *[7] * 40]
    events = [Counter.inc.event(ts=n, k=key, v=n, stream="s", seq=n) for n, key in enumerate(keys)]
    definition = fl.define(Counted)
    kind = definition.kinds["States"]
    one, other = Emit(definition.outputs), Emit(definition.outputs)
    by_batch = fold_batch(kind, definition.init(), Batch.of_events(events), one)
    assert calls == [41]
    assert by_batch == fold(kind, definition.init(), events, other)


class Viewed(fl.KeyedProgram):
    view = fl.Tag("to long", key="k long")  # looks at the state, and sets it where ``to`` is not 0
    depends = fl.depends((view, view))
    output = "k long, n long"
    info = fl.Replicated("long", 1000)

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        emit(event.k, state.info)
        if event.to:
            state.info = event.to

    def update_batch(self, state: fl.State, batch: fl.Batch, emit: fl.Emit) -> None:
        raise AssertionError("every key has few events")


class ViewedByHand(Viewed):  # the same, with a state of which nobody can tell whether it was changed
    info = None  # type: ignore[assignment]

    def init(self) -> list[int]:
        return [1000]

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        emit(event.k, state[0])
        if event.to % 2:
            return [event.to]
        if event.to:
            state[0] = event.to
        return None

    def fork(self, state: list[int], left: TagSet, right: TagSet) -> tuple[list[int], list[int]]:
        return (state, [1000]) if right.is_empty() else ([1000], state)

    def join(self, left: list[int], right: list[int]) -> list[int]:
        return right if left == [1000] else left


@pytest.mark.parametrize("program", [Viewed, ViewedByHand])
def test_an_initial_state_that_was_looked_at_is_that_of_no_other_key(program: type[fl.KeyedProgram]) -> None:
    numbers = random.Random(3)
    definition = fl.define(program)
    kind = definition.kinds["States"]
    one, other = Emit(definition.outputs), Emit(definition.outputs)
    by_batch, by_event = definition.init(), definition.init()
    changed = set()
    for start in range(0, 2000, 200):
        tos = [numbers.choice([0, 0, 0, 1000, n]) for n in range(start + 1, start + 201)]
        tag = definition.tags["view"]
        events = [
            tag.event(ts=n, k=numbers.randrange(400), to=to, stream="s", seq=n) for n, to in enumerate(tos, start)
        ]
        changed |= {event.key for event in events if event.to}
        by_batch = fold_batch(kind, by_batch, Batch.of_events(events), one)
        by_event = fold(kind, by_event, events, other)
    assert rows(one.items) == rows(other.items)
    assert by_batch == by_event
    assert 0 < len(changed) < 400
    held = set(dict.keys(by_batch))
    assert held == changed if program is Viewed else held > changed


def test_keys_that_are_only_looked_at_cost_no_memory() -> None:
    definition = fl.define(Viewed)
    events = [Viewed.view.event(ts=n, k=n, to=0, stream="s", seq=n) for n in range(500)]
    states = fold_batch(
        definition.kinds["States"], definition.init(), Batch.of_events(events), Emit(definition.outputs)
    )
    assert not dict.keys(states)


def test_a_one_key_fork_that_returns_no_two_states() -> None:
    class Odd(fl.KeyedProgram):
        seen = fl.Tag(key="k long")
        asked = fl.Tag(key="k long")
        depends = fl.depends((asked, asked), (asked, seen))
        output = "n long"

        def init(self) -> int:
            return 0

        def update(self, state: int, event: fl.Event, emit: fl.Emit) -> int:
            return state + 1

        def fork(self, state: int, left: TagSet, right: TagSet) -> Any:
            return state

        def join(self, left: int, right: int) -> int:
            return left + right

    definition = fl.define(Odd)
    states, everything = definition.init(), definition.everything
    states[3] = 5
    with pytest.raises(UserCodeError, match=r"Odd\.fork returned 5: a fork has to return two[\s\S]*test_keyed.py:"):
        definition.forks[0].split(states, everything, everything)
    assert "Odd.fork returned" in str(fl.check(Odd, examples=50))


class Fees(fl.KeyedProgram):
    fee = fl.Tag("amount double NOT NULL", key="user string")
    show = fl.Tag(key="user string")
    depends = fl.depends((show, show), (show, fee))
    output = "user string, total double"
    tolerance = 0.01
    total = fl.Sum("double")

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.fee:
            state.total += event.amount
        else:
            emit(event.user, state.total)


def test_small_amounts_are_not_lost_whatever_the_tolerance() -> None:
    definition = define(Fees)
    states = definition.init()
    sides = TagSet({"fee": KeySet.everything()}), TagSet({"show": KeySet.everything()})
    for _ in range(1000):
        states["a"].total += 0.008
        states = pickle.loads(pickle.dumps(copied(states)))  # noqa: S301 -- our own
        left, right = definition.forks[0].split(states, *sides)
        left["a"].total += 0.008
        states = definition.joins[0].unite(left, right)
    assert states["a"].total == pytest.approx(16.0)
    assert list(states) == ["a"]
