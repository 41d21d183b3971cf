import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import flumina as fl
from flumina.errors import DefinitionError
from flumina.model.depends import Atom
from flumina.model.tag_set import UNKEYED, KeySet, TagSet
from flumina.program.base import define
from flumina.program.declared_state import DeclaredState
from flumina.state.compare import identical
from flumina.state.keyed_map import FloatSet, KeyedMap


def declared(program: type[fl.Program]) -> DeclaredState:
    found = program._declared
    assert found is not None
    return found


def unsafe(body: Any) -> list[str]:
    with pytest.raises(DefinitionError) as caught:
        body()
    assert {p.condition for p in caught.value.problems} == {"UNSAFE_FIELD"}
    return [f"{p.message} / {p.hint}" for p in caught.value.problems]


class Shop(fl.Program):
    sale = fl.Tag("v long", key="item string")
    price = fl.Tag("v long", key="item string")
    report = fl.Tag()
    depends = fl.depends((price, price), (price, sale), (report, report), (report, sale), (report, price))
    output = "n long"
    total = fl.Sum()
    sold = fl.PerKey(fl.Count())
    prices = fl.PerKey(fl.Replicated("long"))

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.sale:
            emit(state.prices[event.item])
            state.total += event.v
            state.sold[event.item] += 1
        elif event.tag is self.price:
            state.prices[event.item] = event.v
        else:
            emit(state.total)
            state.total = 0
            emit(len(state.sold))


def test_who_observes_what() -> None:
    assert declared(Shop).observers == {
        "total": (("report", False),),
        "sold": (("report", False),),
        "prices": (("sale", True), ("price", True)),
    }
    assert declared(Shop).adding == frozenset()


def test_each_field_goes_where_it_is_observed() -> None:
    shop = declared(Shop)
    state = shop.init()
    assert (state.total, dict(state.sold), dict(state.prices)) == (0, {}, {})
    state.total = 5
    state.sold.update(a=1, b=2)
    state.prices.update(a=10, b=20, c=30)
    left, right = shop.fork(
        state, TagSet({"sale": KeySet.of("a", "b")}), TagSet({"sale": KeySet.of("b"), "price": KeySet.of("d")})
    )
    assert (left.total, dict(left.sold), dict(left.prices)) == (5, {"a": 1, "b": 2}, {"a": 10, "b": 20, "c": 30})
    assert (right.total, dict(right.sold), dict(right.prices)) == (0, {}, {"b": 20})
    joined = shop.join(left, right)
    assert (joined.total, dict(joined.sold), dict(joined.prices)) == (5, {"a": 1, "b": 2}, {"a": 10, "b": 20, "c": 30})
    left, right = shop.fork(joined, TagSet({"sale": KeySet.of("a")}), TagSet({"report": UNKEYED}))
    assert (right.total, dict(right.sold)) == (5, {"a": 1, "b": 2})
    assert dict(right.prices) == {}


def test_tags_that_only_add() -> None:
    class P(fl.Program):
        a = fl.Tag()
        b = fl.Tag()
        c = fl.Tag()
        depends = fl.depends((b, b), (a, b))
        output = "n long"
        total = fl.Sum()

        def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
            if event.tag is self.a:
                state.total += 1
            elif event.tag is self.b:
                emit(state.total)

    assert declared(P).adding == {"a", "c"}


class TestUnsafe:
    def test_set_by_one_and_read_by_another(self) -> None:
        def make() -> None:
            class P(fl.Program):
                view = fl.Tag()
                change = fl.Tag()
                depends = fl.depends((change, change))
                output = "info string"
                info = fl.Replicated("string")

                def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
                    if event.tag is self.view:
                        emit(state.info)
                    else:
                        state.info = "x"

        (message,) = unsafe(make)
        assert "Replicated field 'info' is set by change at " in message
        assert " and read by view at " in message
        assert "but change does not depend on view" in message
        assert "/ add (change, view) to depends" in message

    def test_set_by_a_tag_that_does_not_depend_on_itself(self) -> None:
        def make() -> None:
            class P(fl.Program):
                change = fl.Tag()
                depends = fl.depends()
                info = fl.Replicated("string")

                def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
                    state.info = "x"

        (message,) = unsafe(make)
        assert "change does not depend on itself (change)" in message

    def test_two_readers_of_a_sum(self) -> None:
        def make() -> None:
            class P(fl.Program):
                a = fl.Tag()
                b = fl.Tag()
                depends = fl.depends((a, a), (b, b))
                output = "n long"
                total = fl.Sum()

                def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
                    emit(state.total)

        (message,) = unsafe(make)
        assert "a sum that independent events read must be Replicated" in message
        assert "say so with added_by=" in message

    def test_another_key_needs_always(self) -> None:
        def make() -> None:
            class P(fl.Program):
                inc = fl.Tag(key="k long")
                read = fl.Tag("other long", key="k long")
                depends = fl.depends((read, read), (read, inc))
                output = "n long"
                counts = fl.PerKey(fl.Count())

                def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
                    if event.tag is self.inc:
                        state.counts[event.key] += 1
                    else:
                        emit(state.counts[event.other])

        messages = unsafe(make)
        assert len(messages) == 2
        assert all("for all keys" in m and "under always=" in m for m in messages)

    def test_an_unkeyed_tag_of_a_keyed_program_with_a_function(self) -> None:
        """An unkeyed event has no key that could be the same, so it depends on all or it is unsafe."""

        def make(*, related: bool, declared: bool = False) -> type[fl.KeyedProgram]:
            class P(fl.KeyedProgram):
                inc = fl.Tag(key="k long", keys=[1, 2])
                clear = fl.Tag()
                total = fl.Sum(added_by=[inc], set_by=[clear]) if declared else fl.Sum()

                @staticmethod
                def depends(a: Atom, b: Atom) -> bool:
                    return related and (a.tag.key is None or b.tag.key is None)

                def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
                    state.total += 1

                def update_all(self, states: Any, event: fl.Event, emit: fl.Emit) -> None:
                    states.clear()

            return P

        make(related=True)
        make(related=True, declared=True)
        for declared in (False, True):
            messages = unsafe(lambda declared=declared: make(related=False, declared=declared))
            assert any("but clear does not depend on inc" in message for message in messages)

    def test_a_conflict_is_reported_once_for_a_pair_of_tags(self) -> None:
        def make() -> None:
            class P(fl.Program):
                a = fl.Tag()
                b = fl.Tag()
                depends = fl.depends((a, a), (b, b))
                total = fl.Sum()

                def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
                    state.total = state.total * 2 + state.total

        assert len(unsafe(make)) == 1


class TestOneKey:
    """Programs written for one key: the whole state belongs to the event's key."""

    def test_depends_by_key_is_enough(self) -> None:
        class P(fl.KeyedProgram):
            read = fl.Tag("other string", key="k long")
            depends = fl.depends((read, read))
            output = "n long"
            users = fl.PerKey(fl.Count())

            def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
                emit(state.users[event.other])
                state.users[event.other] = 0

        assert declared(P).observers == {"users": (("read", False),)}

    def test_a_map_within_a_key_goes_where_the_key_s_readers_are(self) -> None:
        class P(fl.KeyedProgram):
            inc = fl.Tag(key="k long")
            read = fl.Tag(key="k long")
            depends = fl.depends((read, read), (read, inc))
            output = "n long"
            counts = fl.PerKey(fl.Count())

            def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
                if event.tag is self.inc:
                    state.counts[event.key] += 1
                else:
                    emit(state.counts[event.key])
                    state.counts[event.key] = 0

        one = declared(P)
        state = one.init()
        state.counts[7] = 3
        left, right = one.fork(state, TagSet({"inc": UNKEYED}), TagSet({"read": UNKEYED}))
        assert (dict(left.counts), dict(right.counts)) == ({}, {7: 3})

    def test_a_declaration_overrules_what_update_all_could_do(self) -> None:
        class P(fl.KeyedProgram):
            inc = fl.Tag(key="k long")
            report = fl.Tag()
            depends = fl.depends((report, inc))
            total = fl.Sum(added_by=[inc])

            def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
                state.total += 1

            def update_all(self, states: Any, event: fl.Event, emit: fl.Emit) -> None: ...

        assert declared(P).observers == {"total": ()}


class TestHints:
    def test_tags_without_keys_are_told_nothing_of_keys(self) -> None:
        def body() -> None:
            class P(fl.Program):
                a = fl.Tag("v long")
                b = fl.Tag()
                depends = fl.depends((b, b))
                best = fl.Max("long")

                def update(self, state: Any, event: Any, emit: Any) -> None:
                    if event.tag is self.a:
                        state.best = max(state.best, event.v)

        (told,) = unsafe(body)
        assert "key" not in told
        assert "always=" not in told
        assert "state.best = fl.greatest(state.best, x)" in told

    def test_the_entry_of_the_own_key_is_written_with_brackets(self) -> None:
        def body() -> None:
            class P(fl.Program):
                a = fl.Tag("v long", key="k long")
                depends = fl.depends((a, a))
                low = fl.PerKey(fl.Min("long"))

                def update(self, state: Any, event: Any, emit: Any) -> None:
                    if event.key in state.low and state.low.get(event.key) > event.v:
                        state.low[event.key] = event.v

        (told,) = unsafe(body)
        assert "for all keys" in told
        assert "under always=" in told
        assert "write state.low[event.key] if only" in told


def test_whether_a_state_was_touched() -> None:
    class P(fl.Program):
        a = fl.Tag("v long")
        depends = fl.depends((a, a))
        output = "n long"
        total = fl.Sum()
        info = fl.Replicated("string", "x")

        def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
            state.total, state.info = event.v, "y"

    untouched = declared(P).untouched
    assert untouched is not None
    state = declared(P).init()
    assert untouched(state)
    for name, value in (("total", 0.0), ("total", np.zeros(3)), ("info", None), ("more", 1)):
        touched = declared(P).init()
        touched.__dict__[name] = value
        assert not untouched(touched), name
    assert untouched(declared(P).init()), "what all share has stayed as it was"
    assert declared(Shop).untouched is None, "its maps can be changed in place"
    assert declared(Shop).init().sold is not declared(Shop).init().sold


def test_entries_under_what_no_key_column_holds_are_forked_to_one_side() -> None:
    class Days(fl.Program):
        add = fl.Tag("day date NOT NULL", key="k long")
        look = fl.Tag(key="k long")
        show = fl.Tag()
        depends = fl.depends((look, look), (look, show), (show, show), (show, add), always=[(look, add)])
        output = "k string, n long"
        n = fl.PerKey(fl.Count())

        def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
            if event.tag is self.add:
                state.n[event.key] += 1
                state.n[event.day] += 1
            elif event.tag is self.look:
                emit(str(event.key), state.n[event.key])
            else:
                for key in state.n:
                    emit(str(key), state.n[key])

    state_of = declared(Days)
    day, state = dt.date(2020, 1, 1), state_of.init()
    state.n[1], state.n[2], state.n[day] = 3, 4, 5
    one, other = (TagSet({"look": KeySet.of(key)}) for key in (1, 2))
    left, right = state_of.fork(state, one, other)
    assert dict(left.n) | dict(right.n) == {1: 3, 2: 4, day: 5}
    assert (dict(right.n), left.n[day]) == ({2: 4}, 5)
    assert dict(state_of.join(left, right).n) == {1: 3, 2: 4, day: 5}
    assert fl.check(Days, examples=50).ok


class Everything(fl.Program):
    """A field of every kind, all of them set by one tag."""

    put = fl.Tag()
    depends = fl.depends((put, put))
    output = "n long"
    total = fl.Sum("double")
    exact = fl.Sum("decimal(10,2)")
    count = fl.Count()
    most = fl.Max("double")
    seen = fl.Set("double")
    rule = fl.Replicated("long", 7)
    both = fl.Tuple(fl.Sum("double"), fl.Min())
    of_key = fl.PerKey(fl.Sum("double"))

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        state.total, state.exact, state.count, state.most = 0.0, 0, 0, None
        state.seen, state.rule, state.both, state.of_key["a"] = set(), 7, (0.0, None), 0.0


def test_a_state_is_initial_if_nobody_can_tell_it_from_a_new_one() -> None:
    """What is asked field by field is what comparing with a new state says."""
    definition = define(Everything)
    assert definition.is_initial is not None
    values: dict[str, list[object]] = {
        "total": [0.0, -0.0, 0, 1e-300, float("nan")],
        "exact": [Decimal(0), Decimal("0.00"), Decimal("0.01"), 0],
        "count": [0, False, 1, -1],
        "most": [None, 0.0],
        "seen": [FloatSet(), FloatSet([0.0]), set()],
        "rule": [7, 7.0, None],
        "both": [(0.0, None), (-0.0, None), (0.0, 0), [0.0, None]],
        "of_key": [KeyedMap(fl.Sum("double"), {"a": 0.0}), KeyedMap(fl.Sum("double"), {"a": -0.0})],
    }
    found = []
    for name, choices in values.items():
        for value in choices:
            state = definition.init()
            setattr(state, name, value)
            found.append(definition.is_initial(state))
            assert found[-1] == identical(state, definition.init()), (name, value)
    assert {True, False} == set(found)
    more = definition.init()
    more.another = 1
    assert not definition.is_initial(more)
    assert not definition.is_initial("something else")


def charge(state: fl.State, event: fl.Event) -> None:
    state.total[event.key] += event.v


def test_a_state_that_is_given_away_is_told_as_such() -> None:
    """Advice for the line itself would not help: it is right, only nobody follows it there."""
    with pytest.raises(fl.DefinitionError) as caught:

        class Given(fl.Program):
            pay = fl.Tag("v long", key="m string")
            depends = fl.depends()
            output = "n long"
            total = fl.PerKey(fl.Sum())

            def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
                charge(state, event)

    assert "the whole state is given away for pay" in str(caught.value)
    assert "or write state.total[event.key]" not in str(caught.value)
