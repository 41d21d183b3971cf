from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flumina.model.order import END, LAST, START, Point, argsort, heartbeat

ts = st.integers(-(2**63), LAST)
points = st.builds(Point, ts, st.integers(0, 50), st.integers(0, LAST))


def test_timestamp_then_rank_then_seq() -> None:
    ordered = [Point(-1, 9, 9), Point(0, 0, 9), Point(0, 1, 0), Point(0, 1, 1), Point(1, 0, 0)]
    assert all(a < b for a, b in pairwise(ordered))


@given(points)
def test_start_and_end_enclose_every_event(point: Point) -> None:
    assert START < point <= END


def test_the_first_event_there_can_be_is_behind_the_start() -> None:
    assert Point(-(2**63), 0, 0) > START


@given(points, ts, st.integers(0, 50))
def test_a_heartbeat_is_behind_its_stream_at_that_time_and_before_all_later(point: Point, t: int, rank: int) -> None:
    """After a heartbeat at t nothing of that stream at or before t is to come; other streams are not spoken for."""
    assert (point <= heartbeat(t, rank)) == ((point.ts, point.rank) <= (t, rank))


def test_heartbeats_and_the_end() -> None:
    assert Point(3, 1, LAST - 1) < heartbeat(3, 1) < Point(3, 2, 0)
    assert heartbeat(3, 1) < heartbeat(3, 2) < heartbeat(4, 0) < END
    assert heartbeat(LAST, 7) < END


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 2), st.integers(0, 3))))
def test_argsort_is_the_order_of_points_and_stable(rows: list[tuple[int, int, int]]) -> None:
    columns = [np.array([row[i] for row in rows], np.int64) for i in range(3)]
    order = argsort(columns[0], columns[1], columns[2]).tolist()
    assert order == sorted(range(len(rows)), key=lambda i: Point(*rows[i]))
