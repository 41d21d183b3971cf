"""Write plans as JSON in a stable order, one line for each itag, for editing and ``diff``.

Workers stand in preorder, the root first, and name their children. Key sets are ``{"all": true}``,
``{"keys": [...]}``, ``{"unkeyed": true}`` or ``{"buckets": "0-2047", "plus": [...], "minus": [...]}``; a binary key is
``{"hex": "00ff"}``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flumina.model.hashing import BUCKETS
from flumina.model.tag_set import UNKEYED, Key, KeySet, TagSet
from flumina.plan.key_cover import bits
from flumina.plan.render.formatting import key_order
from flumina.plan.render.parse import FORMAT, VERSION, read_plan
from flumina.plan.tree import Itag, Plan, PlanWorker, StreamShape, ranges


def to_json(plan: Plan) -> str:
    """Return the plan as JSON."""
    head = {"format": FORMAT, "version": VERSION, "program": plan.program, "fingerprint": plan.fingerprint}
    lines = [f"  {_flat(name)}: {_flat(value)}," for name, value in head.items()]
    streams = ",\n".join(f"    {_flat(_stream(stream))}" for stream in plan.streams)
    workers = ",\n".join(_worker(worker) for worker in plan.workers)
    return "\n".join(["{", *lines, f'  "streams": [\n{streams}\n  ],', f'  "workers": [\n{workers}\n  ]', "}"]) + "\n"


def from_json(text: str, where: str = "the plan") -> Plan:
    """Return the plan of a JSON text, written or edited; ``where`` names it in errors."""
    return read_plan(text, where)


def save(plan: Plan, path: str | Path) -> None:
    """Write a plan file."""
    Path(path).write_text(to_json(plan), encoding="utf-8")


def load(path: str | Path) -> Plan:
    """Read a plan file."""
    return read_plan(Path(path), str(path))


def _flat(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _worker(worker: PlanWorker) -> str:
    head: dict[str, Any] = {"id": worker.id, "kind": worker.kind, "place": worker.place}
    head["children"] = [child.id for child in worker.children]
    opening = _flat(head)[:-1] + ', "itags": ['
    if not worker.itags:
        return f"    {opening}]}}"
    itags = ",\n".join(f"      {_flat(_itag(itag))}" for itag in worker.itags)
    return f"    {opening}\n{itags}\n    ]}}"


def _itag(itag: Itag) -> dict[str, Any]:
    return {"stream": itag.stream, "parts": ranges(itag.parts), "tags": _tags(itag.tags)}


def _stream(stream: StreamShape) -> dict[str, Any]:
    found: dict[str, Any] = {"name": stream.name, "parts": stream.parts, "tags": _tags(stream.tags)}
    if stream.held:
        found["held"] = [_tags(tags) for tags in stream.held]
    if stream.ticks:
        found["ticks"] = True
    return found


def _tags(tags: TagSet) -> dict[str, Any]:
    return {name: _keys(keys) for name, keys in tags}


def _keys(keys: KeySet) -> dict[str, Any]:
    if keys == UNKEYED:
        return {"unkeyed": True}
    plus = [_key(key) for key in sorted((k for k in keys.flips if k in keys), key=key_order)]
    if keys.is_finite:
        return {"keys": plus}
    minus = [_key(key) for key in sorted((k for k in keys.flips if k not in keys), key=key_order)]
    whole = keys.buckets.bit_count() == BUCKETS
    found: dict[str, Any] = {"all": True} if whole else {"buckets": ranges(bits(keys).nonzero()[0].tolist())}
    return found | ({"plus": plus} if plus else {}) | ({"minus": minus} if minus else {})


def _key(key: Key) -> object:
    return {"hex": key.hex()} if isinstance(key, bytes) else key
