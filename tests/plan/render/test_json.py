import json
import random
from pathlib import Path
from typing import Any

import pytest

import flumina as fl
from flumina.apps import KeyCounter, PageViews, ValueBarrier
from flumina.errors import PlanError
from flumina.plan import Plan, StreamRates, make_plan, validate
from flumina.plan.render.json import from_json, to_json
from tests.plan.support import PROGRAMS, perturbed, random_streams, random_valid_plan


@pytest.fixture
def plan() -> Plan:
    sources = [
        StreamRates("s", {"inc": 1000, "read": 10}, parts=3, hot={"inc": {7: 500}}, keys=[[7, 8], None, None]),
    ]
    return make_plan(KeyCounter, sources, workers=4, optimizer="greedy")


def test_what_is_written_is_read_back() -> None:
    rng = random.Random(6)
    for _ in range(150):
        definition = fl.define(rng.choice(PROGRAMS))
        plan = random_valid_plan(definition, random_streams(definition, rng), rng).at({"w1": "here"})
        assert from_json(to_json(plan)) == plan
        changed = perturbed(plan, definition, rng)
        if len({worker.id for worker in changed.workers}) == len(changed):
            assert validate(from_json(to_json(changed)), definition) == validate(changed, definition)


def test_keys_of_every_type_come_back(tmp_path: Path) -> None:
    class Bytes(KeyCounter):
        inc = fl.Tag(key="k binary")
        read = fl.Tag(key="k binary")
        depends = fl.depends((read, read), (read, inc))

    blob = StreamRates("s", {"inc": 9, "read": 1}, hot={"inc": {b"\x00\xff": 3, b"": 2}})
    page = StreamRates("s", {"view": 9, "change": 1}, hot={"view": {'a"b\\c\n': 3, "é😀": 2}})
    for program, source in ((Bytes, blob), (PageViews, page)):
        plan = make_plan(program, [source], workers=4, optimizer="greedy")
        plan.save(tmp_path / "plan.json")
        assert Plan.load(tmp_path / "plan.json") == plan


def test_the_text_is_stable_and_one_change_is_one_line(plan: Plan) -> None:
    text = to_json(plan)
    assert to_json(from_json(text)) == text
    json.loads(text)
    moved = to_json(plan.at({plan.leaves[0].id: "elsewhere"}))
    assert sum(a != b for a, b in zip(text.splitlines(), moved.splitlines(), strict=True)) == 1
    assert max(map(len, text.splitlines())) < 250


def test_keys_are_sorted() -> None:
    hot = dict.fromkeys([f"page{n:02}" for n in range(30)], 1.0)
    plan = make_plan(
        PageViews, [StreamRates("s", {"view": 100, "change": 1}, hot={"view": hot})], slots=2, optimizer="greedy"
    )
    workers = json.loads(to_json(plan))["workers"]
    lists = [keys[x] for w in workers for i in w["itags"] for keys in i["tags"].values() for x in keys if x != "all"]
    assert any(len(found) > 5 for found in lists if isinstance(found, list))
    assert all(found == sorted(found) for found in lists if isinstance(found, list))


def test_a_file_can_be_edited_by_hand(plan: Plan) -> None:
    edited = json.loads(to_json(plan))
    edited["workers"].reverse()
    edited["workers"].insert(0, edited["workers"].pop())  # the root stays first, the order of others is free
    for worker in edited["workers"]:
        worker.pop("place")
    again = from_json(json.dumps(edited))
    assert validate(again, KeyCounter) == []
    assert again.root.place is None
    whole = json.loads(
        to_json(make_plan(ValueBarrier, [StreamRates("v", {"value": 1}, 4), StreamRates("b", {"barrier": 1})]))
    )
    for worker in whole["workers"]:
        for itag in worker["itags"]:
            if itag["stream"] == "v":
                itag.pop("parts")  # all parts
    assert validate(from_json(json.dumps(whole)), ValueBarrier) == []


def broken(change: Any) -> str:
    sources = [StreamRates("v", {"value": 1e9}, 2), StreamRates("b", {"barrier": 1})]
    plan = json.loads(to_json(make_plan(ValueBarrier, sources, optimizer="greedy")))
    change(plan)
    return json.dumps(plan)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.pop("format"), "not a plan file"),
        (lambda p: p.update(version=2), "reads version 1, got 2"),
        (lambda p: p.pop("streams"), "'streams' is missing"),
        (lambda p: p.update(extra=1), "unknown field 'extra'"),
        (lambda p: p.update(workers={}), "workers: expected a list"),
        (lambda p: p.update(workers=[]), "at least one worker"),
        (lambda p: p["workers"].append(3), r"workers\[3\]: expected an object, got 3"),
        (lambda p: p["workers"][1].update(id="w1"), "two workers have the id 'w1'"),
        (lambda p: p["workers"][1].update(id=1), r"workers\[1\].id: expected a text, got 1"),
        (lambda p: p["workers"][0].update(children=["w2", "w9"]), "its child 'w9' is not in the file"),
        (lambda p: p["workers"][0].update(children=["w2", 3]), "expected a text, got 3"),
        (lambda p: p["workers"][0].update(children=["w2", "w2"]), "'w2' is a child of 'w1' already"),
        (lambda p: p["workers"][2].update(children=["w1"]), "the first worker is the root"),
        (lambda p: p["workers"][0].update(children=["w2"]), "'w3'.*can't be reached"),
        (lambda p: p["workers"][1].update(itags=[{"stream": "v"}]), r"itags\[0\]: the field 'tags' is missing"),
        (lambda p: p["workers"][1]["itags"][0].update(parts="0-"), "parts: expected numbers"),
        (lambda p: p["workers"][1]["itags"][0].update(parts="5-2"), "parts: expected numbers"),
        (lambda p: p["workers"][1]["itags"][0].update(parts="99999999"), "parts: expected numbers"),
        (lambda p: p["workers"][1]["itags"][0].update(tags={"value": {}}), r"tags.value: expected a key set, got \{\}"),
        (lambda p: p["workers"][1]["itags"][0].update(tags={"value": 3}), "tags.value: expected an object"),
        (lambda p: p["workers"][1]["itags"][0].update(tags={"value": {"all": False}}), "expected a key set"),
        (
            lambda p: p["workers"][1]["itags"][0].update(tags={"value": {"keys": None}}),
            r"workers\[1\].itags\[0\].tags.value.keys: expected a list, got null",
        ),
        (
            lambda p: p["workers"][1]["itags"][0].update(tags={"value": {"buckets": None}}),
            r"tags.value.buckets: expected a text, got null",
        ),
        (
            lambda p: p["workers"][1]["itags"][0].update(tags={"value": {"all": None}}),
            r"tags.value.all: expected true or false, got null",
        ),
        (lambda p: p["workers"][1]["itags"][0].update(tags={"value": {"keys": [1.5]}}), "a key is .*, got 1.5"),
        (lambda p: p["workers"][1]["itags"][0].update(tags={"value": {"keys": [True]}}), "a key is"),
        (lambda p: p["workers"][1]["itags"][0].update(tags={"value": {"keys": [2**70]}}), "a key is"),
        (lambda p: p["workers"][1]["itags"][0].update(tags={"value": {"keys": [{"hex": "x"}]}}), "a key is"),
        (lambda p: p["workers"][1]["itags"][0].update(tags={"value": {"buckets": "4096"}}), "numbers below 4096"),
        (lambda p: p["workers"][1]["itags"][0].update(tags={"value": {"keys": [], "plus": [1]}}), "expected a key set"),
        (lambda p: p["streams"][0].update(parts=0), r"streams\[0\].parts"),
        (lambda p: p["streams"][0].update(parts=10**12), r"streams\[0\].parts"),
        (lambda p: p["streams"][0].update(parts=True), "expected a whole number, got true"),
        (lambda p: p["streams"][0].update(held=[{}]), "2 parts, got 1 sets"),
        (lambda p: p["streams"].append(p["streams"][0]), "two streams are called"),
    ],
)
def test_mistakes_in_a_file_are_named_with_their_place(change: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message) as caught:
        from_json(broken(change), "plan.json")
    assert caught.value.condition == "UNREADABLE_PLAN"
    assert "plan.json" in caught.value.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1"),
        ("{", "line 1, column 2"),
        ("[]", "not a plan file"),
        ("null", "not a plan file"),
        ("[" * 100_000, "nested too deep"),
        ('{"format": NaN}', "expected a number, got NaN"),
        ('{"format": 1, "format": 2}', "'format' stands twice"),
        ("9" * 10_000, "too long"),
    ],
)
def test_what_is_no_plan_at_all(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        from_json(text)


def test_a_chain_that_is_too_deep() -> None:
    def deepen(plan: dict[str, Any]) -> None:
        for number in range(150):
            worker = {"id": f"d{number}", "kind": "State", "itags": [], "children": [f"d{number + 1}"]}
            plan["workers"].append(worker)
        plan["workers"][-1]["children"] = []
        plan["workers"][1]["children"] = ["d0"]

    with pytest.raises(PlanError, match="more than 100 levels"):
        from_json(broken(deepen))

    def circle(plan: dict[str, Any]) -> None:
        for one, other in (("c1", "c2"), ("c2", "c1")):
            plan["workers"].append({"id": one, "kind": "State", "itags": [], "children": [other]})

    with pytest.raises(PlanError, match=r"'c1'.*can't be reached"):
        from_json(broken(circle))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="No such file"):
        Plan.load(tmp_path / "nothing.json")
    with pytest.raises(PlanError, match="can't be read"):
        Plan.load(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PlanError, match="not UTF-8"):
        Plan.load(tmp_path / "binary")
