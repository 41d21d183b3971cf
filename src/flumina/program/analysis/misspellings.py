"""Find misspelled columns and outputs, and wrong numbers of values, in user code.

``event.amunt``, ``batch["amunt"]``, ``emit.b`` and ``emit(1, 2)`` for three columns are mistakes if no tag whose
events reach the line has such a column, or no such output is declared. Only certain mistakes are reported: see
:mod:`flumina.program.analysis.reach`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from flumina.errors import Problem
from flumina.model.batch import Batch
from flumina.model.emit import ONLY_OUTPUT, Emit
from flumina.model.event import Event
from flumina.model.schema import Schema
from flumina.model.tag import RESERVED_COLUMNS, Tag
from flumina.model.tick import Every
from flumina.program.analysis.function_source import did_you_mean
from flumina.program.analysis.reach import Reached, reached
from flumina.state.fields import Field
from flumina.state.record import Record

_OF_EVENT = frozenset({*dir(Event), *RESERVED_COLUMNS})
_OF_BATCH = frozenset(dir(Batch))
_OF_EMIT = frozenset({*dir(Emit), *vars(Emit({}))})
_OF_STATE = frozenset(dir(Record))


def misspellings(
    name: str,
    role: str,
    method: Callable[..., object],
    owner: type,
    tags: Mapping[str, Tag],
    outputs: Mapping[str, Schema] | None,
    fields: Mapping[str, Field],
) -> Iterator[Problem]:
    """Find the mistakes in a method of a program, and in methods of the class that it hands events to.

    ``role`` is ``update``, ``update_batch`` or ``update_all``; ``tags`` are the tags of its events.
    ``outputs`` is None if their declaration is invalid.
    """
    batch = role == "update_batch"
    for place in reached(method, owner, tags, fields, batches=batch):
        columns = _Columns(place, tags, name)
        yield from columns.of_batch() if batch else columns.of_event()
        if batch and fields:
            yield from _state(place, fields, name)
        if outputs is not None:
            yield from _outputs(place, outputs, name)


def _problem(place: Reached, condition: str, message: str, hint: str | None) -> Problem:
    source = place.scope.source
    return Problem(condition, message, source.line(place.node), hint, source.excerpt(place.node))


@dataclass(frozen=True)
class _Columns:
    """Check columns that an expression takes from an event, or from a batch of events."""

    place: Reached
    tags: Mapping[str, Tag]
    method: str

    @property
    def node(self) -> ast.expr:
        return self.place.node

    def of_event(self) -> Iterator[Problem]:
        """Check ``event.column`` and ``event["column"]``."""
        if isinstance(self.node, ast.Attribute) and self._is_taken(self.node):
            yield from self._missing(self.node.value, self.node.attr, "{}.{}", _OF_EVENT)
        elif isinstance(self.node, ast.Subscript) and self._is_taken(self.node):
            yield from self._missing(self.node.value, self.node.slice, "{}[{!r}]", _OF_EVENT)

    def of_batch(self) -> Iterator[Problem]:
        """Check ``batch["column"]``, ``batch.arrow("column")``, and attributes of a batch."""
        if isinstance(self.node, ast.Subscript) and self._is_taken(self.node):
            yield from self._missing(self.node.value, self.node.slice, "{}[{!r}]")
        elif isinstance(self.node, ast.Call) and isinstance(self.node.func, ast.Attribute) and len(self.node.args) == 1:
            if self._is_taken(self.node.func) and self.node.func.attr == "arrow":
                yield from self._missing(self.node.func.value, self.node.args[0], "{}.arrow({!r})")
        elif isinstance(self.node, ast.Attribute) and self._is_taken(self.node) and self.node.attr not in _OF_BATCH:
            batch, name = ast.unparse(self.node.value), self.node.attr
            hint = did_you_mean(name, [n for n in _OF_BATCH if not n.startswith("_")], f"{batch}.{{}}")
            if any(name in self.tags[tag].schema.names for tag in self.place.live):
                hint = f"did you mean {batch}[{name!r}]?"
            message = f"expected an attribute of fl.Batch, got {batch}.{name} in {self.method}"
            yield _problem(self.place, "UNKNOWN_COLUMN", message, hint)

    def _is_taken(self, node: ast.Attribute | ast.Subscript) -> bool:
        return isinstance(node.ctx, ast.Load) and self.place.scope.is_role(node.value, "event")

    def _missing(
        self, event: ast.expr, given: ast.expr | str, form: str, others: frozenset[str] = frozenset()
    ) -> Iterator[Problem]:
        """Report a column that no tag reaching this line has; ``form`` is how it is written."""
        name = given.value if isinstance(given, ast.Constant) else given
        tags = [self.tags[tag] for tag in self.tags if tag in self.place.live]
        columns = list(dict.fromkeys(column for tag in tags for column in tag.schema.names))
        if not isinstance(name, str) or name in columns or name in others or any(tag.mistakes for tag in tags):
            return
        if name == "window" and any(isinstance(tag, Every) for tag in tags):
            return
        if any(tag.event_type is not None and hasattr(tag.event_type, name) for tag in tags):
            return  # a method or a property of the dataclass
        if name.startswith("_"):
            return  # attributes of named tuples besides columns
        several = f"tags {', '.join(tag.name for tag in tags)}" if len(tags) > 1 else f"tag {tags[0].name}"
        written, known = ast.unparse(event), ", ".join(columns) or "none"
        hint = did_you_mean(name, [*columns, *(sorted(RESERVED_COLUMNS) if others else ())], form.format(written, "{}"))
        message = f"expected a column of {several} ({known}), got {form.format(written, name)} in {self.method}"
        yield _problem(self.place, "UNKNOWN_COLUMN", message, hint)


def _state(place: Reached, fields: Mapping[str, Field], method: str) -> Iterator[Problem]:
    """Check ``state.field`` in a batch update; the analysis of effects reports it for ``update``."""
    node, source = place.node, place.scope.source
    unknown = place.scope.unknown_field(node)
    if unknown is None or unknown in _OF_STATE or place.scope.names["state"] in source.bound:
        return
    same = (n for n in ast.walk(source.tree) if isinstance(n, ast.Attribute) and n.attr == unknown)
    if all(isinstance(n.ctx, ast.Load) for n in same):  # else it is a note for the rest of the method
        message = f"expected a declared field ({', '.join(fields)}), got state.{unknown} in {method}"
        yield _problem(place, "UNKNOWN_FIELD", message, did_you_mean(unknown, fields, "state.{}"))


def _outputs(place: Reached, outputs: Mapping[str, Schema], method: str) -> Iterator[Problem]:
    """Check names of outputs, and calls that emit rows or columns."""
    node, scope = place.node, place.scope
    if isinstance(node, ast.Attribute) and scope.is_role(node.value, "emit") and isinstance(node.ctx, ast.Load):
        only = node.attr == "columns" and ONLY_OUTPUT in outputs
        if node.attr not in outputs and node.attr not in _OF_EMIT and not only:
            emit = ast.unparse(node.value)
            known = ", ".join(outputs) or "none is declared"
            message = f"expected one of the outputs ({known}), got {emit}.{node.attr} in {method}"
            hint = did_you_mean(node.attr, outputs, f"{emit}.{{}}")
            if list(outputs) == [ONLY_OUTPUT]:
                hint = f"write {emit}(...) for the only output"
            yield _problem(place, "UNKNOWN_OUTPUT", message, hint)
    elif isinstance(node, ast.Call) and scope.is_role(node.func, "emit") and ONLY_OUTPUT not in outputs:
        emit = ast.unparse(node.func)
        known = ", ".join(f"{emit}.{name}(...)" for name in outputs) or "no output, since none is declared"
        yield _problem(place, "UNKNOWN_OUTPUT", f"expected {known}, got {emit}(...) in {method}", None)
    elif isinstance(node, ast.Call):
        name, columns = _emitted(node.func, place)
        if name is not None and name in outputs:
            yield from _values(place, node, outputs[name], f"{ast.unparse(node.func)} in {method}", columns=columns)


def _emitted(function: ast.expr, place: Reached) -> tuple[str | None, bool]:
    """Return the output that a function emits to, and whether it takes whole columns."""
    columns = isinstance(function, ast.Attribute) and function.attr == "columns"
    if columns and isinstance(function, ast.Attribute):
        function = function.value
    if place.scope.is_role(function, "emit"):
        return ONLY_OUTPUT, columns
    named = isinstance(function, ast.Attribute) and place.scope.is_role(function.value, "emit")
    return (function.attr, columns) if named and isinstance(function, ast.Attribute) else (None, columns)


def _values(place: Reached, node: ast.Call, schema: Schema, what: str, *, columns: bool) -> Iterator[Problem]:
    """Report a call with too many or too few values, or with unknown columns."""
    named = [k.arg for k in node.keywords if k.arg is not None and not (columns and k.arg == "at")]
    more = any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords)
    count = sum(not isinstance(argument, ast.Starred) for argument in node.args)
    expected = f"expected the columns {schema} for {what}"
    unknown = [name for name in named if name not in schema.names]
    missing = [name for name in schema.names if name not in named]
    if unknown:
        hint = did_you_mean(unknown[0], missing)
        yield _problem(place, "OUTPUT_VALUES", f"{expected}, got {', '.join(unknown)}", hint)
    elif named and count:
        message = f"{expected}, got {count} by position and {', '.join(named)} by name"
        yield _problem(place, "OUTPUT_VALUES", message, "give all of them by position, or all by name")
    elif named and missing and not more:
        yield _problem(place, "OUTPUT_VALUES", f"{expected}, got none for {', '.join(missing)}", None)
    elif not named and (count > len(schema) or (count < len(schema) and not more)):
        things = f"{'column' if columns else 'value'}{'' if len(schema) == 1 else 's'}"
        message = f"expected {len(schema)} {things} ({schema}) for {what}, got {count}"
        yield _problem(place, "OUTPUT_VALUES", message, None)
