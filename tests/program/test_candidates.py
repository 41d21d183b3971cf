"""Keys for which a tick has something to do."""

from flumina.model.tag_set import KeySet
from flumina.program.base import define
from flumina.program.candidates import Candidates
from tests.program.tick_programs import Sessions, Tumbling


def test_only_keys_that_changed_are_looked_at() -> None:
    definition = define(Tumbling)
    assert definition.ticking is not None
    states = definition.init()
    for key in range(100):
        states[key].loads = 1
    candidates = Candidates(definition.ticking.rules["hour"], KeySet.everything())
    candidates.add([3, 5, 200])
    candidates.look(states)
    assert set(candidates.pop(10)) == {3, 5}
    states[3].loads = 0
    candidates.look(states)
    assert candidates.pop(20) == [5]


def test_due_keys_come_when_they_are_due() -> None:
    definition = define(Sessions)
    assert definition.ticking is not None
    states = definition.init()
    candidates = Candidates(definition.ticking.rules["quiet"], KeySet.everything())
    for key, until in (("a", 30), ("b", 10), ("c", 20)):
        states[key].until, states[key].clicks = until, 1
    candidates.add("abc")
    candidates.look(states)
    assert candidates.first == 10
    states["b"].until = 40
    candidates.add("b")
    candidates.look(states)
    assert candidates.first == 20
    assert candidates.pop(30) == ["c", "a"]
    candidates.look(states)
    assert candidates.first == 20, "they are looked at again: nothing has changed them"


def test_keys_of_other_workers_do_not_count() -> None:
    definition = define(Tumbling)
    assert definition.ticking is not None
    states = definition.init()
    states[1].loads = states[2].loads = 1
    candidates = Candidates(definition.ticking.rules["hour"], KeySet.of(2))
    candidates.add([1, 2])
    candidates.look(states)
    assert candidates.pop(0) == [2]
