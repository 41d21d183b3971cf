"""Flumina: stateful stream computations whose parallel workers agree, on PySpark.

Write a sequential program, say which events depend on which, declare the state; see the README.
"""

from flumina.batch import Batch, repeat, total
from flumina.check import check
from flumina.depends import Atom, depends
from flumina.emit import Emit
from flumina.engine.job import Settings
from flumina.engine.outputs import NOWHERE
from flumina.engine.policy import Checkpoint, Since
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
from flumina.events import Event, Tag
from flumina.fields import Count, Field, Max, Min, PerKey, Replicated, Set, Sum, Tuple, greatest, least
from flumina.files import Parquet
from flumina.keyed import KeyedProgram
from flumina.marks import StateType, fork, join, update, update_batch
from flumina.order import Point
from flumina.program import Program, define
from flumina.sources import Generated
from flumina.spec import Result, spec
from flumina.state import Record as State
from flumina.streaming.frontier import BoundedDelay, ClosedBatches, Heartbeats, InOrder
from flumina.streams import Stream
from flumina.tagsets import KeySet, TagSet

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
    "Result",
    "SchemaError",
    "Set",
    "Settings",
    "Since",
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
