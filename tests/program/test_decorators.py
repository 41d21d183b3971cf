from collections.abc import Callable
from typing import Any

import pytest

from flumina.errors import UsageError
from flumina.model.tag import Tag, user_line
from flumina.program.decorators import StateType, decorations, fork, join, members_of, state_types, update, update_batch


class Types:
    Whole = StateType()
    Half = StateType(Tag())


class Base:
    first = 1
    second = 2


class Middle(Base):
    second = 3


class Last(Middle):
    third = 4


def test_a_state_type_knows_its_name_and_where_it_is() -> None:
    made, here = StateType(), user_line(0)
    assert Types.Whole.name == "Whole"
    assert made.where == here
    assert state_types(dict(vars(Types))) == {"Whole": Types.Whole, "Half": Types.Half}


def test_what_a_decorator_notes() -> None:
    class P:
        @update(Types.Whole, Types.Half)
        @update_batch(Types.Whole)
        def step(self) -> None: ...

        @fork(Types.Whole, (Types.Half, Types.Whole))
        def split(self) -> None: ...

        @join((Types.Half, Types.Whole), into=Types.Whole)
        def merge(self) -> None: ...

        def plain(self) -> None: ...

    noted = [(name, mark.role, [t.name for t in mark.types]) for name, mark in decorations(dict(vars(P)))]
    assert noted == [
        ("step", "update_batch", ["Whole"]),
        ("step", "update", ["Whole", "Half"]),
        ("split", "fork", ["Whole", "Half", "Whole"]),
        ("merge", "join", ["Half", "Whole", "Whole"]),
    ]


@pytest.mark.parametrize(
    "mark",
    [
        lambda: update(*()),
        lambda: update("Whole"),  # type: ignore[arg-type]
        lambda: fork(Types.Whole, Types.Half),  # type: ignore[arg-type]
        lambda: fork(Types.Whole, (Types.Half,)),  # type: ignore[arg-type]
        lambda: join((Types.Half, Types.Half, Types.Half), Types.Whole),  # type: ignore[arg-type]
        lambda: join((Types.Half, 3), Types.Whole),  # type: ignore[arg-type]
    ],
)
def test_only_state_types_and_pairs_of_them(mark: Callable[[], Any]) -> None:
    with pytest.raises(UsageError, match=r"STATE_TYPES.*at .*test_decorators\.py:\d+"):
        mark()


def test_members_as_the_class_sees_them() -> None:
    members = members_of(Last, Base)
    assert {name: members[name] for name in ("second", "third")} == {"second": 3, "third": 4}
    assert "first" not in members
