"""Handlers of tags and typed events mean what ``update`` with DDL means."""

from dataclasses import dataclass
from typing import Any

import pytest

import flumina as fl
from flumina.check.constants import constants
from flumina.checkpoint.fingerprint import program_fingerprint
from flumina.local import run
from flumina.program.base import define


@dataclass
class Payment:
    ts: int
    account: str
    cents: int = 0

    @property
    def euros(self) -> float:
        return self.cents / 100


@dataclass
class Audit:
    auditor: str | None


class Accounts(fl.Program):
    payment = fl.Tag(Payment, key="account")
    audit = fl.Tag(Audit)
    depends = fl.depends((audit, audit), (audit, payment))
    output = {"large": "account string, ts long, euros double", "audited": "auditor string, cents long"}
    total = fl.Sum("long")

    @fl.on(payment)
    def pay(self, state: fl.State, event: Payment, emit: fl.Emit) -> None:
        state.total += event.cents
        if event.cents > 777:
            emit.large(event.account, event.ts, event.euros)

    @fl.on(audit)
    def report(self, state: fl.State, event: Audit, emit: fl.Emit) -> None:
        emit.audited(event.auditor, state.total)
        state.total = 0


class Plain(fl.Program):
    payment = fl.Tag("cents long NOT NULL", key="account string")
    audit = fl.Tag("auditor string")
    depends = fl.depends((audit, audit), (audit, payment))
    output = {"large": "account string, ts long, euros double", "audited": "auditor string, cents long"}
    total = fl.Sum("long")

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.payment:
            state.total += event.cents
            if event.cents > 777:
                emit.large(event.account, event.ts, event.cents / 100)
        else:
            emit.audited(event.auditor, state.total)
            state.total = 0


def streams(program: Any) -> list[fl.Stream]:
    payments = [{"ts": t, "account": "ab"[t % 2], "cents": 100 * t} for t in range(1, 40)]
    audits = [{"ts": t, "auditor": None if t == 20 else "eve"} for t in (10, 20, 30)]
    return [fl.Stream("audits", program.audit, audits), fl.Stream("payments", program.payment, payments)]


def rows(result: Any) -> dict[str, list[str]]:
    return {name: sorted(map(str, table.to_pylist())) for name, table in result.outputs.items()}


def test_the_definition_is_that_of_a_plain_program() -> None:
    typed, plain = define(Accounts), define(Plain)
    for name, tag in plain.tags.items():
        assert typed.tags[name].schema == tag.schema
    assert typed.adding == plain.adding
    fingerprints = program_fingerprint(Accounts), program_fingerprint(Plain)
    for part in ("tags", "depends", "state", "observers", "outputs"):
        assert fingerprints[0][part] == fingerprints[1][part]
    assert set(fingerprints[0]["code"]) == {"pay", "report"}
    assert 777 in constants(typed)[int]


def test_it_obeys_the_laws_and_runs_as_the_plain_program() -> None:
    assert fl.check(Accounts, examples=30).ok
    expected = rows(fl.spec(Plain, streams(Plain)))
    assert len(expected["audited"]) == 3
    assert rows(fl.spec(Accounts, streams(Accounts))) == expected
    assert rows(run(Accounts, streams(Accounts), workers=2)) == expected


def test_events_are_instances_of_the_dataclass() -> None:
    event = Accounts.payment.event(ts=3, account="a", cents=250)
    assert isinstance(event, Payment)
    assert (event.ts, event.account, event.cents, event.euros) == (3, "a", 250, 2.5)
    assert event.key == "a"  # it is an event, too


class Meter(fl.KeyedProgram):
    load = fl.Tag("house int, watts long", key="house")
    fix = fl.Tag("watts long", key="house int")
    hour = fl.Tag()
    depends = fl.depends((hour, hour), (hour, load), (hour, fix))
    output = "house int, watts long"
    watts = fl.Sum("long")

    @fl.on(load, fix)
    def add(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        state.watts += event.watts or 0

    @fl.on(hour)
    def report(self, states: dict[int, fl.State], event: fl.Event, emit: fl.Emit) -> None:
        for house, state in states.items():
            emit(house, state.watts)
            state.watts = 0


def test_a_handler_of_a_tag_without_key_gets_all_states() -> None:
    assert fl.check(Meter, examples=30).ok
    loads = [{"ts": t, "house": t % 2, "watts": t} for t in range(1, 5)]
    given = [
        fl.Stream("loads", Meter.load, loads),
        fl.Stream("fixes", Meter.fix, [{"ts": 5, "house": 1, "watts": 100}]),
        fl.Stream("hours", Meter.hour, [{"ts": 9}]),
    ]
    assert sorted((r["house"], r["watts"]) for r in fl.spec(Meter, given).output.to_pylist()) == [(0, 6), (1, 104)]


def test_mistakes_are_found_together() -> None:
    with pytest.raises(fl.DefinitionError) as error:

        class Wrong(fl.Program):
            a = fl.Tag("v long")
            b = fl.Tag("w long")
            c = fl.Tag()
            depends = fl.depends()
            output = "v long"
            total = fl.Sum("long")

            @fl.on(a)
            def one(self, state: Any, event: Any, emit: Any) -> None:
                emit(event.w)

            @fl.on(a, Meter.load)
            def two(self, state: Any, event: Any, emit: Any) -> None:
                self.seen = event.v

            @fl.on(c)  # type: ignore[arg-type] # that is the mistake
            def three(self, state: Any, event: Any) -> None: ...

            def update(self, state: Any, event: Any, emit: Any) -> None: ...

    found = {problem.condition: problem for problem in error.value.problems}
    assert set(found) == {
        "BAD_SIGNATURE",
        "HIDDEN_STATE",
        "MIXED_UPDATE",
        "NO_HANDLER",
        "TWO_HANDLERS",
        "UNDECLARED_TAG",
        "UNKNOWN_COLUMN",
    }
    assert found["NO_HANDLER"].hint == "mark one with @fl.on(b)"
    assert "got event.w in one" in found["UNKNOWN_COLUMN"].message


def test_a_dependence_that_a_handler_needs_is_missed() -> None:
    with pytest.raises(fl.DefinitionError, match="UNSAFE_FIELD"):

        class Unsafe(fl.Program):
            add = fl.Tag("v long")
            read = fl.Tag()
            depends = fl.depends((read, read))
            output = "v long"
            total = fl.Sum("long")

            @fl.on(add)
            def one(self, state: Any, event: Any, emit: Any) -> None:
                state.total += event.v

            @fl.on(read)
            def two(self, state: Any, event: Any, emit: Any) -> None:
                emit(state.total)


def test_a_dataclass_with_slots_is_refused() -> None:
    @dataclass(slots=True)
    class Slotted:
        v: int

    (mistake,) = fl.Tag(Slotted).mistakes
    assert mistake[0] == "BAD_SCHEMA"
    assert mistake[2] == "leave out slots=True"


def test_on_takes_tags() -> None:
    with pytest.raises(fl.UsageError, match="takes tags"):
        fl.on("payment")  # type: ignore[call-overload]
