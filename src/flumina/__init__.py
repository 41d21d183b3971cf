"""Flumina: stateful stream computations whose parallel workers agree, on PySpark.

Write a sequential program, say which events depend on which, declare the state; see the README.
"""

from flumina.check import check
from flumina.checkpoint.policy import Checkpoint, Since
from flumina.engine.job import Settings
from flumina.errors import (
    CalledOffError,
    CheckpointError,
    ClusterError,
    DefinitionError,
    FluminaError,
    FrameError,
    GangError,
    HandshakeError,
    InputError,
    LawError,
    OrderError,
    OutOfMemoryError,
    OutputError,
    PeerLostError,
    PlanError,
    SchemaError,
    TaskFailedError,
    TaskLostError,
    TaskSilentError,
    UsageError,
    UserCodeError,
)
from flumina.input.files import Parquet
from flumina.input.sources import Generated
from flumina.input.stream import Stream
from flumina.input.watermarks import BoundedDelay, ClosedBatches, Heartbeats, InOrder
from flumina.model.batch import Batch, repeat, total
from flumina.model.depends import Atom, depends
from flumina.model.emit import Emit
from flumina.model.event import Event
from flumina.model.order import Point
from flumina.model.tag import Tag
from flumina.model.tag_set import KeySet, TagSet
from flumina.output.outputs import NOWHERE
from flumina.program.base import Program, define
from flumina.program.decorators import StateType, fork, join, update, update_batch
from flumina.program.keyed import KeyedProgram
from flumina.spec import SpecResult, spec
from flumina.state.fields import Count, Field, Max, Min, PerKey, Replicated, Set, Sum, Tuple, greatest, least
from flumina.state.record import Record as State

__version__ = "0.1.0"

__all__ = [
    "NOWHERE",
    "Atom",
    "Batch",
    "BoundedDelay",
    "CalledOffError",
    "Checkpoint",
    "CheckpointError",
    "ClosedBatches",
    "ClusterError",
    "Count",
    "DefinitionError",
    "Emit",
    "Event",
    "Field",
    "FluminaError",
    "FrameError",
    "GangError",
    "Generated",
    "HandshakeError",
    "Heartbeats",
    "InOrder",
    "InputError",
    "KeySet",
    "KeyedProgram",
    "LawError",
    "Max",
    "Min",
    "OrderError",
    "OutOfMemoryError",
    "OutputError",
    "Parquet",
    "PeerLostError",
    "PerKey",
    "PlanError",
    "Point",
    "Program",
    "Replicated",
    "SchemaError",
    "Set",
    "Settings",
    "Since",
    "SpecResult",
    "State",
    "StateType",
    "Stream",
    "Sum",
    "Tag",
    "TagSet",
    "TaskFailedError",
    "TaskLostError",
    "TaskSilentError",
    "Tuple",
    "UsageError",
    "UserCodeError",
    "check",
    "define",
    "depends",
    "fork",
    "greatest",
    "join",
    "least",
    "repeat",
    "spec",
    "total",
    "update",
    "update_batch",
]
