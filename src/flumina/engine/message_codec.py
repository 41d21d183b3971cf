"""Encode messages between workers as bytes, without copies of large buffers.

Messages become plain tuples, states are pickled, columns are sent as they are in memory. Large buffers (numpy, Arrow)
are sent beside the pickle, so that neither end copies them. Objects that every task has (the program's tags, fields and
classes) are sent as numbers, so that states which refer to them stay small. Numbers follow from names, not from the
order of lines in the class: a stored state may be read after lines have moved.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa

from flumina.errors import UsageError
from flumina.model.batch import Batch
from flumina.model.order import Ints, Point
from flumina.model.tag import Tag
from flumina.model.tick import Horizon
from flumina.program.declared_state import DeclaredState
from flumina.program.definition import Definition, initial_state
from flumina.runtime.messages import (
    Credit,
    Data,
    ForkState,
    Item,
    KeyStates,
    Message,
    Origin,
    Request,
    Response,
    Shown,
    Stop,
)
from flumina.runtime.run import EMPTY, Run
from flumina.runtime.worker import Address
from flumina.state.fields import Field
from flumina.state.keyed_map import FloatSet, KeyedMap, ValueSet
from flumina.state.record import Record

Buffer = bytes | bytearray | memoryview
EncodedMessage = tuple[Address, Address, Message]
"""Receiver, sender, message."""

APART = 8192
"""Buffers of this many bytes and more are sent beside the pickle."""


class Codec:
    """Encoder and decoder of messages and states of one program; both ends use the same program."""

    def __init__(self, definition: Definition, streams: Sequence[str]) -> None:
        self.tags = definition.tags
        self.streams = tuple(streams)
        named = sorted(_shared(definition), key=itemgetter(0))
        self.shared = [what for _, what in named]
        self.numbers = {id(what): number for number, what in reversed([*enumerate(self.shared)])}

    def encode(self, messages: Iterable[EncodedMessage], sizes: dict[str, int] | None = None) -> list[Buffer]:
        """Encode messages as pickles and buffers beside them; add the size of states by sender to ``sizes``."""
        apart: list[Buffer] = []

        def keep_inside(buffer: pickle.PickleBuffer) -> bool:
            view = buffer.raw()
            if view.nbytes < APART:
                return True
            apart.append(view)
            return False

        file = io.BytesIO()
        pickler = _Pickler(file, self.numbers, keep_inside)
        for to, sender, message in messages:
            began, before = file.tell(), len(apart)
            pickler.dump((to, sender, *_plain(message)))
            if sizes is not None and isinstance(message, Response | ForkState | KeyStates):
                assert isinstance(sender, str)
                size = file.tell() - began + sum(map(len, apart[before:]))
                sizes[sender] = sizes.get(sender, 0) + size
        return [file.getbuffer(), *apart]

    def decode(self, buffers: Sequence[Buffer]) -> Iterator[EncodedMessage]:
        """Decode the messages of a frame."""
        first, *apart = buffers
        file = io.BytesIO(first)
        unpickler = _Unpickler(file, self.shared, apart)
        while file.tell() < len(first):
            to, sender, kind, *fields = unpickler.load()
            yield to, sender, self._message(kind, fields)

    def pack(self, state: Any) -> bytes:  # noqa: ANN401 -- whatever the program's state is
        """Encode a single state, for a process that has the same program."""
        file = io.BytesIO()
        _Pickler(file, self.numbers, lambda _: True).dump(state)
        return file.getvalue()

    def unpack(self, packed: Buffer) -> Any:  # noqa: ANN401
        """Decode a state that :meth:`pack` encoded."""
        return _Unpickler(io.BytesIO(packed), self.shared, ()).load()

    def _message(self, kind: str, fields: list[Any]) -> Message:
        match kind:
            case "data":
                part, frontier, batch = fields
                run = EMPTY if batch is None else Run(batch=self._batch(*batch))
                return Data(part, run, Point._make(frontier))
            case "request":
                items, frontier, snapshot_frontier, shown, last = fields
                wanted = tuple(
                    Item(Point._make(point), cause, key, origin and Origin._make(origin))
                    for point, cause, key, origin in items
                )
                horizon = last and Horizon._make(last)
                return Request(wanted, Point._make(frontier), Point._make(snapshot_frontier), shown, horizon)
            case "response":
                point, state, settled, key, quiet = fields
                bounds = {cause: Point._make(bound) for cause, bound in settled.items()}
                return Response(Point._make(point), state, bounds, key, Point._make(quiet))
            case "fork_state":
                state, served, key = fields
                return ForkState(state, Point._make(served), key)
            case "states":
                return KeyStates(tuple(self._message(which, rest) for which, *rest in fields[0]))  # type: ignore[arg-type]
            case "shown":
                return Shown(*fields)
            case "credit":
                return Credit(*fields)
            case "stop":
                return Stop()
            case _:
                raise AssertionError(f"Expected a kind of message that the codec encodes, got {kind!r}")

    def _batch(
        self,
        tags: Sequence[str],
        tables: Sequence[Any],
        ts: Ints,
        rank: Ints | int,
        seq: Ints,
        table_of: Ints | None,
        row_of: Ints | None,
    ) -> Batch:
        known = tuple(self.tags[name] for name in tags)
        columns = tuple(_table_back(tag, table) for tag, table in zip(known, tables, strict=True))
        ranks = np.broadcast_to(np.int64(rank), len(ts)) if isinstance(rank, int) else rank
        return Batch(known, columns, ts, ranks, seq, self.streams, table_of, row_of)


Name = tuple[str, ...]


def _shared(definition: Definition) -> Iterator[tuple[Name, object]]:
    """Yield the objects that every task has and states may refer to, by unique names."""
    for label, one in (("all", definition), ("one", definition.lifted and definition.lifted.one)):
        if one:
            yield from (((label, "tag", name), tag) for name, tag in one.tags.items())
            owner = getattr(one.init, "__self__", None)
            yield (label, "owner"), owner
            if isinstance(owner, DeclaredState):
                for name, field in owner.fields.items():
                    yield from _fields((label, "field", name), field)
            yield (label, "type"), type(initial_state(one))
    yield ("lifted",), definition.lifted
    yield ("definition",), definition


def _fields(name: Name, field: Field) -> Iterator[tuple[Name, Field]]:
    yield name, field
    inside = (*getattr(field, "parts", ()), *((field.inner,) if hasattr(field, "inner") else ()))
    for number, part in enumerate(inside):
        yield from _fields((*name, f"{number:06d}"), part)


def _plain(message: Message) -> tuple[Any, ...]:
    """Convert a message to a tuple that pickles fast."""
    match message:
        case Data():
            batch = None
            if message.run:
                assert message.run.batch is not None, "engines work on columns"
                batch = _plain_batch(message.run.batch)
            return ("data", message.part, tuple(message.frontier), batch)
        case Request():
            items = [
                (tuple(item.point), item.cause, item.key, item.origin and tuple(item.origin)) for item in message.items
            ]
            frontiers = tuple(message.frontier), tuple(message.snapshot_frontier)
            return ("request", items, *frontiers, message.shown, message.last and tuple(message.last))
        case Response():
            settled = {cause: tuple(point) for cause, point in message.settled.items()}
            return ("response", tuple(message.point), message.state, settled, message.key, tuple(message.quiet))
        case ForkState():
            return ("fork_state", message.state, tuple(message.served), message.key)
        case KeyStates():
            return ("states", [_plain(one) for one in message.each])
        case Shown():
            return ("shown", message.ts)
        case Credit():
            return ("credit", message.part, message.events)
        case Stop():
            return ("stop",)


def _plain_batch(batch: Batch) -> tuple[Any, ...]:
    if batch.table_of is not None and batch.row_of is not None:
        batch = Batch.merge([batch])  # a slice refers to rows that are not in it
    rank: Ints | int = batch.rank
    if len(batch) and batch.rank.strides == (0,):
        rank = int(batch.rank[0])
    tables = [pickle.PickleBuffer(table.serialize()) if table.num_columns else table.num_rows for table in batch.tables]
    tags = [tag.name for tag in batch.tags]
    return (tags, tables, batch.ts, rank, batch.seq, batch.table_of, batch.row_of)


def _table_back(tag: Tag, table: Any) -> pa.RecordBatch:  # noqa: ANN401 -- whatever holds the bytes
    if isinstance(table, int):
        return pa.RecordBatch.from_struct_array(pa.array([{}] * table, pa.struct([])))
    return pa.ipc.read_record_batch(pa.py_buffer(table), tag.schema)


_OURS = {kind.__name__: kind for kind in (Record, KeyedMap, ValueSet, FloatSet)}
"""Classes of states by name: a checkpoint outlives a move of their modules."""


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc] # it ships no types
    def __init__(self, file: io.BytesIO, numbers: dict[int, int], apart: Callable[[pickle.PickleBuffer], bool]) -> None:
        super().__init__(file, protocol=5, buffer_callback=apart)
        self.shared_numbers = numbers

    def dump(self, what: object) -> None:
        try:
            super().dump(what)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise UsageError(
                "STATE_NOT_PICKLABLE",
                f"a state can't be sent to another process: {error}",
                hint="states are data: keep open files, locks and connections elsewhere",
            ) from error

    def reducer_override(self, obj: object) -> Any:  # noqa: ANN401
        number = self.shared_numbers.get(id(obj))
        if number is not None:
            return (_known, (number,))
        if type(obj) in _OURS.values():
            return NotImplemented
        return super().reducer_override(obj)


def _known(number: int) -> object:
    raise AssertionError(f"number {number} is looked up by the unpickler")


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, shared: Sequence[object], apart: Sequence[Buffer]) -> None:
        super().__init__(file, buffers=apart)
        self.shared = shared

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401
        if module.startswith("flumina."):
            if name == _known.__name__:
                return self.shared.__getitem__
            if name in _OURS:
                return _OURS[name]
        return super().find_class(module, name)
