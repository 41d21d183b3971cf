import re

from flumina.report.charts import histogram, legend, stacked, table
from flumina.runtime.histogram import Histogram


def widths(html: str) -> list[float]:
    return [float(width) for width in re.findall(r"width:([\d.]+)%", html)]


def test_pieces_of_a_bar_are_as_long_as_their_share() -> None:
    assert widths(stacked({"state": 1.0, "children": 0.0, "events": 3.0}, 8.0)) == [12.5, 37.5]
    assert 'title="state: 1.0 s"' in stacked({"state": 1.0}, 8.0)
    assert widths(stacked({"state": 0.0}, 0.0)) == []


def test_a_table_marks_columns_of_numbers() -> None:
    html = table(["a", "n"], [["x", "1"]], right=[1], narrow=True)
    assert '<td>x</td><td class="number">1</td>' in html
    assert '<table class="narrow">' in html
    assert 'class="narrow"' not in table(["a"], [])


def test_a_legend_escapes_its_words() -> None:
    assert "a &lt; b" in legend({"state": "a < b"})


def test_a_histogram_keeps_every_duration_in_few_bars() -> None:
    many = Histogram.of({1e-5 * 1.3**n: n + 1 for n in range(60)})
    html = histogram(many)
    told = [int(times.replace(",", "")) for times in re.findall(r": ([\d,]+)</title>", html)]
    assert sum(told) == many.total
    assert 10 < len(told) <= 28


def test_a_histogram_of_one_duration() -> None:
    assert histogram(Histogram.of({0.5: 3})).count("<rect") == 1
