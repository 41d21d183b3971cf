"""Options of a run: names, types, defaults and validation, once for every engine and for the command line.

``run`` takes the fields of :class:`RunOptions` as keyword arguments, ``flumina.spark.run`` those of
:class:`SparkRunOptions`; ``start`` adds its own in :mod:`flumina.streaming.options`. The ``...Arguments`` dictionaries
give type checkers and editors the same names and types, since a type checker can't derive them from a dataclass; a test
compares the two.
"""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypedDict, TypeVar, get_args

from flumina.checkpoint.policy import Checkpoint
from flumina.engine.hooks import NO_HOOKS, Hooks
from flumina.engine.liveness import INTERVAL, SPARK_TIMEOUT, WARN_AFTER, Liveness, check_timeout
from flumina.errors import UsageError
from flumina.input.dead_letters import BadRows
from flumina.plan.optimize import Optimizer, OptimizerName, check_optimizer, check_workers
from flumina.plan.tree import Plan
from flumina.runtime.topology import ProtocolOptions

OnLostSlots = Literal["fail", "shrink"]
"""Values of ``on_lost_slots=``."""


class Discard(Enum):
    """The type of :data:`DISCARD`."""

    DISCARD = "discard"


DISCARD = Discard.DISCARD
"""For ``out=``: outputs are validated and counted, but not stored."""


@dataclass(frozen=True)
class EngineOptions:
    """Sizes and times of the engine; the defaults are measured.

    ``chunk_rows``  rows that are read at a time
    ``window``      events of a part that may wait at a worker before the part is held back
    ``spin``        seconds for which a task polls for messages before it sleeps
    ``patience``    seconds that tasks wait for one another to appear
    ``protocol``    optimizations of the protocol that are used

    ``liveness_interval``  seconds between two signs of life that a task gives the driver
    ``warn_after``         seconds without one after which the driver warns of the task

    ``hooks``       for tests: called in the driver at every step of a streaming query's batch
    """

    chunk_rows: int = 131_072
    window: int = 262_144
    spin: float = 100e-6
    patience: float = 60.0
    protocol: ProtocolOptions = field(default_factory=ProtocolOptions)
    liveness_interval: float = INTERVAL
    warn_after: float = WARN_AFTER
    hooks: Hooks = field(default=NO_HOOKS, repr=False, compare=False)


class CommonArguments(TypedDict, total=False):
    """The fields of :class:`CommonOptions` as keyword arguments."""

    workers: int | None
    plan: Plan | str | Path | None
    optimizer: OptimizerName | Optimizer
    bad_rows: BadRows
    tls: bool
    task_timeout: float | None
    engine_options: EngineOptions


class RunArguments(CommonArguments, total=False):
    """The fields of :class:`RunOptions` as keyword arguments."""

    out: str | os.PathLike[str] | Discard | None
    filesystem: object
    overwrite: bool
    ordered: bool
    return_state: bool
    progress: bool | None
    checkpoint: Checkpoint | str | os.PathLike[str] | None


class SparkRunArguments(RunArguments, total=False):
    """The fields of :class:`SparkRunOptions` as keyword arguments."""

    on_lost_slots: OnLostSlots


@dataclass(frozen=True, kw_only=True)
class CommonOptions:
    """Options of runs and of streaming queries.

    ``workers``         workers that may run side by side; by default as many as there are cores or slots, or fewer
    ``plan``            a plan, or the path of a saved one, instead of a new one made by ``optimizer``
    ``optimizer``       how the plan is made: "cost", "greedy", "sequential", or a function
    ``bad_rows``        what happens to rows that do not fit their declaration: "error" ends the run, "dead-letter"
                        puts them aside
    ``tls``             encrypt the traffic between workers; on Spark always done where Spark encrypts its own
    ``task_timeout``    seconds without a sign of life after which a task is ended, None for no timeout; the driver
                        warns after 30 s. A long ``update`` does not count, unless one call in C holds Python's lock
    ``engine_options``  sizes and times of the engine: :class:`flumina.EngineOptions`
    """

    workers: int | None = None
    plan: Plan | str | Path | None = None
    optimizer: OptimizerName | Optimizer = "cost"
    bad_rows: BadRows = "error"
    tls: bool = False
    task_timeout: float | None = None
    engine_options: EngineOptions = field(default_factory=EngineOptions)

    taken_by: ClassVar[str] = "run"
    """The function that takes these options, for errors."""

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all options, in the order of declaration."""
        return [one.name for one in fields(cls)]

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        """Make options from keyword arguments; raise :class:`UsageError` for an unknown or invalid one."""
        for name in arguments:
            if name not in cls.names():
                near = difflib.get_close_matches(name, cls.names(), 1)
                hint = f"did you mean {near[0]}=?" if near else f"the options are {', '.join(cls.names())}"
                raise UsageError("UNKNOWN_OPTION", f"{cls.taken_by} has no option {name}=", hint=hint)
        return cls(**arguments)

    def __post_init__(self) -> None:
        """Validate every option; all of them raise a UsageError whose condition is the option's name in capitals."""
        check_workers(self.workers, self.plan)
        if not isinstance(self.plan, Plan | str | os.PathLike | None):
            raise expected("plan", "a plan, or the path of a saved one", self.plan)
        check_optimizer(self.optimizer)
        check_choice("bad_rows", self.bad_rows, BadRows)
        check_switch("tls", self.tls)
        check_timeout(self.task_timeout)
        if not isinstance(self.engine_options, EngineOptions):
            raise expected("engine_options", "a fl.EngineOptions", self.engine_options)

    @property
    def liveness(self) -> Liveness:
        """The interval between signs of life, and the limits of silence."""
        interval, timeout = self.engine_options.liveness_interval, self.task_timeout
        often = interval if timeout is None else min(interval, timeout / 3)
        return Liveness(often, self.engine_options.warn_after, timeout)


@dataclass(frozen=True, kw_only=True)
class RunOptions(CommonOptions):
    """Options of a run, besides those of :class:`CommonOptions`.

    ``out``           a folder for the outputs, as Parquet, that the driver and all tasks can reach; without it they
                      come back through the driver, which is for small ones; :data:`flumina.DISCARD` only counts them
    ``filesystem``    one of pyarrow's or fsspec's, in which ``out`` lies; by default the path or URI tells
    ``overwrite``     replace what is in ``out``, once the run has succeeded
    ``ordered``       give outputs in the order O of their events
    ``return_state``  also give the state after the last event
    ``progress``      False shows nothing; by default a line is shown on a terminal
    ``checkpoint``    a folder for snapshots that the driver and all tasks can reach, or a :class:`flumina.Checkpoint`
                      that also says when to take them: a run that was interrupted goes on from the last one when it is
                      called again, under any plan
    """

    taken_by: ClassVar[str] = "run on this machine"

    out: str | os.PathLike[str] | Discard | None = None
    filesystem: object = None
    overwrite: bool = False
    ordered: bool = False
    return_state: bool = False
    progress: bool | None = None
    checkpoint: Checkpoint | str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        """Validate these options, too."""
        super().__post_init__()
        if not isinstance(self.out, str | os.PathLike | Discard | None):
            raise expected("out", "the path of a folder, or fl.DISCARD", self.out)
        for name in ("overwrite", "ordered", "return_state"):
            check_switch(name, getattr(self, name))
        if self.progress is not None:
            check_switch("progress", self.progress)
        if self.checkpoint is None:
            return
        Checkpoint.of(self.checkpoint)
        if self.out is None:
            raise UsageError(
                "CHECKPOINT_OUT",
                "checkpoint= needs out=: outputs up to a snapshot have to be stored until the run is resumed",
                hint="pass out=PATH, a folder that all tasks and the driver can reach",
            )


@dataclass(frozen=True, kw_only=True)
class SparkRunOptions(RunOptions):
    """Options of a run on Spark, besides those of :class:`RunOptions`.

    ``task_timeout``   as before, but 600 s unless told otherwise: Spark tries again after it
    ``on_lost_slots``  what happens to a run with ``checkpoint`` whose cluster has fewer slots than before and gets no
                       others within ``EngineOptions(patience=...)`` seconds: "fail" raises an error, "shrink" goes on
                       with those that are left, from the last snapshot, under a new plan
    """

    task_timeout: float | None = SPARK_TIMEOUT
    on_lost_slots: OnLostSlots = "fail"

    taken_by: ClassVar[str] = "run on Spark"

    def __post_init__(self) -> None:
        """Validate these options, too."""
        super().__post_init__()
        check_on_lost_slots(self.on_lost_slots, self.plan)
        if self.on_lost_slots == "shrink" and self.checkpoint is None:
            raise UsageError(
                "LOST_SLOTS",
                "on_lost_slots='shrink' needs checkpoint=: the run goes on from the last snapshot",
                hint="pass checkpoint=PATH, a folder that all tasks and the driver can reach",
            )


def check_on_lost_slots(given: object, plan: object) -> None:
    """Raise unless ``on_lost_slots=`` is one of its values and fits ``plan=``."""
    check_choice("on_lost_slots", given, OnLostSlots)
    if given == "shrink" and plan is not None:
        raise UsageError(
            "LOST_SLOTS",
            "on_lost_slots='shrink' makes a new plan for the slots that are left, but plan= says which one to use",
            hint="leave out plan=, and say workers= or optimizer=",
        )


def expected(option: str, what: str, given: object) -> UsageError:
    """Make the error for an option with a value of another kind."""
    return UsageError(option.upper(), f"expected {option}= as {what}, got {given!r}")


def check_switch(option: str, given: object) -> None:
    """Raise unless an option is True or False."""
    if not isinstance(given, bool):
        raise expected(option, "True or False", given)


def check_choice(option: str, given: object, choices: Any) -> None:  # noqa: ANN401 -- a Literal has no type of its own
    """Raise unless an option is one of the values of a ``Literal``."""
    known = get_args(choices)
    if not isinstance(given, str) or given not in known:
        raise expected(option, " or ".join(map(repr, known)), given)


Function = TypeVar("Function", bound=Callable[..., Any])


def takes(options: type[CommonOptions]) -> Callable[[Function], Function]:
    """Spell out the options of a function in its runtime signature and docstring, for ``help()`` and notebooks."""

    def spelled_out(function: Function) -> Function:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        more = [
            inspect.Parameter(
                one.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=one.default_factory() if callable(one.default_factory) else one.default,
                annotation=one.type,
            )
            for one in fields(options)
        ]
        function.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        listed = [inspect.cleandoc(cls.__doc__ or "") for cls in reversed(options.__mro__) if cls is not object]
        function.__doc__ = "\n\n".join([inspect.cleandoc(function.__doc__ or ""), *listed])
        return function

    return spelled_out
