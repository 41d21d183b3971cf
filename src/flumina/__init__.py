"""Flumina: stateful stream computations whose parallel workers agree, on PySpark.

Write a sequential program, say which events depend on which, declare the state; see the README.
"""

import importlib
from typing import TYPE_CHECKING

from flumina.check import check
from flumina.checkpoint.policy import Checkpoint, CheckpointProgress
from flumina.errors import (
    CheckpointError,
    DefinitionError,
    FluminaError,
    InputError,
    LawError,
    OutputError,
    UsageError,
    UserCodeError,
)
from flumina.input.files import Parquet
from flumina.input.sources import GeneratorSource
from flumina.input.stream import Stream
from flumina.input.watermark_policy import BoundedDelay, ClosedBatches, Heartbeats, InOrder
from flumina.model.batch import Batch, repeat, total
from flumina.model.depends import Atom, depends
from flumina.model.duration import duration
from flumina.model.emit import Emit
from flumina.model.event import Event
from flumina.model.order import Point
from flumina.model.tag import Tag
from flumina.model.tag_set import KeySet, TagSet
from flumina.model.tick import TTL, AtEnd, Every, Window
from flumina.program.base import Program, define
from flumina.program.decorators import StateType, fork, join, update, update_batch
from flumina.program.handlers import on
from flumina.program.keyed import KeyedProgram
from flumina.spec import SpecResult, spec
from flumina.state.fields import Count, Field, Max, Min, PerKey, Replicated, Set, Sum, Tuple, greatest, least
from flumina.state.record import Record as State
from flumina.state.record import reset

if TYPE_CHECKING:
    from flumina.backend import run, start
    from flumina.engine.options import DISCARD, EngineOptions
    from flumina.engine.results import RunResult, RunStats
    from flumina.plan.tree import Plan

__version__ = "0.1.0"

__all__ = [
    "DISCARD",
    "TTL",
    "AtEnd",
    "Atom",
    "Batch",
    "BoundedDelay",
    "Checkpoint",
    "CheckpointError",
    "CheckpointProgress",
    "ClosedBatches",
    "Count",
    "DefinitionError",
    "Emit",
    "EngineOptions",
    "Event",
    "Every",
    "Field",
    "FluminaError",
    "GeneratorSource",
    "Heartbeats",
    "InOrder",
    "InputError",
    "KeySet",
    "KeyedProgram",
    "LawError",
    "Max",
    "Min",
    "OutputError",
    "Parquet",
    "PerKey",
    "Plan",
    "Point",
    "Program",
    "Replicated",
    "RunResult",
    "RunStats",
    "Set",
    "SpecResult",
    "State",
    "StateType",
    "Stream",
    "Sum",
    "Tag",
    "TagSet",
    "Tuple",
    "UsageError",
    "UserCodeError",
    "Window",
    "check",
    "define",
    "depends",
    "duration",
    "fork",
    "greatest",
    "join",
    "least",
    "on",
    "repeat",
    "reset",
    "run",
    "spec",
    "start",
    "total",
    "update",
    "update_batch",
]

_ON_DEMAND = {
    "DISCARD": "flumina.engine.options",
    "EngineOptions": "flumina.engine.options",
    "Plan": "flumina.plan.tree",
    "RunResult": "flumina.engine.results",
    "RunStats": "flumina.engine.results",
    "run": "flumina.backend",
    "start": "flumina.backend",
}
"""Names whose modules bring the engine with them: imported when they are first used, so that programs load fast."""


if not TYPE_CHECKING:  # else a misspelt name would have a type

    def __getattr__(name: str) -> object:
        """Import a name of the engine when it is first used."""
        if name not in _ON_DEMAND:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found: object = getattr(importlib.import_module(_ON_DEMAND[name]), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    """List the public names, those that are imported on demand among them."""
    return sorted({*globals(), *__all__})
