"""Running minima against plain ones."""

from __future__ import annotations

from random import Random

from flumina.model.order import Point
from flumina.model.tag_set import Key
from flumina.runtime.lowest import Lowest


def at(ts: int) -> Point:
    return Point(ts, 0, 0)


def test_random_changes_agree_with_a_plain_dict() -> None:
    for seed in range(40):
        random, lowest, plain = Random(seed), Lowest(), dict[Key, Point]()
        for _ in range(400):
            key, point = random.randrange(12), at(random.randrange(30))
            match random.randrange(4):
                case 0:
                    lowest.set(key, None)
                    plain.pop(key, None)
                case 1:
                    due = lowest.pop_up_to(point)
                    assert [plain[k] for k in due] == sorted(p for p in plain.values() if p <= point)
                    for k in due:
                        del plain[k]
                case _:
                    lowest.set(key, point)
                    plain[key] = point
            assert lowest.first == min(plain.values(), default=None)
            assert lowest.of == plain


def test_keys_need_no_order_and_come_in_the_order_in_which_they_were_set() -> None:
    lowest = Lowest()
    for key in ("a", 1, b"x", None):
        lowest.set(key, at(1))
    assert lowest.pop_up_to(at(1)) == ["a", 1, b"x", None]


def test_what_was_replaced_does_not_pile_up() -> None:
    lowest = Lowest()
    for ts in range(10_000):
        lowest.set(ts % 10, at(10_000 - ts))
    assert len(lowest.heap) < 200
    for key in range(10):
        lowest.set(key, None)
    assert len(lowest.heap) < 200
    assert lowest.first is None
    assert not lowest.heap
