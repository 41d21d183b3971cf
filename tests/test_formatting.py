import pytest

from flumina.formatting import duration, printable, size, table, width


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1 KiB"), (1536 * 1024, "1.5 MiB"), (5000 * 2**30, "5,000.0 GiB")],
)
def test_sizes(count: int, said: str) -> None:
    assert size(count) == said


@pytest.mark.parametrize(
    ("seconds", "said"), [(1e-6, "0.001 ms"), (0.0994, "99 ms"), (0.25, "250 ms"), (1.0, "1.0 s"), (1234.0, "1,234 s")]
)
def test_durations(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_columns_of_a_table_are_as_wide_as_they_look() -> None:
    lines = table([["city", "n"], ["東京", "10"], ["Zürich", "7"]], right=[1]).splitlines()
    assert {width(line) for line in lines} == {width("Zürich  10")}
    assert lines[1] == "東京    10"


def test_no_line_ends_in_blanks() -> None:
    assert table([["a", "long"], ["b", ""]]) == "a  long\nb"


def test_what_a_terminal_would_obey_is_escaped() -> None:
    assert printable("a ≠ b → Zürich\n東京") == "a ≠ b → Zürich\n東京"
    assert printable("\x1b[31m\r\x00\t\x9b\u202e") == r"\x1b[31m\r\x00\t\x9b\u202e"
