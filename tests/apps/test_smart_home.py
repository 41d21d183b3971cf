import gzip
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import flumina as fl
from flumina.apps import text
from flumina.apps.smart_home import APP, Homes, House, SmartHome, SmartHomeByHand
from flumina.model.tag_set import KeySet, TagSet
from flumina.program.base import define
from tests.apps.agreement import SEEDS, Given, assert_batches_agree, assert_empty_batches_do_nothing, outputs


def columns(seed: int) -> Given:
    """Few places, so that they meet; slices one after the other; ends before what happens at the same time."""
    rng = random.Random(seed)
    count, slices = rng.randrange(120), rng.randrange(9)
    return {
        "end": {
            "ts": [20 * (n + 1) for n in range(slices)],
            "slice": list(range(slices)),
            "per_day": [3] * slices,
        },
        "load": {
            "ts": sorted(rng.randrange(20 * 9) for _ in range(count)),
            "house": [rng.randrange(3) for _ in range(count)],
            "household": [rng.randrange(2) for _ in range(count)],
            "plug": [rng.randrange(-1, 2) for _ in range(count)],
            "milliwatts": [rng.randrange(5_000) for _ in range(count)],
        },
    }


def by_the_book(given: Given) -> Counter[Any]:
    """Query 1 straight from its definition, with all readings at hand."""
    loads = list(zip(*given["load"].values(), strict=True))
    history: dict[Any, dict[int, int]] = {}
    expected: Counter[Any] = Counter()
    for number in given["end"]["slice"]:
        averages: dict[Any, int] = {}
        mine = [row for row in loads if 20 * number <= row[0] < 20 * (number + 1)]
        for plug in {row[1:4] for row in mine}:
            values = [row[4] for row in mine if row[1:4] == plug]
            house, household, _ = plug
            for place in (plug, (house, household, None), (house, None, None)):
                averages[place] = averages.get(place, 0) + sum(values) // len(values)
        for place, average in averages.items():
            past = history.setdefault(place, {})
            past[number] = average
            same_time = [a for slice_, a in past.items() if slice_ % 3 == (number + 2) % 3]
            load = (average + sum(same_time) // len(same_time)) // 2 if same_time else average
            expected[(*place, number + 2, load)] += 1
    return expected


@pytest.mark.parametrize("seed", SEEDS)
def test_both_do_what_the_challenge_says(seed: int) -> None:
    given = columns(seed)
    found = outputs(SmartHome, given)
    rows = Counter(tuple(row.values())[:5] for row in found["output"])
    assert rows == by_the_book(given)
    by_hand = outputs(SmartHomeByHand, given)["output"]
    assert sorted(map(repr, by_hand)) == sorted(map(repr, found["output"]))


def test_the_past_matters() -> None:
    with_history = sum(
        len({row["milliwatts"] for row in outputs(SmartHome, columns(seed))["output"]}) for seed in SEEDS
    )
    assert with_history > 100


@pytest.mark.parametrize("seed", SEEDS)
def test_batches(seed: int) -> None:
    assert_batches_agree(SmartHome, columns(seed), seed)


def test_empty_batches() -> None:
    assert_empty_batches_do_nothing(SmartHome, [SmartHome.load])


def test_a_house_goes_where_its_readings_go() -> None:
    program = SmartHomeByHand()
    state = {number: House({(0, 0): (number, 1)}) for number in (1, 2, 3)}
    left, right = TagSet({"load": KeySet.of(1)}), TagSet({"load": KeySet.of(2)})
    halves = program.fork(dict(state), left, right)
    assert [sorted(half) for half in halves] == [[1, 3], [2]]
    assert program.join(*halves) == state


def test_readings_add_up_and_the_past_stays() -> None:
    program = SmartHome()
    known = House({(0, 0): (10, 2)}, {(0, 0): {1: (5, 1)}})
    loads = TagSet({"load": KeySet.of(1)})
    left, right = program.fork(known, loads, loads)
    assert right == House()
    right.add((0, 0), 7, 3)
    right.add((0, 1), 1, 1)
    assert program.join(left, right) == House({(0, 0): (17, 5), (0, 1): (1, 1)}, {(0, 0): {1: (5, 1)}})


def test_made_up_homes() -> None:
    workload = Homes(houses=4, households=2, plugs=3, hours=26, interval=900, parts=2)
    ends, loads = workload.streams()
    assert [part.num_rows for part in loads.parts()] == [4 * 2 * 3 * 26 * 4 // 2] * 2
    houses = [set(part.column("house").to_pylist()) for part in loads.parts()]
    assert houses == [{0, 2}, {1, 3}]
    places = {tuple(row[k] for k in ("house", "household", "plug")) for p in loads.parts() for row in p.to_pylist()}
    assert places == {(a, b, c) for a in range(4) for b in range(2) for c in range(3)}
    assert ends.parts()[0].column("ts").to_pylist()[:2] == [10_000_000, 20_000_000], "an hour in ten seconds"
    result = fl.spec(SmartHome, workload.streams())
    assert result.output.num_rows == 26 * 4 * (1 + 2 + 6)
    by_hour = [row["milliwatts"] for row in result.output.to_pylist() if row["house"] == 0 and row["household"] is None]
    assert max(by_hour) > 3 * min(by_hour), "days have ups and downs"


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"houses": 3, "parts": 2}, "should be a multiple of parts=2"),
        ({"slice_seconds": 1000}, "does not divide a day"),
    ],
)
def test_bad_homes(parameters: dict[str, int], says: str) -> None:
    with pytest.raises(fl.UsageError, match=says):
        Homes(**parameters)


BLANKS = """\
1377986401 68.451     0    11     0     0
1377986401 19.927     1    11     0     0
1377986405  0.5       1     2     1     7
1377986411 30.073     1    11     0     0
1377986425  4.000     1    11     0     0
"""
COMMAS = "".join(f"{n},{','.join(line.split())}\n" for n, line in enumerate(BLANKS.splitlines()))


@pytest.mark.parametrize("content", [BLANKS, COMMAS], ids=["blanks", "commas"])
@pytest.mark.parametrize("parts", [1, 2])
def test_files_of_the_challenge(content: str, parts: int, tmp_path: Path) -> None:
    path = tmp_path / "debs.txt"
    path.write_text(content)
    opened = APP.open(path, parts=parts, slice_seconds="10")
    ends, loads = opened.streams
    assert ends.parts()[0].column("ts").to_pylist() == [1377986410, 1377986420]
    assert sum(part.num_rows for part in loads.parts()) == 4, "work is no load"
    rows = fl.spec(SmartHome, opened.streams).output.to_pylist()
    plugs = {(r["house"], r["plug"], r["slice"] % 10, r["milliwatts"]) for r in rows if r["plug"] is not None}
    assert plugs == {(0, 11, 2, 19_927), (7, 2, 2, 500), (0, 11, 3, 30_073)}


def predictions(path: Path, *, in_order: bool = True) -> Counter[Any]:
    streams = [replace(stream, sorted=in_order) for stream in APP.open(path, slice_seconds=10).streams]
    return Counter(tuple(row.values())[:5] for row in fl.spec(SmartHome, streams).output.to_pylist())


@pytest.mark.parametrize("block", [40, 2**20])
def test_lines_in_any_order(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "BLOCK", block)
    path, lines = tmp_path / "debs.txt", BLANKS.splitlines(keepends=True)
    path.write_text(BLANKS)
    expected = predictions(path)
    assert expected.total() == 9
    for order in ([4, 3, 2, 1, 0], [2, 4, 0, 3, 1], [1, 4, 0, 2, 3]):
        path.write_text("".join(lines[n] for n in order))
        assert predictions(path, in_order=False) == expected


def test_a_timestamp_far_from_all_others(tmp_path: Path) -> None:
    path = tmp_path / "debs.txt"
    path.write_text(BLANKS + "1377986425000000 4.0 1 11 0 0\n" + BLANKS)
    with pytest.raises(fl.InputError, match=r"debs.txt: from 1377986401 to 1377986425000000 .* 10,000,000 slices"):
        APP.open(path)


@pytest.mark.parametrize("seconds", ["0", "-5", "7", "100000"])
def test_slices_of_a_file_divide_a_day(seconds: str, tmp_path: Path) -> None:
    path = tmp_path / "debs.txt"
    path.write_text(BLANKS)
    with pytest.raises(fl.UsageError, match=rf"PARAMETER.*smart-home: slice_seconds={seconds} does not divide a day"):
        APP.open(path, slice_seconds=seconds)
    APP.open(path, slice_seconds=86_400)


def test_a_file_that_is_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "debs.txt"
    path.write_text(BLANKS + "1377986484 3.216     0     2     7     4")
    with pytest.raises(fl.InputError, match=r"debs.txt:6: the file ends within the line"):
        APP.open(path)
    opened = APP.open(path, lenient=True, slice_seconds=10)
    assert len(opened.left_out) == 1
    assert fl.spec(SmartHome, opened.streams).events == 4 + 2


@pytest.mark.parametrize("load", ["nan", "inf", "-inf", "1e300", "9.1e12"])
@pytest.mark.parametrize("block", [40, 2**20])
def test_loads_that_are_none(load: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "BLOCK", block)
    path = tmp_path / "debs.txt"
    path.write_text(BLANKS)
    expected = predictions(path)
    path.write_text(BLANKS + f"1377986426 {load} 1 11 0 0\n")
    with pytest.raises(fl.InputError, match=r"BAD_LINE.*debs.txt:6: column 'value': .* is not between"):
        APP.open(path)
    opened = APP.open(path, lenient=True, slice_seconds=10)
    assert len(opened.left_out) == 1
    found = fl.spec(SmartHome, opened.streams).output.to_pylist()
    assert Counter(tuple(row.values())[:5] for row in found) == expected


def test_the_largest_load(tmp_path: Path) -> None:
    path = tmp_path / "debs.txt"
    path.write_text("0 9e12 1 0 0 0\n1 -9e12 1 1 0 0\n")
    assert APP.open(path).streams[1].parts()[0].column("milliwatts").to_pylist() == [9 * 10**15, -9 * 10**15]


@pytest.mark.parametrize("name", ["debs.txt", "debs.txt.gz"])
def test_an_empty_file(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(gzip.compress(b"") if name.endswith("gz") else b"")
    with pytest.raises(fl.InputError, match=rf"NO_LINES.*{name} has no lines"):
        APP.open(tmp_path / name)


def test_houses_of_the_paper_depend_on_themselves() -> None:
    for program, depends in ((SmartHome, False), (SmartHomeByHand, True)):
        assert define(program).depends("load", 1, "load", 1) == depends
        assert not define(program).depends("load", 1, "load", 2)
        assert define(program).depends("load", 1, "end", None)
