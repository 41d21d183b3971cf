import pytest

import flumina as fl
from flumina.apps import Fraud, KeyCounter, ValueBarrier
from flumina.errors import UsageError
from flumina.plan import CostModel, StreamRates, make_plan, measure, with_model


def test_costs_of_a_program_come_from_its_own_functions() -> None:
    streams = [
        fl.Stream("t", Fraud.transaction, {"ts": range(5000), "v": range(5000)}),
        fl.Stream("r", Fraud.rule, {"ts": range(50), "r": range(50)}),
    ]
    model = measure(Fraud, streams, model=CostModel(hop=7.0))
    assert set(model.by_tag) == {"transaction", "rule"}
    assert 0 < model.by_tag["transaction"] < model.by_tag["rule"]
    assert 0 < model.fork < 1e-3
    assert 0 < model.join < 1e-3
    assert model.hop == 7.0
    assert model.event_bytes == pytest.approx(24)
    plan = make_plan(
        Fraud, [StreamRates("t", {"transaction": 10}), StreamRates("r", {"rule": 1})], optimizer=with_model(model)
    )
    assert len(plan) == 1


def test_of_a_keyed_program_one_key_travels() -> None:
    stream = fl.Stream("i", KeyCounter.inc, {"ts": range(3000), "k": range(3000)})
    model = measure(KeyCounter, [stream])
    assert model.state_bytes < 1000
    assert model.fork < 1e-3


def test_nothing_to_measure_with() -> None:
    with pytest.raises(UsageError, match="NO_STREAMS"):
        measure(ValueBarrier, [])
    with pytest.raises(UsageError, match="NO_EVENTS"):
        measure(ValueBarrier, [fl.Stream("b", ValueBarrier.barrier, [])])
