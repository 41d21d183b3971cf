import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

import flumina as fl
from flumina.apps import KeyCounter, PageViews, ValueBarrier
from flumina.model.tag_set import UNKEYED, KeySet, TagSet
from flumina.plan import Plan, StreamRates, make_plan
from flumina.plan.render.dot import to_dot
from flumina.plan.render.formatting import keys_text, tags_text
from flumina.plan.render.html import to_html, to_page
from flumina.plan.render.mermaid import to_mermaid
from flumina.plan.render.text import to_text

NASTY = '<script>alert("&\\`#|")</script>'


@pytest.fixture
def small() -> Plan:
    sources = [StreamRates("values", {"value": 1e6}, parts=2), StreamRates("barriers", {"barrier": 10})]
    return make_plan(ValueBarrier, sources, workers=2, optimizer="greedy")


@pytest.fixture
def nasty() -> Plan:
    views = StreamRates(NASTY, {"view": 100}, parts=2, hot={"view": {NASTY: 50}}, hosts=NASTY)
    plan = make_plan(PageViews, [views, StreamRates("c", {"change": 1})], workers=4, optimizer="greedy")
    return replace(plan, program=NASTY, root=replace(plan.root, id=NASTY))


@pytest.fixture
def large() -> Plan:
    hot = {"view": {"home": 5e7, "about": 3e6}}
    sources = [StreamRates("views", {"view": 1e8}, parts=64, hot=hot), StreamRates("changes", {"change": 10})]
    plan = make_plan(PageViews, sources, workers=100, optimizer="greedy")
    assert len(plan) == 199
    return plan


def test_text(small: Plan) -> None:
    assert small.explain() == (
        "ValueBarrier: 3 workers, 2 leaves, depth 1, 2 places\n"
        "w1 @ slot0   barrier ← barriers\n"
        "├─ w2 @ slot0   value ← values[0]\n"
        "└─ w3 @ slot1   value ← values[1]"
    )


def test_text_of_the_papers_example() -> None:
    sources = [
        StreamRates("r", {"read": [15, 10]}, parts=2, keys=[[1], [2]]),
        StreamRates("i", {"inc": [100, 200, 300]}, parts=3, keys=[[1], [2], [2]]),
    ]
    assert make_plan(KeyCounter, sources, optimizer="greedy").explain().splitlines()[1:] == [
        "w1 @ slot0",
        "├─ w2 @ slot0",
        "│     inc (1) ← i[0]",
        "│     read (1) ← r[0]",
        "└─ w3 @ slot1   read (2) ← r[1]",
        "   ├─ w4 @ slot1   inc (2) ← i[1]",
        "   └─ w5 @ slot2   inc (2) ← i[2]",
    ]


def test_many_alike_workers_are_drawn_once(large: Plan) -> None:
    text = large.explain()
    assert len(text.splitlines()) < 15
    assert "50 leaves" in text
    assert "divided by part" in text
    assert len(to_text(large, full=True).splitlines()) > 199
    for picture in (to_mermaid(large), to_dot(large), to_html(large)):
        assert "50 leaves" in picture
        assert len(picture) < 10_000


def test_keys_that_are_divided_are_shown_together() -> None:
    plan = make_plan(KeyCounter, [StreamRates("s", {"inc": 1e8, "read": 1e6})], workers=64, optimizer="greedy")
    assert plan.explain().splitlines()[1:] == [
        plan.explain().splitlines()[1],
        "└─ 64 leaves, w7 … w127 @ 64 places",
        "      inc, read (all), divided by key ← s",
    ]


def test_mermaid(small: Plan) -> None:
    assert to_mermaid(small) == (
        "flowchart LR\n"
        '  n1(["<b>w1</b> @ slot0<br/>barrier ← barriers"])\n'
        '  n2["<b>w2</b> @ slot0<br/>value ← values[0]"]\n'
        "  n1 -.- n2\n"
        '  n3["<b>w3</b> @ slot1<br/>value ← values[1]"]\n'
        "  n1 --- n3\n"
    )


def test_dot(small: Plan) -> None:
    lines = to_dot(small).splitlines()
    assert lines[0] == "digraph plan {"
    assert lines[-1] == "}"
    assert '  n1 [label="w1  @ slot0\\lbarrier ← barriers\\l"];' in lines
    assert "  n1 -> n2 [style=dashed];" in lines
    assert "  n1 -> n3;" in lines


def test_html_is_well_formed_and_complete(small: Plan, large: Plan, nasty: Plan) -> None:
    for plan in (small, large, nasty):
        tree = ET.fromstring(plan._repr_html_().replace("&nbsp;", " "))  # noqa: S314 -- our own text
        texts = "".join(tree.itertext())
        assert plan.program in texts
        boxes = [g for g in tree.iter() if g.tag.endswith("}g")]
        assert boxes
    assert all(worker.id in small._repr_html_() for worker in small.workers)
    assert "w2" in to_page(small)
    assert to_page(small).startswith("<!doctype html>")


def rectangles(html: str) -> list[tuple[float, float, float, float]]:
    found = re.findall(
        r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)" rx="6" fill="#ffffff"', html
    )
    return [(float(x), float(y), float(w), float(h)) for x, y, w, h in found]


@pytest.mark.parametrize("workers", [2, 3, 5, 8, 12])
def test_cards_do_not_overlap(workers: int) -> None:
    hot = dict.fromkeys(range(workers), 100.0)
    sources = [StreamRates("s", {"inc": 2000, "read": 10}, parts=2, hot={"inc": hot})]
    for optimizer in ("greedy", "cost"):
        plan = make_plan(KeyCounter, sources, workers=workers, optimizer=optimizer)
        cards = rectangles(to_html(plan))
        assert cards
        for index, (x, y, w, h) in enumerate(cards):
            for x2, y2, w2, h2 in cards[:index]:
                assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y


def test_nothing_in_a_plan_is_taken_for_markup(nasty: Plan) -> None:
    html = to_html(nasty)
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    mermaid = to_mermaid(nasty)
    assert "<script" not in mermaid
    assert all(line.count('"') in {0, 2} for line in mermaid.splitlines())
    for line in to_dot(nasty).splitlines():
        assert len(re.findall(r'(?<!\\)(?:\\\\)*"', line)) % 2 == 0


def test_state_types_are_shown_where_there_are_several() -> None:
    class Two(fl.Program):
        a = fl.Tag()
        b = fl.Tag()
        depends = fl.depends((b, b), (b, a))
        Whole = fl.StateType()
        Half = fl.StateType(a)

        def init(self) -> int:
            return 0

        @fl.update(Whole, Half)
        def step(self, state: int, event: fl.Event, emit: fl.Emit) -> int:
            return state

        @fl.fork(Whole, into=(Half, Half))
        def divide(self, state: int, left: fl.TagSet, right: fl.TagSet) -> tuple[int, int]:
            return state, 0

        @fl.join((Half, Half), into=Whole)
        def unite(self, left: int, right: int) -> int:
            return left + right

    plan = make_plan(Two, [StreamRates("a", {"a": 9}, 2), StreamRates("b", {"b": 1})], optimizer="greedy")
    assert "w1 : Whole @ slot0" in plan.explain()
    assert "w2 : Half" in to_html(plan)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (KeySet.everything(), "all"),
        (KeySet.of(2, 1), "1, 2"),
        (KeySet.of(*range(9)), "0, 1, 2, … 9 keys"),
        (KeySet(), "nothing"),
        (KeySet.everything() - KeySet.of("b", "a"), "all but 'a', 'b'"),
        (KeySet.from_buckets([*range(10), 20]), "#0-9, 20"),
        (KeySet.from_buckets(range(0, 100, 2)), "#50 buckets"),
    ],
)
def test_keys_in_words(keys: KeySet, text: str) -> None:
    assert keys_text(keys) == text
    assert tags_text(TagSet({"x": UNKEYED, "y": keys})).startswith("x")
