from pathlib import Path

import pyarrow as pa

import flumina as fl
from flumina import local
from flumina.apps import ValueBarrier
from flumina.apps.registry import find_app
from flumina.cli.display import rows_text, samples, shown_outputs
from flumina.formatting import width


def test_only_some_rows_are_shown(tmp_path: Path) -> None:
    streams = find_app("value-barrier").generate(events=100, ratio=5).streams()
    out = tmp_path / "totals"
    result = local.run(ValueBarrier, streams, workers=1, out=out, progress=False)
    text = shown_outputs(result, 3, place=str(out)).splitlines()
    assert text[0] == f"outputs: 10 rows in {out}"
    assert [line.split()[0] for line in text[1:]] == ["total", *map(str, _totals(result, 3)), "..."]
    assert shown_outputs(result, 10).splitlines()[-1] != "  ..."
    assert shown_outputs(result, 0) == "outputs: 10 rows"
    assert samples(result, 3)["output"].num_rows == 3


def _totals(result: object, rows: int) -> list[int]:
    found: list[int] = result.output.column("total").to_pylist()[:rows]  # type: ignore[attr-defined]
    return found


def test_rows_that_went_nowhere_are_counted() -> None:
    streams = find_app("value-barrier").generate(events=100, ratio=5).streams()
    result = local.run(ValueBarrier, streams, workers=1, out=fl.DISCARD, progress=False)
    assert shown_outputs(result, 3) == "outputs: 10 rows, counted and not kept"
    assert samples(result, 3) == {}


def test_dead_letters_are_shown_behind_the_outputs() -> None:
    rows = pa.table({"ts": [1, None, 3], "v": [1, 2, None]})
    streams = [fl.Stream("values", ValueBarrier.value, rows)]
    result = local.run(ValueBarrier, streams, workers=1, bad_rows="dead-letter", progress=False)
    assert shown_outputs(result, 1).splitlines() == [
        "outputs: 0 rows",
        "dead letters: 2 rows",
        "  stream  partition  row  reason          column  data",
        '  values          0    1  NULL_TIMESTAMP  ts      {"ts": null, "v": 2}',
        "  ...",
    ]


def test_named_outputs_have_their_names() -> None:
    streams = find_app("fraud").generate(events=2_000, ratio=100).streams()
    result = local.run(find_app("fraud").program, streams, workers=1, progress=False)
    text = shown_outputs(result, 1)
    assert len(result.committed) > 1
    for name, one in result.committed.items():
        assert f"outputs {name}: {one.rows:,} row" in text


def test_values_fit_into_a_terminal() -> None:
    text = rows_text(pa.table({"a": ["x" * 100, "\x1b[31mred\n"], "n": [1.5, None]})).splitlines()
    assert len(text) == 3
    assert max(map(width, text)) == 40 + 2 + 4
    assert "…" in text[1]
    assert r"\x1b[31mred\n" in text[2]
