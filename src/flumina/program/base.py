"""Turn a user's class, written at one of three levels, into a definition.

(a) *Declared state*: fields of :mod:`flumina.state.fields`; fork and join are derived.
(b) *Own state*: ``init``, ``fork(state, left, right)`` and ``join(left, right)``.
(c) *Several state types*: :class:`StateType` members, and methods marked with :func:`update`,
    :func:`update_batch`, :func:`fork` and :func:`join`.

All three become a :class:`~flumina.program.definition.Definition`. Mistakes are found when the class is made, all at
once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from flumina.errors import DefinitionError, FluminaError, Problem, UsageError
from flumina.model.depends import Atom, Declaration, Dependence, FunctionDependence, RuleDependence
from flumina.model.emit import ONLY_OUTPUT
from flumina.model.schema import Schema
from flumina.model.tag import Tag, user_line
from flumina.model.tag_set import TagSet
from flumina.model.tick import TTL, TTL_NAME, Expiry, Tick
from flumina.program.analysis.declarations import check_declarations
from flumina.program.analysis.field_accesses import accesses
from flumina.program.analysis.function_source import Tags
from flumina.program.analysis.tick_declarations import check_expiry, check_ttl, hidden_tag, read_ttl
from flumina.program.declared_state import DeclaredState
from flumina.program.decorators import StateType, decorations, members_of, state_types
from flumina.program.definition import RAISED, Definition, Fork, Join, StateKind, user_error
from flumina.program.handlers import Dispatch, handled_by, handlers_of
from flumina.program.ticks import Ticking, TickRule
from flumina.state.fields import ADD, SET, Field, Max

_reviving: ContextVar[bool] = ContextVar("reviving", default=False)


@contextmanager
def reviving() -> Iterator[None]:
    """Skip checks for classes made within: copies of checked classes, filled in afterwards."""
    token = _reviving.set(True)
    try:
        yield
    finally:
        _reviving.reset(token)


if TYPE_CHECKING:
    from typing import Generic

    from typing_extensions import TypeVar

    from flumina.model.batch import Batch
    from flumina.model.emit import Emit
    from flumina.model.event import Event

    StateT = TypeVar("StateT", default=Any)  # a class that declares no type of its state is accepted

    class _Methods(Generic[StateT]):
        """Declare the methods that a program may write, for editors and type checkers.

        They do not exist at run time, so that a class has exactly the methods that its author wrote.
        """

        def init(self) -> StateT:
            """Return the initial state; derived where state is declared by fields."""
            raise NotImplementedError

        def update(self, state: StateT, event: Event, emit: Emit) -> StateT | None:
            """Handle one event: change ``state`` or return another one, and call ``emit`` for outputs."""
            raise NotImplementedError

        def update_batch(self, state: StateT, batch: Batch, emit: Emit) -> StateT | None:
            """Handle a run of events of one tag at once; optional, and the same as ``update`` for each of them."""
            raise NotImplementedError

        def fork(self, state: StateT, left: TagSet, right: TagSet) -> tuple[StateT, StateT]:
            """Divide a state between workers for the tags ``left`` and ``right``; derived for declared fields."""
            raise NotImplementedError

        def join(self, left: StateT, right: StateT) -> StateT:
            """Undo a fork, with what both sides have done since; derived for declared fields."""
            raise NotImplementedError

else:
    StateT = Any

    class _Methods:
        """Take the type of the state, ``Program[State]``, which matters to type checkers only."""

        def __class_getitem__(cls, _state: object) -> type:
            return cls


class Program(_Methods[StateT]):
    """Base of all programs: subclass it, declare tags, ``depends``, ``output`` and state, and write ``update``.

    ``update(self, state, event, emit)`` is called for every event. Where state is not declared by fields, write
    ``init(self)``, ``fork(self, state, left, right)`` and ``join(self, left, right)``, too. ``update_batch(self, state,
    batch, emit)`` is optional. ``class Totals(fl.Program[dict[str, int]])`` tells type checkers what the state is; with
    declared fields it is a :class:`flumina.State`. :func:`flumina.on` marks methods for tags in place of ``update``.

    Class attributes that mean something besides tags and fields:

    ``depends``    what :func:`flumina.model.depends` returns, or a function of two :class:`~flumina.model.depends.Atom`
    ``output``     the columns of the only output, or a dict of named outputs
    ``tolerance``  relative error within which floats count as equal when laws are checked; exact by default
    ``examples``   for the law checker: column name to a list of values worth trying
    ``ttl``        how long a key of a :class:`~flumina.KeyedProgram` lives: a :class:`~flumina.TTL` or a duration
    """

    depends: ClassVar[Any]  # to type checkers, a function of two atoms in a class body looks like a method
    output: ClassVar[str | Mapping[str, str]] = {}
    tolerance: ClassVar[float] = 0.0
    examples: ClassVar[Mapping[str, Collection[object]]] = {}

    _tags: ClassVar[dict[str, Tag]]
    _fields: ClassVar[dict[str, Field]]
    _declared: ClassVar[DeclaredState | None]
    _touching: ClassVar[Mapping[str, frozenset[str]]] = {}
    """With a ttl: the tags that touch a field at all, and those that prolong the life of a key."""
    _abstract: ClassVar[bool] = True

    _one_key: ClassVar[bool] = False
    """Whether the class is written for one key and lifted (KeyedProgram)."""

    def __init_subclass__(cls, *, abstract: bool = False, **kwargs: object) -> None:
        """Read the class body and report every mistake in it; ``abstract=True`` leaves that to subclasses."""
        super().__init_subclass__(**kwargs)
        if _reviving.get():
            return
        members = members_of(cls, Program)
        cls._tags = {name: m for name, m in members.items() if isinstance(m, Tag)}
        cls._fields = {name: m for name, m in members.items() if isinstance(m, Field)}
        cls._declared = None
        cls._abstract = abstract
        if abstract:
            return
        where = user_line()
        problems = check_declarations(cls, members, where)
        expiry, ttl, wrong = cls._read_ttl(members, where)
        problems += wrong
        if cls._fields and not {p.condition for p in problems} & _BLIND:
            if expiry is not None and ttl is not None and not wrong:
                cls._add_ttl(expiry, ttl, members)
            cls._declared, unsafe = DeclaredState.derive(
                cls,
                cls._tags,
                cls._fields,
                cls._dependence(),
                cls._updates(members, cls._tags, keyed=cls._one_key or None),
                one_key=cls._one_key,
                touching=sorted(cls._touching.get("prolongs", ())),
            )
            problems += unsafe
        if problems:
            raise DefinitionError(cls.__qualname__, problems)

    @classmethod
    def _read_ttl(cls, members: dict[str, Any], where: str) -> tuple[Expiry | None, TTL | None, list[Problem]]:
        """Return the hidden tag of a ttl, what was declared, and all mistakes in it."""
        cls._touching = {}
        given = members.get(TTL_NAME)
        ttl, expiry, problems = None, None, list[Problem]()
        if given is not None and not isinstance(given, Tag | Field | StateType):
            ttl, problems = read_ttl(given, where)
        if ttl is not None:
            expiry = hidden_tag(ttl, cls._tags)
            problems += check_ttl(ttl, expiry, cls._tags, cls._fields, one_key=cls._one_key)
        if inspect.isfunction(members.get("update")) or handlers_of(members):
            problems += check_expiry(cls, expiry, cls._fields)
        return expiry, ttl, problems

    @classmethod
    def _add_ttl(cls, expiry: Expiry, ttl: TTL, members: dict[str, Any]) -> None:
        """Add the hidden tag and the hidden field of a ttl."""
        keyed = {name: tag for name, tag in cls._tags.items() if tag.key is not None}
        found, _ = accesses(cls._updates(members, keyed, keyed=True), cls, keyed, cls._fields)
        touch = {access.tag for access in found} | (cls._tags.keys() - keyed.keys())
        changed = {a.tag for a in found if a.kind in (ADD, SET) and not isinstance(cls._tags[a.tag], Tick)}
        prolongs = changed if ttl.touched_by is None else {tag.name for tag in ttl.touched_by}
        cls._touching = {"touches": frozenset(touch | prolongs), "prolongs": frozenset(prolongs)}
        until = Max("long")
        until.name, until.where = TTL_NAME, ttl.where
        cls._tags = {**cls._tags, TTL_NAME: expiry}
        cls._fields = {**cls._fields, TTL_NAME: until}

    @classmethod
    def _updates(
        cls, members: dict[str, Any], tags: Mapping[str, Tag], *, keyed: bool | None
    ) -> dict[Callable[..., object], Tags]:
        """Return the methods that handle events, with the tags of these."""
        return {getattr(cls, name): of for name, of in handled_by(members, tags, keyed=keyed).items()}

    @classmethod
    def _dependence(cls) -> Dependence:
        declared = inspect.getattr_static(cls, "depends")
        touch = cls._touching.get("touches")
        if isinstance(declared, Declaration):
            if touch is not None:
                pairs = tuple((cls._tags[TTL_NAME], cls._tags[name]) for name in sorted({*touch, TTL_NAME}))
                declared = replace(declared, pairs=(*declared.pairs, *pairs))
            return RuleDependence.bind(declared)
        function = declared.__func__ if isinstance(declared, staticmethod) else declared
        if touch is not None:
            function = _with_ttl(function, {*touch, TTL_NAME})
        try:
            return FunctionDependence(function, list(cls._tags.values()))
        except RAISED as error:
            raise user_error(function, error) from error

    @classmethod
    def _outputs(cls) -> dict[str, Schema]:
        given = {ONLY_OUTPUT: cls.output} if isinstance(cls.output, str) else cls.output
        return {name: Schema.parse(ddl) for name, ddl in given.items()}

    def _define(self) -> Definition:
        members = members_of(type(self), Program)
        kinds, initial, init, forks, joins = self._typed(members) if state_types(members) else self._untyped()
        declared = type(self)._declared
        return Definition(
            name=type(self).__qualname__,
            tags=self._tags,
            depends=self._dependence(),
            outputs=self._outputs(),
            kinds=kinds,
            initial=initial,
            init=init,
            forks=forks,
            joins=joins,
            adding=frozenset() if declared is None else declared.adding,
            is_initial=None if declared is None else declared.is_initial,
            untouched=None if declared is None else declared.untouched,
            narrow=None if declared is None else declared.narrow,
            ticking=self._ticking(),
            tolerance=self.tolerance,
            examples={name: tuple(values) for name, values in self.examples.items()},
        )

    def _ticking(self) -> Ticking | None:
        """Return the rules of the program's ticks; None without ticks."""
        ticks = {name: tag for name, tag in self._tags.items() if isinstance(tag, Tick)}
        if not ticks:
            return None
        me: Any = self
        declared = type(self)._declared
        rules = {
            name: TickRule(
                tag,
                None if declared is None else {field: declared.fields[field] for field in declared.touched[name]},
                me.init if declared is None else declared.init,
            )
            for name, tag in ticks.items()
        }
        expiry = ticks.get(TTL_NAME)
        return Ticking(
            rules,
            expiry if isinstance(expiry, Expiry) else None,
            self._touching.get("prolongs", frozenset()),
            getattr(self, "on_expire", None),
        )

    def _untyped(self) -> _Parts:
        """Define one state type: declared fields, or the user's own init, fork and join."""
        me: Any = self
        declared, ticking = type(self)._declared, self._ticking()
        source: Any = declared or me
        everything = TagSet.all_of(self._tags.values())
        handlers = handled_by(members_of(type(self), Program), self._tags, keyed=self._one_key or None)
        update = me.update if "update" in handlers else Dispatch(self, handlers)
        batch = getattr(self, "update_batch", None)
        if ticking is not None:
            update, batch = ticking.update(update), None if batch is None else ticking.update_batch(batch)
        resets = declared is not None and _mentions_reset(type(self))
        kind = StateKind("State", everything, update, batch, declared.init if declared is not None and resets else None)
        return (
            {kind.name: kind},
            kind.name,
            source.init,
            (Fork(kind.name, kind.name, kind.name, source.fork),),
            (Join(kind.name, kind.name, kind.name, source.join),),
        )

    def _typed(self, members: dict[str, Any]) -> _Parts:
        """Define several state types from decorated methods (level (c))."""
        types = state_types(members)
        decorated = [(decoration, getattr(self, name)) for name, decoration in decorations(members)]
        by_role: dict[tuple[str, str], Any] = {
            (decoration.role, t.name): method
            for decoration, method in decorated
            if decoration.role in ("update", "update_batch")
            for t in decoration.types
        }
        kinds = {
            name: StateKind(
                name,
                TagSet.all_of(t.tags or self._tags.values()),
                by_role["update", name],
                by_role.get(("update_batch", name)),
            )
            for name, t in types.items()
        }
        names = [(decoration.role, [t.name for t in decoration.types], method) for decoration, method in decorated]
        forks = tuple(Fork(ns[0], ns[1], ns[2], method) for role, ns, method in names if role == "fork")
        joins = tuple(Join(ns[0], ns[1], ns[2], method) for role, ns, method in names if role == "join")
        me: Any = self
        return kinds, next(iter(types)), me.init, forks, joins


def _with_ttl(function: Callable[[Atom, Atom], bool], touch: Collection[str]) -> Callable[[Atom, Atom], bool]:
    """Return a dependence function that knows the hidden ticks of a ttl, too."""

    def depends(a: Atom, b: Atom) -> bool:
        if TTL_NAME in (a.tag.name, b.tag.name):
            return a.tag.name in touch and b.tag.name in touch and (a.key == b.key or None in (a.key, b.key))
        return function(a, b)

    return depends


def _mentions_reset(cls: type) -> bool:
    """Return whether a method of the class, or a function within one, may call :func:`flumina.reset`."""
    waiting = [m.__code__ for base in cls.__mro__ for m in vars(base).values() if inspect.isfunction(m)]
    while waiting:
        code = waiting.pop()
        if "reset" in (*code.co_names, *code.co_freevars):
            return True
        waiting += [inner for inner in code.co_consts if inspect.iscode(inner)]
    return False


_BLIND = frozenset(
    {
        "TICK_STATE",
        "TICK_KEY",
        "DUE_FIELD",
        "NO_TAGS",
        "NO_PARENTHESES",
        "NO_DEPENDS",
        "BAD_DEPENDS",
        "UNDECLARED_TAG",
        "UNBOUNDED_KEYS",
        "NO_UPDATE",
        "BAD_SIGNATURE",
        "BAD_KEY",
        "HANDLER_KEYS",
        "MIXED_UPDATE",
        "NO_HANDLER",
        "TWO_HANDLERS",
        "MIXED_STATE",
        "RESERVED_NAME",
        "TWO_NAMES",
    }
)
"""Mistakes after which fork and join can't be derived."""

_Parts = tuple[dict[str, StateKind], str, Callable[[], Any], tuple[Fork, ...], tuple[Join, ...]]

AnyProgram = Program | type[Program] | Definition


def _instance(cls: type[Program]) -> Program:
    try:
        return cls()
    except FluminaError:
        raise
    except RAISED as error:
        raise user_error(cls, error) from error


def define(program: AnyProgram) -> Definition:
    """Return the definition of a program given as a class, an instance or a definition."""
    if isinstance(program, Definition):
        return program
    if isinstance(program, type) and issubclass(program, Program):
        if inspect.signature(program).parameters and any(
            p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
            for p in inspect.signature(program).parameters.values()
        ):
            raise UsageError("NEEDS_ARGUMENTS", f"{program.__qualname__} takes arguments; pass an instance of it")
        program = _instance(program)
    if not isinstance(program, Program):
        raise UsageError("NOT_A_PROGRAM", f"expected a flumina.Program, got {program!r}")
    if type(program)._abstract:
        raise UsageError("ABSTRACT_PROGRAM", f"{type(program).__qualname__} is abstract; use a subclass of it")
    return program._define()
