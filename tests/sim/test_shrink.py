"""Failing runs become short ones, and readable."""

from __future__ import annotations

import pytest

from flumina.apps import ValueBarrier
from flumina.program.base import define
from flumina.runtime.inner import Inner
from flumina.runtime.topology import ProtocolOptions
from flumina.sim.decisions import Decisions
from flumina.sim.failure import Failure, examine, find
from flumina.sim.trial import Setting, trial


@pytest.fixture
def failure(monkeypatch: pytest.MonkeyPatch) -> Failure:
    monkeypatch.setattr(Inner, "may_coalesce", lambda _: True)
    setting = Setting(define(ValueBarrier), options=ProtocolOptions(hand_over=False))
    failing = find([trial(seed, setting) for seed in range(100)])
    assert failing is not None
    return examine(failing)


def test_events_faults_and_choices_become_few(failure: Failure) -> None:
    first, last = failure.found, failure.shortest
    assert len(first.trial.case.in_order) == 60
    assert len(last.trial.case.in_order) <= 4
    assert not last.trial.crashes
    assert len(last.choices) < len(first.choices)


def test_the_shortest_run_fails_every_time(failure: Failure) -> None:
    last = failure.shortest
    for _ in range(3):
        with pytest.raises(type(last.error)) as caught:
            last.trial.run(Decisions(given=last.choices))
        assert str(caught.value) == str(last.error)


def test_the_text_has_all_that_is_needed(failure: Failure) -> None:
    text = str(failure)
    assert f"repeat with: flumina sim --seed {failure.found.trial.seed}" in text
    for part in (
        "ValueBarrier",
        "workers",
        "ProtocolOptions(",
        "Conditions(",
        "shortest schedule: [",
        "frontier",
        "fork state",
    ):
        assert part in text


def test_nothing_is_found_where_nothing_fails() -> None:
    assert find([trial(seed, Setting(events=10)) for seed in range(8)]) is None
