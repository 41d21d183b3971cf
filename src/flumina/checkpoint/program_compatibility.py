"""Compare program fingerprints, and refuse to resume from an incompatible program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flumina.errors import CheckpointError

_WITH_FLAG = ("name", "parameters", "code", "observers")
"""Parts of a fingerprint that may differ with ``allow_code_change``: the type of the state is the same."""

_INPUT = (
    "rows before the snapshot are not processed again, so that new or changed rows there would be missing: go on with "
    "the input as it was, or begin anew in another folder"
)

_THINGS = {
    "tags": "tag",
    "outputs": "output",
    "streams": "stream",
    "depends": "depends",
    "parameters": "parameter",
    "input": "input",
}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """List the differences between two program fingerprints, one line for each; empty if they are equal."""
    return [line for group in (*_groups(old, new), *_WITH_FLAG) for line in _lines(group, old, new)]


def check_program(old: Mapping[str, Any], new: Mapping[str, Any], *, allow_code_change: bool, where: str) -> None:
    """Raise unless a program has the fingerprint of the snapshot's; with ``allow_code_change``, its code may differ."""
    refused = [line for group in _groups(old, new) for line in _lines(group, old, new)]
    allowed = [line for group in _WITH_FLAG for line in _lines(group, old, new)]
    if not refused and (allow_code_change or not allowed):
        return
    listed = "".join(f"\n  - {line}" for line in refused + allowed)
    hint = "go on with the program as it was, or begin anew in another folder"
    if any(_lines("input", old, new)):
        hint = _INPUT
    elif not refused:
        hint = "if the state still means the same, go on with allow_code_change=True; else begin anew in another folder"
    message = f"the snapshots in {where} were made by another program, or from other input:{listed}"
    raise CheckpointError("CHECKPOINT_PROGRAM", message, file=where, hint=hint)


def _groups(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the names of the parts of a fingerprint that have to be equal."""
    return [group for group in dict.fromkeys([*old, *new]) if group not in _WITH_FLAG]


def _lines(group: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    before, now = old.get(group), new.get(group)
    if before == now and not (group == "outputs" and before):
        return
    if group == "code":
        yield from _code(before or {}, now or {})
    elif group == "outputs":
        yield from _outputs(before or {}, now or {})
    elif group == "state":
        yield from _state(before or {}, now or {})
    elif group == "observers":
        yield from _observers(before or {}, now or {})
    elif group == "input":
        yield from _things(_THINGS[group], *_known(before or {}, now or {}))
    elif group in _THINGS:
        yield from _things(_THINGS[group], before or {}, now or {})
    else:
        yield f"{group} {_show(before)} -> {_show(now)}"


def _things(kind: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each named thing that was added, removed or changed."""
    for name in dict.fromkeys([*old, *new]):
        if name not in new:
            yield f"{kind} {name!r} is gone"
        elif name not in old:
            yield f"{kind} {name!r} is new" + ("" if isinstance(new[name], Mapping) else f": {_show(new[name])}")
        elif isinstance(old[name], Mapping) and isinstance(new[name], Mapping):
            yield from (f"{kind} {name!r}: {line}" for line in _members(old[name], new[name]))
        elif old[name] != new[name]:
            yield f"{kind} {name!r}: {_show(old[name])} -> {_show(new[name])}"


def _known(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return both fingerprints, the new one without members that the old one does not have for the same name."""
    known = {
        name: {f: v for f, v in fingerprint.items() if f in old.get(name, fingerprint)}
        for name, fingerprint in new.items()
    }
    return old, known


def _members(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys([*old, *new]):
        before, now = old.get(name), new.get(name)
        if name == "columns":
            yield from _columns(before or {}, now or {})
        elif before != now:
            yield f"{name} {_show(before)} -> {_show(now)}"


def _outputs(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    yield from _things("output", {name: {} for name in old}, {name: {} for name in new})
    for name in old:
        if name in new:
            lines = list(_columns(old[name], new[name]))
            if not lines and list(old[name]) != list(new[name]):
                lines = [f"columns in another order: {_show(old[name])} -> {_show(new[name])}"]
            yield from (f"output {name!r}: {line}" for line in lines)


def _columns(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for name in dict.fromkeys([*old, *new]):
        if name not in new:
            yield f"column {name} is gone"
        elif name not in old:
            yield f"column {name} is new: {new[name]}"
        elif old[name] != new[name]:
            yield f"column {name} {old[name]} -> {new[name]}"


def _state(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    yield from _things("state type", old.get("types", {}), new.get("types", {}))
    if ("fields" in old) != ("fields" in new):
        yield "the state is declared by fields now" if "fields" in new else "the state is no longer declared by fields"
    else:
        yield from _things("state field", old.get("fields", {}), new.get("fields", {}))


def _observers(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in (name for name in old if name in new and old[name] != new[name]):
        yield f"state field {name!r} is read or set by {_show(old[name])} -> {_show(new[name])}"


def _code(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys([*old, *new]):
        if name not in new:
            yield f"{name} is gone"
        elif name not in old:
            yield f"{name} is new"
        elif old[name] is None or new[name] is None:
            if old[name] != new[name]:
                yield f"the code of {name} can't be compared: its source {'is' if old[name] else 'was'} not known"
        elif old[name] != new[name]:
            yield f"the code of {name} changed"


def _show(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return (
            ", ".join(f"{k}: {_show(v)}" if isinstance(v, Mapping) else f"{k} {v}" for k, v in value.items()) or "none"
        )
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)
