from flumina.apps import ValueBarrier
from flumina.plan import Source, bind, make_plan
from flumina.plan.placement import choose_places, site_of


def test_a_root_with_two_leaves_needs_two_places() -> None:
    plan = make_plan(
        ValueBarrier, [Source("v", {"value": 100}, parts=2), Source("b", {"barrier": 1})], workers=2, optimiser="greedy"
    )
    assert len(plan) == 3
    assert plan.places == ("slot0", "slot1")


def test_places_are_hosts_where_those_are_known() -> None:
    sources = [Source("v", {"value": 100}, parts=2, hosts=["A", "B"]), Source("b", {"barrier": 1}, hosts="C")]
    plan = make_plan(ValueBarrier, sources, workers=2, optimiser="greedy")
    assert [worker.place for worker in plan.workers] == ["C", "A", "B"]
    site = site_of(plan.root, bind(ValueBarrier, sources))
    choose_places(site)
    assert [below.place for below in site.walk()] == ["C", "A", "B"]
    partly = [Source("v", {"value": 100}, parts=2, hosts=["A", None]), Source("b", {"barrier": 1})]
    plan = make_plan(ValueBarrier, partly, workers=2, optimiser="greedy")
    assert [worker.place for worker in plan.workers] == ["A", "A", "A"]
