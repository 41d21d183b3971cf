from flumina.model.order import END, LAST, START, Point, heartbeat
from flumina.program.base import define
from flumina.runtime.mailbox import Queue
from flumina.runtime.messages import EVERYTHING, Data, ForkState, Item, Request
from flumina.runtime.run import EMPTY, Run
from flumina.runtime.truncate import after, drop_after, reaches, taken_back, truncated, truncated_queues
from tests.runtime.support import Chain

PART = ("s", 0)


def run(*times: int) -> Run:
    tag = define(Chain).tags["x"]
    return Run([Point(ts, 0, n) for n, ts in enumerate(times)], [tag.event(ts=ts, seq=n) for n, ts in enumerate(times)])


def points(given: Run) -> list[int]:
    return [point.ts for point, _ in given]


def test_a_frontier_reaches_a_timestamp_when_nothing_of_it_is_to_come() -> None:
    assert not reaches(Point(7, 0, 3), 7)  # more events of that time may come
    assert reaches(heartbeat(7, 0), 7)
    assert reaches(Point(8, 0, 0), 7)
    assert reaches(END, 7)
    assert not reaches(START, -5)


def test_requests_up_to_the_cut_and_the_one_at_the_end() -> None:
    items = [Item(point, EVERYTHING) for point in (Point(3, 0, 0), after(5), Point(6, 0, 0), END)]
    assert [item.point for item in drop_after(items, after(5))] == [Point(3, 0, 0), after(5), END]
    traveled = Item(Point(*END), EVERYTHING)
    assert drop_after([traveled], after(5)) == [traveled], "an equal point that came from another process"


def test_data_on_the_way() -> None:
    seen, rest = truncated(Data(PART, run(3, 5, 5, 8), Point(8, 0, 9)), 5)
    assert isinstance(seen, Data)
    assert (points(seen.run), seen.frontier) == ([3, 5, 5], END)
    assert rest is not None
    assert (points(rest.run), rest.frontier) == ([8], Point(8, 0, 9))


def test_data_that_do_not_reach_the_cut_are_left_alone() -> None:
    message = Data(PART, run(3, 5), Point(5, 0, 1))
    assert truncated(message, 5) == (message, None)


def test_an_end_is_told_again_by_who_has_ended() -> None:
    seen, rest = truncated(Data(PART, EMPTY, END), 5)
    assert seen == Data(PART, EMPTY, END)
    assert rest is None
    _, rest = truncated(Data(PART, run(9), END), 5)
    assert rest is not None
    assert rest.frontier == rest.run.last


def test_requests_on_the_way() -> None:
    items = tuple(Item(Point(ts, 0, 0), ("w", "t")) for ts in (4, 6))
    seen, rest = truncated(Request(items, Point(7, 0, 0), END), 5)
    assert seen == Request(items[:1], Point(7, 0, 0), END)
    assert rest is None


def test_everything_else_arrives_as_it_is() -> None:
    message = ForkState(1, Point(3, 0, 0))
    assert truncated(message, 2) == (message, None)


def test_queues_give_back_what_lies_behind() -> None:
    full, short = Queue(), Queue()
    full.put(run(1, 4), Point(4, 0, 9))
    full.put(run(6, 9), Point(9, 0, 9))
    short.put(run(2), Point(2, 0, 9))
    [data] = truncated_queues([(PART, full), (("s", 1), short)], 5, {PART: [run(7)]})
    assert (data.part, points(data.run), data.frontier) == (PART, [6, 7, 9], Point(9, 0, 9))
    assert full.frontier == END
    assert full.length == 2
    assert points(full.take(END)) == [1, 4]
    assert (short.frontier, short.length) == (Point(2, 0, 9), 1)


def test_a_frontier_alone_is_worth_keeping_but_an_end_is_not() -> None:
    assert taken_back(PART, EMPTY, Point(9, 0, LAST)) == Data(PART, EMPTY, Point(9, 0, LAST))
    assert taken_back(PART, EMPTY, END) is None
    assert taken_back(PART, EMPTY, Point(*END)) is None, "an equal point that came from another process"
