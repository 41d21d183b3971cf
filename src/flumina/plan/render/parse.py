"""Read plan files; a mistake is a :class:`~flumina.errors.PlanError` with its position."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from flumina.errors import FluminaError, PlanError
from flumina.model.hashing import BUCKETS
from flumina.model.tag_set import UNKEYED, Key, KeySet, TagSet
from flumina.plan.tree import MAX_DEPTH, MAX_PARTS, Itag, Plan, PlanWorker, StreamShape

FORMAT = "flumina plan"
VERSION = 1

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def read_plan(source: str | Path, where: str) -> Plan:
    """Return the plan in a text or a file."""
    try:
        text = source.read_text(encoding="utf-8-sig") if isinstance(source, Path) else source
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise PlanError("UNREADABLE_PLAN", f"{where} can't be read: {reason}") from None
    reader = _Reader(where)
    try:
        found = json.loads(text, object_pairs_hook=reader.distinct, parse_constant=reader.constant)
    except json.JSONDecodeError as error:
        reader.fail(f"line {error.lineno}, column {error.colno}", f"invalid JSON: {error.msg}")
    except RecursionError:
        reader.fail("", "brackets are nested too deep")
    except ValueError:  # a whole number with thousands of digits
        reader.fail("", "a number is too long")
    return reader.plan(found)


@dataclass(frozen=True)
class _Reader:
    where: str

    def fail(self, at: str, message: str, hint: str | None = None) -> NoReturn:
        place = f"{self.where}: {at}" if at else self.where
        raise PlanError("UNREADABLE_PLAN", f"{place}: {message}", hint=hint)

    def distinct(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name in found:
                self.fail("", f"{name!r} stands twice in one object")
            found[name] = value
        return found

    def constant(self, name: str) -> NoReturn:
        self.fail("", f"expected a number, got {name}")

    def fields(
        self, value: object, at: str, required: Mapping[str, type], optional: Mapping[str, type]
    ) -> dict[str, Any]:
        """Return an object with these fields and no others."""
        if not isinstance(value, dict):
            self.fail(at, f"expected an object, got {_short(value)}")
        for name in value:
            if name not in required and name not in optional:
                self.fail(at, f"unknown field {name!r}", f"known: {', '.join([*required, *optional])}")
        for name, expected in required.items():
            if name not in value:
                self.fail(at, f"the field {name!r} is missing")
            self.typed(value[name], f"{at}.{name}".lstrip("."), expected)
        for name, expected in optional.items():
            if value.get(name) is not None:
                self.typed(value[name], f"{at}.{name}".lstrip("."), expected)
        return value

    def typed(self, value: object, at: str, expected: type) -> None:
        names = {str: "a text", int: "a whole number", list: "a list", dict: "an object", bool: "true or false"}
        if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
            self.fail(at, f"expected {names[expected]}, got {_short(value)}")

    def plan(self, value: object) -> Plan:
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            self.fail("", "this is not a plan file", f'it should start with {{"format": "{FORMAT}"')
        head = {"format": str, "version": int, "program": str, "fingerprint": str, "streams": list, "workers": list}
        fields = self.fields(value, "", head, {})
        if fields["version"] != VERSION:
            self.fail("version", f"this flumina reads version {VERSION}, got {fields['version']}")
        streams = [self.stream(stream, f"streams[{i}]") for i, stream in enumerate(fields["streams"])]
        names = [stream.name for stream in streams]
        for name, count in Counter(names).items():
            if count > 1:
                self.fail("streams", f"two streams are called {name!r}")
        root = self.tree(fields["workers"], {stream.name: stream for stream in streams})
        return Plan(fields["program"], fields["fingerprint"], tuple(streams), root)

    def stream(self, value: object, at: str) -> StreamShape:
        fields = self.fields(value, at, {"name": str, "parts": int, "tags": dict}, {"held": list, "ticks": bool})
        held = tuple(self.tags(tags, f"{at}.held[{i}]") for i, tags in enumerate(fields.get("held") or ()))
        if not 1 <= fields["parts"] <= MAX_PARTS:
            self.fail(f"{at}.parts", f"a stream has 1 to {MAX_PARTS} parts, got {fields['parts']}")
        try:
            tags, ticks = self.tags(fields["tags"], f"{at}.tags"), bool(fields.get("ticks"))
            return StreamShape(fields["name"], fields["parts"], tags, held, ticks)
        except PlanError:
            raise
        except FluminaError as error:
            self.fail(at, error.message)

    def tree(self, values: list[object], streams: Mapping[str, StreamShape]) -> PlanWorker:
        """Return the workers as a tree; every one but the first is a child of exactly one other."""
        if not values:
            self.fail("workers", "a plan needs at least one worker")
        required = {"id": str, "kind": str, "children": list, "itags": list}
        nodes: dict[str, dict[str, Any]] = {}
        parents: dict[str, str] = {}
        for number, value in enumerate(values):
            at = f"workers[{number}]"
            fields = self.fields(value, at, required, {"place": str})
            if fields["id"] in nodes:
                self.fail(at, f"two workers have the id {fields['id']!r}")
            nodes[fields["id"]] = fields | {
                "itags": tuple(self.itag(itag, f"{at}.itags[{i}]", streams) for i, itag in enumerate(fields["itags"]))
            }
            for child in fields["children"]:
                self.typed(child, f"{at}.children", str)
                if child in parents:
                    self.fail(f"{at}.children", f"{child!r} is a child of {parents[child]!r} already")
                parents[child] = fields["id"]
        for child, parent in parents.items():
            if child not in nodes:
                self.fail(f"worker {parent!r}", f"its child {child!r} is not in the file")
        root, *others = nodes
        if root in parents:
            self.fail("workers[0]", f"the first worker is the root, but {root!r} is a child of {parents[root]!r}")
        built = self.build(root, nodes, 0)
        reached = {worker.id for worker in built.walk()}
        for name in others:
            if name not in reached:
                self.fail(f"worker {name!r}", "it can't be reached from the first worker, which is the root")
        return built

    def build(self, name: str, nodes: Mapping[str, dict[str, Any]], depth: int) -> PlanWorker:
        if depth > MAX_DEPTH:
            self.fail(f"worker {name!r}", f"there are more than {MAX_DEPTH} levels of workers", "balance the tree")
        fields = nodes[name]
        children = tuple(self.build(child, nodes, depth + 1) for child in fields["children"])
        return PlanWorker(name, fields["kind"], fields["itags"], children, fields.get("place"))

    def itag(self, value: object, at: str, streams: Mapping[str, StreamShape]) -> Itag:
        fields = self.fields(value, at, {"stream": str, "tags": dict}, {"parts": str})
        shape = streams.get(fields["stream"])
        if fields.get("parts") is not None:
            parts = self.numbers(fields["parts"], f"{at}.parts", MAX_PARTS)
        elif shape is not None:
            parts = frozenset(range(shape.parts))  # without parts: all of them
        else:
            parts = frozenset({0})
        return Itag(fields["stream"], parts, self.tags(fields["tags"], f"{at}.tags"))

    def numbers(self, text: str, at: str, limit: int) -> frozenset[int]:
        """Read ranges such as ``"0-2, 5"``."""
        found: set[int] = set()
        for piece in text.split(","):
            match = _RANGE.fullmatch(piece.strip())
            first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
            if not first <= last < limit:
                self.fail(at, f"expected numbers below {limit} like '0-2, 5', got {text!r}")
            found.update(range(first, last + 1))
        return frozenset(found)

    def tags(self, value: object, at: str) -> TagSet:
        self.typed(value, at, dict)
        assert isinstance(value, dict)
        return TagSet((name, self.keys(keys, f"{at}.{name}")) for name, keys in value.items())

    def keys(self, value: object, at: str) -> KeySet:
        optional = {"all": bool, "unkeyed": bool, "keys": list, "buckets": str, "plus": list, "minus": list}
        fields = self.fields(value, at, {}, optional)
        for name, given in fields.items():
            self.typed(given, f"{at}.{name}", optional[name])  # null as well: no key set
        bases = [name for name in ("all", "unkeyed", "keys", "buckets") if name in fields]
        if len(bases) != 1 or fields[bases[0]] is False or (bases[0] in {"unkeyed", "keys"} and len(fields) > 1):
            self.fail(at, f"expected a key set, got {_short(value)}", 'for example {"all": true} or {"keys": [1, 2]}')
        if bases[0] == "unkeyed":
            return UNKEYED
        if bases[0] == "keys":
            return KeySet.of(*(self.key(key, at) for key in fields["keys"]))
        base = KeySet.everything()
        if bases[0] == "buckets":
            base = KeySet.from_buckets(self.numbers(fields["buckets"], f"{at}.buckets", BUCKETS))
        plus, minus = ((self.key(key, at) for key in fields.get(name, ())) for name in ("plus", "minus"))
        return (base | KeySet.of(*plus)) - KeySet.of(*minus)

    def key(self, value: object, at: str) -> Key:  # noqa: RET503 -- fail never returns
        if isinstance(value, str):
            return value
        if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
            return value
        if isinstance(value, dict) and value.keys() == {"hex"} and isinstance(value["hex"], str):
            try:
                return bytes.fromhex(value["hex"])
            except ValueError:
                pass
        self.fail(at, f'a key is a whole number, a text or {{"hex": "00ff"}}, got {_short(value)}')


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
