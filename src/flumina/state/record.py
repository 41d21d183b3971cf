"""Hold the state of a program with declared fields."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any


class Record:
    """The state of a program with declared fields: one attribute for each field."""

    def __init__(self, fields: Mapping[str, object]) -> None:
        self.__dict__.update(fields)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 -- called for unknown names only
        raise AttributeError(f"the state has no field {name!r}; declared: {list(self.__dict__)}")

    if TYPE_CHECKING:  # the fields of a program are known at run time only

        def __setattr__(self, name: str, value: Any) -> None: ...  # noqa: ANN401

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __deepcopy__(self, memo: dict[int, Any]) -> Record:
        return Record({name: copy.deepcopy(value, memo) for name, value in self.__dict__.items()})

    def __repr__(self) -> str:
        return f"({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"
