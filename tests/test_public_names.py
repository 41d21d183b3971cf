"""What ``import flumina as fl`` offers: adding or removing a name is a decision, made here."""

import inspect

import flumina as fl

NAMES = [
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
    "NOWHERE",
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


def test_the_list() -> None:
    assert sorted(fl.__all__) == NAMES
    assert len(fl.__all__) == len(set(fl.__all__))


def test_every_name_is_there_and_documented() -> None:
    for name in fl.__all__:
        member = getattr(fl, name)
        assert inspect.getdoc(member), name
        assert member.__module__.startswith("flumina."), name


def test_nothing_else_is_public() -> None:
    modules = {name for name, member in vars(fl).items() if inspect.ismodule(member)}
    assert {name for name in vars(fl) if not name.startswith("_")} - modules == set(fl.__all__)


def test_every_error_is_public() -> None:
    errors = {cls.__name__ for cls in fl.FluminaError.__subclasses__() if cls.__module__ == "flumina.errors"}
    assert errors <= set(fl.__all__)
