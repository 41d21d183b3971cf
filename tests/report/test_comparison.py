from flumina.report.comparison import Comparison


def test_one_and_several_take_turns() -> None:
    asked: list[int] = []

    def seconds(workers: int) -> float:
        asked.append(workers)
        return 4.0 / workers + len(asked) / 100

    compared = Comparison.measure(4, 3, seconds)
    assert asked == [1, 4, 1, 4, 1, 4]
    assert compared.one == (4.01, 4.03, 4.05)
    assert compared.several == (1.02, 1.04, 1.06)
    assert compared.speed_up == 4.03 / 1.04


def test_it_is_told_with_its_extremes() -> None:
    told = str(Comparison(2, (3.0, 9.0, 4.0), (2.0, 1.0, 4.0)))
    assert told.startswith("2.00 times as fast as one worker: 2.00 s against 4.00 s")
    assert "medians of 3; extremes 0.75 to 9.00 times" in told


def test_no_faster_is_told_too() -> None:
    assert str(Comparison(2, (1.0,), (2.0,))).startswith("0.50 times as fast")
