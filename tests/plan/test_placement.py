from flumina.apps import ValueBarrier
from flumina.plan import StreamRates, bind, make_plan
from flumina.plan.placement import choose_places, site_of


def test_a_root_with_two_leaves_needs_two_places() -> None:
    plan = make_plan(
        ValueBarrier,
        [StreamRates("v", {"value": 100}, parts=2), StreamRates("b", {"barrier": 1})],
        workers=2,
        optimizer="greedy",
    )
    assert len(plan) == 3
    assert plan.places == ("slot0", "slot1")


def test_places_are_hosts_where_those_are_known() -> None:
    sources = [StreamRates("v", {"value": 100}, parts=2, hosts=["A", "B"]), StreamRates("b", {"barrier": 1}, hosts="C")]
    plan = make_plan(ValueBarrier, sources, workers=2, optimizer="greedy")
    assert [worker.place for worker in plan.workers] == ["C", "A", "B"]
    site = site_of(plan.root, bind(ValueBarrier, sources))
    choose_places(site)
    assert [below.place for below in site.walk()] == ["C", "A", "B"]
    partly = [StreamRates("v", {"value": 100}, parts=2, hosts=["A", None]), StreamRates("b", {"barrier": 1})]
    plan = make_plan(ValueBarrier, partly, workers=2, optimizer="greedy")
    assert [worker.place for worker in plan.workers] == ["A", "A", "A"]
