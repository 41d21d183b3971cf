from flumina.check.report import CheckReport, Counterexample, LawResult

FOUND = Counterexample(
    law="C2",
    equation="join(fork(s, p1, p2)) = s",
    meaning="a fork that is joined at once changes nothing",
    trace=("init", "inc(k=1)@0"),
    bindings=(("s", "{1: 1}"), ("p1", "inc(1)")),
    sides=(("state", "{}", "{1: 1}"),),
    hint="look at fork",
)


def test_a_counterexample_shows_law_equation_situation_and_both_sides() -> None:
    assert str(FOUND).splitlines() == [
        "C2: a fork that is joined at once changes nothing",
        "    join(fork(s, p1, p2)) = s",
        "",
        "  reached by",
        "    init",
        "    inc(k=1)@0",
        "  with",
        "    s  = {1: 1}",
        "    p1 = inc(1)",
        "",
        "  state:  {}  ≠  {1: 1}",
        "",
        "  hint: look at fork",
    ]


def test_long_sides_stand_side_by_side_in_columns() -> None:
    long = Counterexample("C1", "a = b", "", sides=(("state", "x" * 150, "y" * 60),))
    lines = str(long).splitlines()[-4:]
    assert "left side" in lines[0]
    assert "≠ right side" in lines[0]
    assert all(" | " in line for line in lines[1:])
    assert "".join(line.split(" | ")[0].strip() for line in lines[1:]) == "x" * 150
    assert "".join(line.split(" | ")[1].strip() for line in lines[1:]) == "y" * 60


def test_a_report_is_ok_only_if_no_law_is_broken() -> None:
    good, bad = LawResult("C1", 10), LawResult("C2", 3, FOUND)
    assert CheckReport("P", [good]).ok
    report = CheckReport("P", [good, bad])
    assert not report.ok
    assert report.broken == ("C2",)
    assert "P: breaks C2" in str(report)
    assert "10 examples" in str(report)
    assert str(FOUND) in str(report)
