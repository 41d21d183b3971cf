"""Compute program fingerprints, so that another program does not resume from a snapshot."""

from __future__ import annotations

import ast
import copy
import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cached_property, partial, partialmethod
from itertools import combinations_with_replacement, groupby
from operator import attrgetter
from typing import Any

import pyarrow as pa

from flumina.checkpoint.canonical import canonical
from flumina.input.conversion import is_pandas
from flumina.input.files import Parquet
from flumina.input.sources import GeneratorSource
from flumina.input.stream import Stream
from flumina.model.depends import FunctionDependence
from flumina.model.schema import type_name
from flumina.model.tag import Tag
from flumina.program.analysis.function_source import FunctionSource, SourceMissingError, enclosed, written
from flumina.program.base import AnyProgram, Program, define
from flumina.program.declared_state import DeclaredState
from flumina.program.decorators import members_of
from flumina.program.definition import Definition
from flumina.state.fields import Field, PerKey, Replicated, Tuple

Fingerprint = dict[str, Any]


def program_fingerprint(program: AnyProgram, streams: Sequence[Stream] = ()) -> Fingerprint:
    """Return name, tags, dependence, state, outputs, streams, parameters and code of a program, as JSON.

    Code is a checksum of the methods of the class, without comments and docstrings; None where their source can't be
    found. Functions outside the class that the methods call are not part of it; but the tags that read or set a field,
    which may depend on such functions, are. Values that methods have from a function around the class are parameters.
    """
    definition = define(program)
    one = definition if definition.lifted is None else definition.lifted.one
    owner = getattr(next(iter(one.kinds.values())).update, "__self__", None)
    functions = _functions(one, owner)
    return {
        "name": definition.name,
        "tags": {name: _tag(tag) for name, tag in definition.tags.items()},
        "depends": dict(sorted(_depends(definition))),
        "keyed": definition.lifted is not None,
        "state": _state(one),
        "observers": _observers(one),
        "outputs": {name: _columns(schema.arrow) for name, schema in definition.outputs.items()},
        "streams": {stream.name: _stream(stream, rank) for rank, stream in enumerate(streams)},
        "parameters": _parameters(owner, functions),
        "code": {name: code_hash(function) for name, function in sorted(functions.items())},
    }


def input_fingerprint(streams: Iterable[Stream]) -> Fingerprint:
    """Return the size of each stream, as far as it is known without reading it; empty where it is not."""
    return {stream.name: _input(stream.data) for stream in streams}


def _input(data: Any) -> Fingerprint:  # noqa: ANN401 -- whatever stands in Stream(data=...)
    if isinstance(data, Parquet):
        try:
            infos = [
                info
                for system, files in groupby(data.files, key=attrgetter("system"))
                for info in system.get_file_info([file.path for file in files])
            ]
        except OSError:
            return {}  # the source reader raises it
        return {"files": len(infos), "bytes": sum(info.size for info in infos)}
    if isinstance(data, GeneratorSource):
        made = canonical(data.function) if is_dataclass(data.function) else None  # else another in every process
        return {"parts": data.parts, "generator": None if made is None else _digest(made)}
    in_parts = isinstance(data, Sequence) and not (data and all(isinstance(row, Mapping) for row in data))
    rows = [_rows(part) for part in (data if in_parts else [data])]
    known = [count for count in rows if count is not None]
    return {"parts": len(rows), "rows": sum(known)} if len(known) == len(rows) else {}


def _rows(part: Any) -> int | None:  # noqa: ANN401 -- whatever stands in Stream(data=...)
    """Return the number of rows of a part in memory: a table, rows, columns or a DataFrame of pandas."""
    if isinstance(part, pa.Table | pa.RecordBatch):
        return int(part.num_rows)
    if isinstance(part, Mapping):
        return max((len(column) for column in part.values() if hasattr(column, "__len__")), default=0)
    return len(part) if isinstance(part, Sequence) or is_pandas(part) else None


def code_hash(function: Callable[..., Any]) -> str | None:
    """Hash the code of a function without comments, docstrings and layout; None if its source can't be found."""
    try:
        tree = copy.deepcopy(FunctionSource.of(function).module)
    except SourceMissingError:
        return None
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and ast.get_docstring(node) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return _digest(ast.unparse(tree))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _columns(schema: pa.Schema) -> dict[str, str]:
    return {f.name: type_name(f.type) + ("" if f.nullable else " not null") for f in schema}


def _tag(tag: Tag) -> Fingerprint:
    fingerprint: Fingerprint = {"columns": _columns(tag.columns.arrow)}
    if tag.key is not None:
        fingerprint["key"] = {tag.key.name: type_name(tag.key.type)}
    if tag.finite_keys is not None:
        fingerprint["keys"] = sorted(map(repr, tag.finite_keys))
    return fingerprint


def _depends(definition: Definition) -> Iterator[tuple[str, str]]:
    depends = definition.depends
    if isinstance(depends, FunctionDependence):
        yield from ((f"{_atom(*a)}, {_atom(*b)}", "always") for (a, b), yes in depends.table.items() if yes)
        return
    for a, b in combinations_with_replacement(sorted(definition.tags), 2):
        if depends.covers(a, b, same_key=True):
            yield f"{a}, {b}", "always" if depends.covers(a, b, same_key=False) else "same key"


def _atom(tag: str, key: object) -> str:
    return tag if key is None else f"{tag}[{key!r}]"


def _state(definition: Definition) -> Fingerprint:
    """Return the state types with the tags that they take, and the fields of declared state."""
    fingerprint: Fingerprint = {
        "types": {kind.name: [name for name, _ in kind.predicate] for kind in definition.kinds.values()}
    }
    declared = getattr(definition.init, "__self__", None)
    if isinstance(declared, DeclaredState):
        fingerprint["fields"] = {name: _field(field) for name, field in declared.fields.items()}
    return fingerprint


def _observers(definition: Definition) -> Fingerprint:
    """Return for each declared field the tags that read or set it: forks give the field to their workers."""
    declared = getattr(definition.init, "__self__", None)
    found = declared.observers if isinstance(declared, DeclaredState) else {}
    return {
        name: sorted(f"{tag} at its key" if own_key else tag for tag, own_key in observers)
        for name, observers in found.items()
    }


def _field(field: Field) -> str:
    if isinstance(field, PerKey):
        inside = _field(field.inner)
    elif isinstance(field, Tuple):
        inside = ", ".join(map(_field, field.parts))
    else:
        inside = type_name(field.type) if hasattr(field, "type") else ""
        inside += (
            f", initially {canonical(field.initial) or type(field.initial).__qualname__}"
            if isinstance(field, Replicated) and field.initial is not None
            else ""
        )
    return f"{type(field).__name__}({inside})"


def _stream(stream: Stream, rank: int) -> Fingerprint:
    tags = [stream.tag.name] if isinstance(stream.tag, Tag) else [f"{v!r}: {t.name}" for v, t in stream.tag.items()]
    fingerprint: Fingerprint = {"rank": rank, "tags": sorted(tags), "ts": stream.ts, "seq": stream.seq}
    fingerprint["tag column"] = stream.tag_column
    fingerprint["renamed"] = {name: column for name, column in sorted(stream.rename.items()) if name != column}
    return fingerprint


def _parameters(owner: object, functions: Mapping[str, Callable[..., Any]]) -> Fingerprint:
    """Return the values in the program's object, class and methods that have a canonical text."""
    fingerprint: Fingerprint = {}
    found: dict[str, Any] = {
        f"{name} in {label}": value for label, function in functions.items() for name, value in _bound(function)
    }
    if isinstance(owner, Program):
        found |= {**members_of(type(owner), Program), **vars(owner)}
    for name, value in sorted(found.items()):
        declared = name in ("depends", "output", "tolerance") or _is_ours(type(value))
        text = None if name.startswith("_") or declared else canonical(value)
        if text is not None:
            fingerprint[name] = text
    return fingerprint


def _bound(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values that a function is bound to: of names around it, and of default arguments."""
    plain = written(function)
    if plain is None:
        return
    yield from enclosed(plain).items()
    for name, parameter in inspect.signature(plain).parameters.items():
        if parameter.default is not parameter.empty:
            yield name, parameter.default


def _functions(definition: Definition, owner: object) -> dict[str, Callable[..., Any]]:
    """Return the user's code: all methods of the class, or the functions of a definition without a class."""
    if isinstance(owner, Program):
        members = members_of(type(owner), Program).items()
        plain = ((name, _written(member)) for name, member in members)
        return {name: m for name, m in plain if inspect.isfunction(m) and not _is_ours(m)}
    found: dict[str, Callable[..., Any] | None] = {"init": definition.init}
    for kind in definition.kinds.values():
        found |= {f"update of {kind.name}": kind.update, f"update_batch of {kind.name}": kind.update_batch}
    found |= {f"fork of {fork.source} into {fork.left}, {fork.right}": fork.function for fork in definition.forks}
    found |= {f"join of {join.left}, {join.right} into {join.target}": join.function for join in definition.joins}
    return {name: function for name, function in found.items() if function is not None}


def _written(member: Any) -> object:  # noqa: ANN401 -- whatever stands in a class
    """Return the user's function inside a wrapper: a property, cache, static method or the like."""
    for kind, inside in (
        (staticmethod | classmethod, "__func__"),
        (property, "fget"),
        (cached_property | partial | partialmethod, "func"),
        (object, "__wrapped__"),
    ):
        below = getattr(member, inside, None) if isinstance(member, kind) else None
        if below is not None:
            return _written(below)
    return member


def _is_ours(thing: Callable[..., Any]) -> bool:
    """Tell whether a function or class belongs to the library rather than to a program."""
    return thing.__module__.startswith("flumina.") and not thing.__module__.startswith("flumina.apps.")
