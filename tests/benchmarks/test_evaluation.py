"""What the evaluation does with numbers: prices, tables, charts and the report."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from benchmarks.evaluation.__main__ import REPORT, main
from benchmarks.evaluation.case import PROGRAMS, Case
from benchmarks.evaluation.documents import DOCUMENTS, renew, renewed
from benchmarks.evaluation.effort import Effort
from benchmarks.evaluation.figures import FIGURES, drawn, speed_ups
from benchmarks.evaluation.latency import _simulated
from benchmarks.evaluation.plot import Axis, Dot, Line, chart, short
from benchmarks.evaluation.prices import Observed, fit, in_virtual_time, load, save
from benchmarks.evaluation.record import SECTIONS, Record, Results, load_all
from benchmarks.evaluation.report import PARTS, write
from benchmarks.evaluation.tables import tables
from flumina.plan.cost_model import CostModel
from flumina.plan.optimize import make_plan
from flumina.plan.sources import bind
from tests.benchmarks import made_up

ROOT = REPORT.parents[1]
SVG = "{http://www.w3.org/2000/svg}"


def observed(case: Case, model: CostModel) -> Observed:
    """What would have been measured if the model were the truth."""
    plan = make_plan(case.app.program, case.sources(), workers=case.parts)
    return Observed(case, plan, in_virtual_time(case, plan, model).throughput)


def test_prices_predict_what_they_were_not_fitted_to() -> None:
    names = ("value-barrier", "fraud")
    tags = {name: [flow.tag.name for flow in Case(name, 1).workload(10).flows()] for name in names}
    network = CostModel(message=50e-6, hop=100e-6)
    true = {name: replace(network, by_tag=dict(zip(tags[name], (90e-9, 60e-6), strict=True))) for name in names}
    start = {name: CostModel(by_tag={tags[name][1]: 10e-6}) for name in names}
    runs = [Case(name, n, ratio) for name in names for n in (1, 2) for ratio in (2_000, 50_000)]
    found = fit([observed(case, true[case.name]) for case in runs], start)
    for name in names:
        assert found[name].by_tag[tags[name][0]] == pytest.approx(90e-9, rel=0.1)
        for workers in (1, 2, 8):
            wanted = observed(Case(name, workers), true[name])
            rate = in_virtual_time(wanted.case, wanted.plan, found[name]).throughput
            assert rate == pytest.approx(wanted.throughput, rel=0.15)
            guessed = in_virtual_time(wanted.case, wanted.plan, start[name]).throughput
            assert guessed != pytest.approx(wanted.throughput, rel=0.15), "what was known before would do"


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_simulator_gets_the_input_that_the_engine_gets(name: str) -> None:
    case = Case(name, 3, 500)
    workload = case.workload(5_000)
    inputs = bind(case.app.program, case.sources())
    assert [source.tags for source in case.sources()] == [{flow.tag.name: flow.rate} for flow in workload.flows()]
    assert [source.parts for source in case.sources()] == [flow.parts for flow in workload.flows()]
    often, *_, rare = workload.flows()
    assert often.count / rare.count == often.rate / rare.rate == 3 * 500
    assert inputs.definition.tags.keys() == {flow.tag.name for flow in workload.flows()}


def test_latency_in_virtual_time_is_shorter_with_more_heartbeats() -> None:
    case = Case("value-barrier", 3, 1_000, 10_000.0)
    slow, quick = (_simulated("f", 1, case, beats, CostModel()) for beats in (10.0, 500.0))
    assert quick.low is not None
    assert quick.high is not None
    assert quick.low <= quick.y <= quick.high
    assert 5 * quick.y < slow.y < 0.2


def test_prices_are_kept_for_each_program(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "prices.json"
    one, other = CostModel(hop=1.0), CostModel(by_tag={"a": 2.0})
    save(path, {"one": one, "other": other})
    assert (load(path, "one"), load(path, "other")) == (one, other)
    with pytest.raises(SystemExit, match="no prices of third yet: run"):
        load(path, "third")


def test_results_come_back_from_their_file(tmp_path: Path) -> None:
    made = made_up.write(tmp_path)
    assert load_all(tmp_path) == made
    assert set(made) == set(SECTIONS)
    lines = (tmp_path / "curves.json").read_text().splitlines()
    assert sum('"figure"' in line for line in lines) == len(made["curves"].records)


def test_a_record_of_several_runs_is_their_median_and_spread() -> None:
    assert Record.of("f", "s", 2, [5.0, 1.0, 3.0, 9.0, 2.0]) == Record("f", "s", 2, 3.0, "measured", 1.0, 9.0)


def test_speed_ups_are_relative_to_their_own_kind() -> None:
    records = [
        Record("throughput fraud", "ratio 10000", 1, 10.0, "measured", 8.0, 12.0),
        Record("throughput fraud", "ratio 10000", 2, 16.0, "measured", 15.0, 17.0),
        Record("throughput fraud", "ratio 2000", 2, 99.0, "measured"),
        Record("throughput fraud", "ratio 10000", 1, 20.0, "simulated"),
        Record("throughput fraud", "ratio 10000", 12, 180.0, "simulated"),
        Record("throughput fraud", "ratio 10000", 100, 900.0, "simulated"),
    ]
    found = speed_ups(Results("throughput", made_up.MACHINE, quick=True, seconds=1, records=tuple(records)))
    assert [(r.series, r.x, r.y, r.how) for r in found] == [
        ("fraud", 1, 1.0, "measured"),
        ("fraud", 2, 1.6, "measured"),
        ("fraud", 1, 1.0, "simulated"),
        ("fraud", 12, 9.0, "simulated"),
    ]
    assert (found[1].low, found[1].high) == (1.5, 1.7)


def test_table_1_has_a_row_for_each_form(tmp_path: Path) -> None:
    table = tables(made_up.write(tmp_path))["trade-offs"]
    rows = {(row[0], row[1]): row[2:] for row in table.rows}
    assert len(rows) == len(table.rows) == 12
    assert rows["fraud", "Flumina"] == ["✓", "✓", "✓", "✓", "20 M", "2.0x", "9.4x simulated"]
    assert rows["fraud", "Spark batch"] == ["✓", "✓", "✓", "✗", "8 M", "2.0x", "not known"]
    assert rows["page-views", "Spark streaming"][-1] == "2 keys"
    assert rows["fraud", "Spark by hand"] == ["✗", "✗", "✓", "✓", "20 k", "2.0x", "11.0x"]
    assert {len(row) for row in table.rows} == {len(table.header)}


def test_every_figure_has_a_place_in_the_report_and_says_where_it_is_from(tmp_path: Path) -> None:
    made_up.write(tmp_path / "data")
    paths = write(tmp_path)
    assert {figure.name for figure in FIGURES} == {name for part in PARTS for name in part.figures}
    text, page = ((tmp_path / name).read_text() for name in ("report.md", "report.html"))
    for figure in FIGURES:
        assert tmp_path / "figures" / f"{figure.name}.svg" in paths
        assert f"figures/{figure.name}.svg" in text
        below = text.split(f"figures/{figure.name}.svg")[1].split("#")[0]
        assert re.search(r"\*\*(Measured|Simulated)\*\*", below), figure.name
    assert page.count("<svg") == len(FIGURES)
    assert "http" not in re.sub(r'xmlns="[^"]*"', "", page), "the page needs nothing else"


def test_a_loaded_machine_is_told(tmp_path: Path) -> None:
    results = made_up.write(tmp_path)["network"]
    quiet = drawn({"network": results})["network"].how
    busy = drawn({"network": replace(results, machine={**results.machine, "load before": 3.5})})["network"].how
    assert "load" not in quiet
    assert "on 2 cores (load 3.5 when it began, what was measured just before included)" in busy


def test_the_documentation_has_the_tables_of_the_report() -> None:
    made = tables(load_all(REPORT / "data"))
    for name in DOCUMENTS:
        text = (ROOT / name).read_text(encoding="utf-8")
        assert "<!-- table: trade-offs -->" in text
        assert renewed(text, made) == text, f"run `python -m benchmarks.evaluation --render`: {name} is not up to date"
    for path in (ROOT / "docs" / "figures").glob("*.svg"):
        assert path.read_text(encoding="utf-8") == (REPORT / "figures" / path.name).read_text(encoding="utf-8")


def test_tables_and_pictures_of_documents_are_renewed(tmp_path: Path) -> None:
    found = made_up.write(tmp_path / "data")
    made = tables(found)
    (tmp_path / "docs").mkdir()
    plain = "a\n<!-- table: network -->\nold\n<!-- end of table -->\nb\n"
    (tmp_path / "README.md").write_text(plain)
    (tmp_path / "docs" / "evaluation.md").write_text("![n](figures/network.svg), ![o](figures/other.svg)")
    picture = tmp_path / "docs" / "figures" / "network.svg"
    assert renew(tmp_path, made, drawn(found)) == [tmp_path / "README.md", picture]
    text = (tmp_path / "README.md").read_text()
    assert text.startswith("a\n<!-- table: network -->\n")
    assert text.endswith("<!-- end of table -->\nb\n")
    assert made["network"].markdown() in text
    assert "old" not in text
    assert picture.read_text().startswith("<svg")
    assert renew(tmp_path, made, drawn(found)) == []
    assert renewed(plain, {}) == plain


def test_a_report_of_some_sections_says_what_is_missing(tmp_path: Path) -> None:
    made_up.write(tmp_path / "data")
    (tmp_path / "data" / "curves.json").unlink()
    assert main(["--render", "--report", str(tmp_path)]) == 0
    assert "Not measured yet: curves." in (tmp_path / "report.md").read_text()
    assert not (tmp_path / "figures" / "curve-fraud.svg").exists()


def test_a_section_that_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(effort: Effort, data: Path) -> list[Record]:
        raise ValueError("on purpose")

    monkeypatch.setattr("benchmarks.evaluation.outliers.records", fails)
    found = [Record("network", "between workers", 2, 5.0, "measured")]
    found += [Record("network", "read by workers", 2, 100.0, "measured")]
    found += [Record("network share", "of what is read", 2, 0.05, "measured")]
    monkeypatch.setattr("benchmarks.evaluation.network.records", lambda effort, data: found)
    assert main(["outliers", "network", "--quick", "--report", str(tmp_path)]) == 1
    assert "outliers failed: ValueError('on purpose')" in capsys.readouterr().err
    kept = json.loads((tmp_path / "data" / "network.json").read_text())
    assert kept["quick"] is True
    assert len(kept["records"]) == 3


def test_a_section_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["throughputs"])
    assert "no section is called throughputs" in capsys.readouterr().err


def test_charts_put_points_where_they_belong() -> None:
    lines = [
        Line("a", [Dot(1, 10, 5, 20), Dot(10, 100), Dot(100, 1_000)], 0),
        Line("b & c", [Dot(10, 10)], 1, hollow=True),
    ]
    picture = ET.fromstring(chart(lines, Axis("x", log=True), Axis("y", log=True), "a < b"))  # noqa: S314 -- ours
    points = [dot for dot in picture.iter(f"{SVG}circle") if dot.find(f"{SVG}title") is not None]
    a, b = ([float(dot.attrib[name]) for dot in points[:3]] for name in ("cx", "cy"))
    assert a[1] - a[0] == pytest.approx(a[2] - a[1], abs=0.2)
    assert b[0] - b[1] == pytest.approx(b[1] - b[2], abs=0.2)
    assert b[0] > b[2]
    assert (points[3].attrib["cx"], points[3].attrib["cy"]) == (points[1].attrib["cx"], points[0].attrib["cy"])
    assert [dot.attrib["fill"] == "#fff" for dot in points] == [False, False, False, True]
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    assert {"a", "b & c", "x", "y", "10", "100"} <= set(texts)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("values", [[0.0], [5.0], [0.0, 0.0], [1e-9, 1e9], [-3.0, 4.0]])
def test_charts_of_odd_values_can_be_drawn(values: list[float], log: bool) -> None:  # noqa: FBT001
    dots = [Dot(n, value) for n, value in enumerate(values)]
    ET.fromstring(chart([Line("a", dots, 0)], Axis("x"), Axis("y", log=log), "t"))  # noqa: S314


def test_numbers_are_short() -> None:
    assert [short(v) for v in (0, 0.25, 12, 1_500, 2_500_000, 3e9)] == ["0", "0.25", "12", "1.5 k", "2.5 M", "3 G"]
    assert [short(v, "s") for v in (0.004, 2.5, 0.00002)] == ["4 ms", "2.5 s", "20 µs"]
    assert short(0.0123, "%") == "1.23 %"
