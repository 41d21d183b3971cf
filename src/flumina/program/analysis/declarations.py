"""Check the declarations of a program class, all mistakes in one pass."""

from __future__ import annotations

import inspect
import keyword
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, ClassVar, Protocol

from flumina.errors import Problem, SchemaError, location_of
from flumina.model.depends import Declaration
from flumina.model.emit import EVENT_COLUMNS, ONLY_OUTPUT
from flumina.model.schema import BadValueError, Schema, type_name
from flumina.model.schema import column as as_column
from flumina.model.tag import Tag
from flumina.model.tick import TTL_NAME, Tick
from flumina.program.analysis.misspellings import misspellings
from flumina.program.analysis.side_effects import find_side_effects
from flumina.program.analysis.tick_declarations import check_ticks
from flumina.program.decorators import PARAMETERS, Decoration, StateType, decorations, state_types
from flumina.program.handlers import check_handlers, handlers_of
from flumina.state.fields import Field

Members = dict[str, Any]
_RESERVED = frozenset({*PARAMETERS, "depends", "output", "tolerance", "examples", TTL_NAME})
_ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class _ProgramClass(Protocol):
    """The members of a program class that are checked."""

    output: ClassVar[Any]
    tolerance: ClassVar[Any]
    examples: ClassVar[Any]
    _tags: ClassVar[dict[str, Tag]]
    _fields: ClassVar[dict[str, Field]]
    _one_key: ClassVar[bool]


def check_declarations(cls: type[_ProgramClass], members: Members, where: str) -> list[Problem]:
    """Return all mistakes in a class; ``where`` is the line of its ``class`` statement."""
    members = {
        name: member for name, member in members.items() if member is not None
    }  # None removes an inherited member
    found = [
        *_names(cls, members, where),
        *_depends(cls, members, where),
        *_outputs(cls, where),
        *_signatures(members, where),
        *_state(cls, members, where),
        *check_ticks(cls._tags, cls._fields, one_key=cls._one_key, typed=bool(state_types(members))),
        *_misspelled(cls, members),
        *_checking(cls, where),
    ]
    return list(dict.fromkeys(found))


def _checking(cls: type[_ProgramClass], where: str) -> Iterator[Problem]:
    """Check the options of the law checker: ``tolerance`` and ``examples``."""
    tolerance, examples = cls.tolerance, cls.examples
    if isinstance(tolerance, Tag | Field | StateType) or isinstance(examples, Tag | Field | StateType):
        return  # a reserved name
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0 <= tolerance < math.inf:
        yield Problem("BAD_TOLERANCE", f"tolerance is a number, 0 or more, got {tolerance!r}", where)
    if not isinstance(examples, Mapping):
        hint = "for example: examples = {'column': [value, ...]}"
        message = f"examples is a dict from columns to lists of values, got {examples!r}"
        yield Problem("BAD_EXAMPLES", message, where, hint)
        return
    columns = list(dict.fromkeys(field.name for tag in cls._tags.values() for field in tag.schema))
    for column, values in examples.items():
        if column not in columns:
            hint = f"the columns are {', '.join(columns)}"
            yield Problem("BAD_EXAMPLES", f"examples names {column!r}, which is a column of no tag", where, hint)
        if isinstance(values, str | bytes | Mapping) or not isinstance(values, Collection) or not values:
            message = f"examples of {column!r} are a list with at least one value, got {values!r}"
            yield Problem("BAD_EXAMPLES", message, where)
            continue
        yield from (
            Problem("BAD_EXAMPLES", message, where)
            for tag in cls._tags.values()
            for message in _misfits(tag, column, list(values))
        )


def _misfits(tag: Tag, name: str, values: list[Any]) -> Iterator[str]:
    """Find values that do not fit the column of a tag, if it has one of that name."""
    for field in tag.schema:
        if field.name != name:
            continue
        if None in values and (tag.key == field or not field.nullable):
            what = "the key" if tag.key == field else "NOT NULL"
            yield f"examples of {name!r} hold None, but the column is {what} in tag {tag.name}"
        try:
            as_column(values, field.type)
        except BadValueError as error:
            yield f"examples of {name!r} hold {error.value!r}, which is no {type_name(field.type)} (tag {tag.name})"


def _names(cls: type[_ProgramClass], members: Members, where: str) -> Iterator[Problem]:
    if not cls._tags:
        yield Problem("NO_TAGS", "the program declares no tag", where, "for example: view = fl.Tag('user long')")
    declared: list[Tag | Field] = [*cls._tags.values(), *cls._fields.values()]
    for member in declared:
        for condition, message, *hints in member.mistakes:
            yield Problem(condition, f"{member.name}: {message}", member.where, *hints)
    named: dict[str, Tag | Field | StateType] = {**cls._tags, **cls._fields, **state_types(members)}
    for name, one in named.items():
        kind = type(one).__name__
        if name in _RESERVED or name.startswith("_"):
            yield Problem("RESERVED_NAME", f"a {kind} can't be called {name!r}", one.where)
        elif name != one.name:
            message = f"the {kind} {name} is called {one.name} already"
            yield Problem("TWO_NAMES", message, one.where, f"make another {kind} for {name}")
    for name, forgotten in _classes(members).items():
        hint = f"write {name} = fl.{forgotten.__name__}(...)"
        yield Problem("NO_PARENTHESES", f"{name} is the class {forgotten.__name__} itself", where, hint)
    for field in cls._fields.values():
        for tag in dict.fromkeys(tag for by in field.declared.values() for tag in by):
            if tag not in cls._tags.values():
                yield Problem("UNDECLARED_TAG", f"field {field.name} names a tag that is not declared", field.where)


def _classes(members: Members) -> dict[str, type]:
    """Find members that lack their parentheses: ``total = fl.Sum``."""
    return {n: m for n, m in members.items() if isinstance(m, type) and issubclass(m, Tag | Field | StateType)}


def _depends(cls: type[_ProgramClass], members: Members, where: str) -> Iterator[Problem]:
    declared = members.get("depends")
    if isinstance(declared, staticmethod):
        declared = declared.__func__
    if declared is None:
        hint = "declare depends = fl.depends((a, b), ...); fl.depends() says that nothing depends on anything"
        yield Problem("NO_DEPENDS", "the program does not say which tags depend on which", where, hint)
    elif isinstance(declared, Declaration):
        yield from _pairs(cls, declared)
    elif inspect.isfunction(declared):
        if len(inspect.signature(declared).parameters) != 2:
            yield Problem(
                "BAD_SIGNATURE", "depends takes two arguments (a, b), each with .tag and .key", location_of(declared)
            )
        for tag in cls._tags.values():
            if tag.key is not None and tag.finite_keys is None:
                hint = "list them: fl.Tag(..., keys=[...]); or declare the rule with fl.depends((a, b), ...)"
                yield Problem(
                    "UNBOUNDED_KEYS", f"depends is a function, and tag {tag.name} has unbounded keys", tag.where, hint
                )
    else:
        yield Problem("BAD_DEPENDS", f"depends is {declared!r}", where, "use fl.depends(...) or a function of two")


def _pairs(cls: type[_ProgramClass], declared: Declaration) -> Iterator[Problem]:
    known = {id(tag) for tag in cls._tags.values()}
    for a, b in (*declared.pairs, *declared.always):
        for tag in dict.fromkeys((a, b)):
            if id(tag) not in known:
                name = "without a name" if tag.name == "?" else f"{tag.name!r}"
                yield Problem(
                    "UNDECLARED_TAG",
                    f"depends names a tag {name} (made at {tag.where}) that is not a tag of this program",
                    declared.where,
                )
        if (a, b) in declared.pairs and a.key is not None and b.key is not None and a.key.type != b.key.type:
            types = f"{a.name}: {type_name(a.key.type)}, {b.name}: {type_name(b.key.type)}"
            yield Problem("KEY_TYPES", f"tags that depend by key have different key types ({types})", declared.where)
    if cls._one_key:
        for a, b in declared.always:
            if a.key is not None and b.key is not None:
                hint = "write it as a fl.Program with PerKey fields"
                message = f"a keyed program is about one key, but {a.name} and {b.name} depend across keys"
                yield Problem("ACROSS_KEYS", message, declared.where, hint)


def _outputs(cls: type[_ProgramClass], where: str) -> Iterator[Problem]:
    given = {"output": cls.output} if isinstance(cls.output, str) else cls.output
    if not isinstance(given, Mapping):
        yield Problem("BAD_SCHEMA", f"output is a schema or a dict of named schemas, got {given!r}", where)
        return
    for name, ddl in given.items():
        try:
            schema = Schema.parse(ddl)
        except SchemaError as error:
            yield Problem("BAD_SCHEMA", f"output {name!r}: {error.message}", where)
            continue
        if not schema.fields:
            yield Problem("BAD_SCHEMA", f"output {name!r} has no columns", where)
        taken = {f.name for f in EVENT_COLUMNS}  # Spark reads no file with two columns that differ by case alone
        for column in sorted(column for column in schema.names if column.lower() in taken):
            added = f"{column!r} is added by flumina itself"
            added += "" if column in taken else f", as {column.lower()!r}, and Spark does not look at case"
            yield Problem("RESERVED_COLUMN", f"output {name!r}: {added}", where)
        spelt: dict[str, str] = {}
        for column in schema.names:
            if spelt.setdefault(column.lower(), column) != column:
                both = f"columns {spelt[column.lower()]!r} and {column!r} differ by case only, which Spark can't read"
                yield Problem("BAD_SCHEMA", f"output {name!r}: {both}", where, "rename one of them")
        plain = str(name).isidentifier() and not str(name).startswith("_") and not keyword.iskeyword(str(name))
        if not plain or name in ("columns", "event", "batch", "items", "drain"):
            yield Problem("RESERVED_NAME", f"an output can't be called {name!r}", where)


def _signatures(members: Members, where: str) -> Iterator[Problem]:
    methods = [(m, name, PARAMETERS[name]) for name, m in members.items() if name in PARAMETERS]
    methods += [(members[name], "update", PARAMETERS["update"]) for name in handlers_of(members)]
    methods += [
        (m, decoration.role, PARAMETERS[decoration.role])
        for m in members.values()
        for decoration in getattr(m, "__flumina__", ())
    ]
    for method, role, parameters in methods:
        if isinstance(method, Tag | Field | StateType):
            continue  # a reserved name
        if not inspect.isfunction(method):
            message = f"{role} must be a plain method, got a {type(method).__name__}"
            yield Problem("BAD_SIGNATURE", message, where, f"write def {role}({', '.join(parameters)})")
            continue
        flags = inspect.unwrap(method).__code__.co_flags
        if flags & (_ASYNC | inspect.CO_GENERATOR):
            what = "async def" if flags & _ASYNC else "a generator (it has yield)"
            message = f"{method.__name__} as {role} must be a plain function, but is {what}"
            yield Problem("BAD_SIGNATURE", message, location_of(method))
            continue
        try:
            inspect.signature(method).bind(*parameters)
        except TypeError as error:
            shape = f"def {method.__name__}({', '.join(parameters)})"
            message = f"{method.__name__} as {role} must take {shape}: {error}"
            yield Problem("BAD_SIGNATURE", message, location_of(method))
            continue
        yield from find_side_effects(role, method, members)


def _misspelled(cls: type[_ProgramClass], members: Members) -> Iterator[Problem]:
    """Find misspellings in the methods that get events."""
    tags = cls._tags
    keyed = {name: tag for name, tag in tags.items() if tag.key is not None}
    unkeyed = {name: tag for name, tag in tags.items() if tag.key is None}
    some = keyed if cls._one_key else tags
    given = {"update": some, "update_batch": some, "update_all": unkeyed if cls._one_key else {}}
    methods = [(name, name, given[name]) for name in given if name in members]
    methods += [
        (name, "update", {t.name: t for t in of if t in tags.values()}) for name, of in handlers_of(members).items()
    ]
    if state_types(members):
        methods = [
            (
                name,
                decoration.role,
                {n: t for n, t in tags.items() if any(not s.tags or t in s.tags for s in decoration.types)},
            )
            for name, decoration in decorations(members)
            if decoration.role in given
        ]
    for name, role, of in methods:
        if inspect.isfunction(members[name]) and _takes(members[name], PARAMETERS[role]):
            yield from misspellings(name, role, members[name], cls, of, _schemas(cls), cls._fields)


def _takes(method: Callable[..., Any], parameters: tuple[str, ...]) -> bool:
    try:
        inspect.signature(method).bind(*parameters)
    except TypeError:
        return False
    return True


def _schemas(cls: type[_ProgramClass]) -> dict[str, Schema] | None:
    """Return the outputs; None if they can't be read."""
    given = {ONLY_OUTPUT: cls.output} if isinstance(cls.output, str) else cls.output
    try:
        return {name: Schema.parse(ddl) for name, ddl in given.items()}
    except (AttributeError, SchemaError):
        return None


def _state(cls: type[_ProgramClass], members: Members, where: str) -> Iterator[Problem]:
    types, fields = state_types(members), cls._fields
    own = [n for n in ("init", "fork", "join") if not isinstance(members.get(n), Tag | Field | StateType | None)]
    if types and fields:
        yield Problem("MIXED_STATE", "the program has both declared fields and state types; choose one", where)
        return
    if types and handlers_of(members):
        hint = "mark an update for each state type with @fl.update"
        yield Problem("MIXED_STATE", "the program has both state types and handlers of tags", where, hint)
        return
    if types and cls._one_key:
        hint = "write it as a fl.Program whose state types hold maps from keys"
        yield Problem("MIXED_STATE", "a keyed program has one state type, that of one key", where, hint)
        return
    if fields and own:
        yield Problem(
            "MIXED_STATE", f"fork and join follow from the fields, but {', '.join(own)} is defined too", where
        )
    elif types:
        yield from _typed(cls, members, types, where)
        return
    elif not fields and not _classes(members):
        hint = "declare fields (fl.Sum, fl.Replicated, ...) to have them derived, or write them"
        for name in ("init", "fork", "join"):
            if name not in members:
                yield Problem("NO_" + name.upper(), f"the program has no fields and no {name}", where, hint)
    if handlers_of(members):
        yield from check_handlers(members, cls._tags, where, one_key=cls._one_key)
    elif "update" not in members:
        hint = "or mark a method for each tag with @fl.on(tag)"
        yield Problem("NO_UPDATE", "the program has no update(self, state, event, emit)", where, hint)
    if cls._one_key:
        yield from _one_key(cls, members, where)


def _one_key(cls: type[_ProgramClass], members: Members, where: str) -> Iterator[Problem]:
    keys = {tag.key.type for tag in cls._tags.values() if tag.key is not None and not isinstance(tag, Tick)}
    if cls._tags and not keys:
        yield Problem(
            "NO_KEY", "a keyed program needs a tag with key=", where, "use fl.Program for programs without keys"
        )
    if len(keys) > 1:
        yield Problem("KEY_TYPES", f"the tags have different key types: {sorted(type_name(k) for k in keys)}", where)
    unkeyed = [tag.name for tag in cls._tags.values() if tag.key is None]
    if unkeyed and "update_all" not in members and not handlers_of(members):
        message = f"tags without a key ({', '.join(unkeyed)}) need update_all(self, states, event, emit)"
        yield Problem("NO_UPDATE", message, where)


def _typed(cls: type[_ProgramClass], members: Members, types: Mapping[str, StateType], where: str) -> Iterator[Problem]:
    first = next(iter(types.values()))
    if first.tags:
        yield Problem(
            "INITIAL_TYPE",
            f"{first.name} is the first state type, so it takes all events",
            first.where,
            "write fl.StateType() without tags",
        )
    decorated = decorations(members)
    for name, decoration in decorated:
        for t in decoration.types:
            if t not in types.values():
                yield Problem(
                    "UNDECLARED_TYPE", f"{name} is marked for a state type of another class", location_of(members[name])
                )
    for t in types.values():
        updates = [name for name, decoration in decorated if decoration.role == "update" and t in decoration.types]
        if len(updates) > 1:
            yield Problem("TWO_UPDATES", f"state type {t.name} has the updates {', '.join(updates)}", t.where)
        if not updates:
            yield Problem(
                "NO_UPDATE", f"state type {t.name} has no update", t.where, f"mark one with @fl.update({t.name})"
            )
        for tag in t.tags:
            if tag not in cls._tags.values():
                yield Problem("UNDECLARED_TAG", f"state type {t.name} names a tag that is not declared", t.where)
    yield from _wiring(members, types, decorated)
    if "init" not in members:
        yield Problem("NO_INIT", f"the program has no init(self) that makes a {first.name}", where)


def _wiring(
    members: Members, types: Mapping[str, StateType], decorated: list[tuple[str, Decoration]]
) -> Iterator[Problem]:
    """Check that forks reach every type from the first, and that a join undoes every fork."""
    forks = [(name, decoration.types) for name, decoration in decorated if decoration.role == "fork"]
    joins = {decoration.types for _, decoration in decorated if decoration.role == "join"}
    reached = {next(iter(types.values()))}
    while more := {t for _, (source, *into) in forks if source in reached for t in into} - reached:
        reached |= more
    for t in types.values():
        if t not in reached:
            yield Problem("UNREACHABLE_STATE", f"no fork leads from the first state type to {t.name}", t.where)
    for name, (source, left, right) in forks:
        if (left, right, source) not in joins:
            missing = f"@fl.join(({left.name}, {right.name}), {source.name})"
            yield Problem(
                "NO_JOIN", f"{name} has no join that undoes it", location_of(members[name]), f"mark one with {missing}"
            )
    if not forks:
        first = next(iter(types.values()))
        yield Problem("NO_FORK", "the program has state types but no fork", first.where)
