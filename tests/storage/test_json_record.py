"""Dataclasses as JSON, and back; wrong fields of real ones: tests/checkpoint/store/test_manifest.py."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from flumina.errors import CheckpointError
from flumina.storage.json_record import from_json, to_json


class Pair(NamedTuple):
    name: str
    share: float


@dataclass(frozen=True)
class Inner:
    pairs: tuple[Pair, ...] = ()


@dataclass(frozen=True)
class Outer:
    at: datetime
    inner: Mapping[str, Inner]
    two: tuple[int, str]
    maybe: Inner | None = None
    other: Any = None


@pytest.mark.parametrize("maybe", [None, Inner((Pair("b", 2),))])
def test_every_kind_of_field_comes_back(maybe: Inner | None) -> None:
    record = Outer(datetime(2026, 1, 2, 3, tzinfo=UTC), {"x": Inner((Pair("a", 0.5),))}, (1, "y"), maybe, {"z": [1]})
    content = json.loads(json.dumps(to_json(record)))
    assert from_json(Outer, content, "f") == record
    assert from_json(Outer, {**content, "more": 1}, "f") == record


def test_a_field_with_a_default_may_be_missing() -> None:
    assert from_json(Inner, {}, "f") == Inner()
    with pytest.raises(CheckpointError, match=r"f is damaged: expected a value in field 'at'"):
        from_json(Outer, {}, "f")
    with pytest.raises(CheckpointError, match="expected an object in field 'content', got 3"):
        from_json(Inner, 3, "f")
    with pytest.raises(CheckpointError, match=r"expected a number in field 'pairs\.0\.share', got 'x'"):
        from_json(Inner, {"pairs": [["a", "x"]]}, "f")
