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
from typing import TYPE_CHECKING, Any, ClassVar

from flumina.errors import DefinitionError, FluminaError, UsageError
from flumina.model.depends import Declaration, Dependence, FunctionDependence, RuleDependence
from flumina.model.emit import ONLY_OUTPUT
from flumina.model.schema import Schema
from flumina.model.tag import Tag, user_line
from flumina.model.tag_set import TagSet
from flumina.program.analysis.declarations import check_declarations
from flumina.program.declared_state import DeclaredState
from flumina.program.decorators import decorations, members_of, state_types
from flumina.program.definition import RAISED, Definition, Fork, Join, StateKind, user_error
from flumina.state.fields import Field

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
    declared fields it is a :class:`flumina.State`.

    Class attributes that mean something besides tags and fields:

    ``depends``    what :func:`flumina.model.depends` returns, or a function of two :class:`~flumina.model.depends.Atom`
    ``output``     the columns of the only output, or a dict of named outputs
    ``tolerance``  relative error within which floats count as equal when laws are checked; exact by default
    ``examples``   for the law checker: column name to a list of values worth trying
    """

    depends: ClassVar[Any]  # to type checkers, a function of two atoms in a class body looks like a method
    output: ClassVar[str | Mapping[str, str]] = {}
    tolerance: ClassVar[float] = 0.0
    examples: ClassVar[Mapping[str, Collection[object]]] = {}

    _tags: ClassVar[dict[str, Tag]]
    _fields: ClassVar[dict[str, Field]]
    _declared: ClassVar[DeclaredState | None]
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
        problems = check_declarations(cls, members, user_line())
        if cls._fields and not {p.condition for p in problems} & _BLIND:
            cls._declared, unsafe = DeclaredState.derive(
                cls, cls._tags, cls._fields, cls._dependence(), one_key=cls._one_key
            )
            problems += unsafe
        if problems:
            raise DefinitionError(cls.__qualname__, problems)

    @classmethod
    def _dependence(cls) -> Dependence:
        declared = inspect.getattr_static(cls, "depends")
        if isinstance(declared, Declaration):
            return RuleDependence.bind(declared)
        function = declared.__func__ if isinstance(declared, staticmethod) else declared
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
            tolerance=self.tolerance,
            examples={name: tuple(values) for name, values in self.examples.items()},
        )

    def _untyped(self) -> _Parts:
        """Define one state type: declared fields, or the user's own init, fork and join."""
        me: Any = self
        source: Any = type(self)._declared or me
        everything = TagSet.all_of(self._tags.values())
        kind = StateKind("State", everything, me.update, getattr(self, "update_batch", None))
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


_BLIND = frozenset(
    {
        "NO_TAGS",
        "NO_PARENTHESES",
        "NO_DEPENDS",
        "BAD_DEPENDS",
        "UNDECLARED_TAG",
        "UNBOUNDED_KEYS",
        "NO_UPDATE",
        "BAD_SIGNATURE",
        "BAD_KEY",
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
