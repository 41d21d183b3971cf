import random

import pytest

from flumina.runtime.histogram import Histogram, bucket_of, upper_bound


@pytest.mark.parametrize("seconds", [1e-6, 3.3e-5, 0.004, 1.0, 77.7, 86400.0])
def test_a_duration_is_at_most_nine_per_cent_below_the_bound_of_its_bucket(seconds: float) -> None:
    bound = upper_bound(bucket_of(seconds))
    assert seconds <= bound * (1 + 1e-9)
    assert bound <= seconds * 1.0906


def test_percentiles_agree_with_sorting() -> None:
    random_ = random.Random(3)
    values = [random_.expovariate(100) for _ in range(5000)]
    histogram = Histogram.of(dict.fromkeys(values, 1))
    assert histogram.total == 5000
    for percent in (1, 10, 50, 90, 99, 99.9, 100):
        exact = sorted(values)[max(0, int(5000 * percent / 100 + 0.999999) - 1)]
        assert max(exact, 1e-6) <= histogram.percentile(percent) * (1 + 1e-9) <= max(exact, 1e-6) * 1.1


def test_histograms_add_up() -> None:
    both = Histogram.of({0.5: 3}) + Histogram.of({0.5: 1, 0.0: 2})
    assert both.total == 6
    assert both.percentile(1) == pytest.approx(1e-6)


def test_nothing_recorded() -> None:
    assert Histogram().percentile(99) == 0.0
