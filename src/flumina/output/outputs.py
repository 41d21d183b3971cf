"""What a run writes: the columns of each output on the way and at the end, and what tasks report to the driver.

The driver makes one :class:`Outputs`, which travels to the tasks. Each attempt of a task writes through a
:class:`~flumina.output.writer.Sink`, which gives a :class:`Manifest`; :func:`~flumina.output.commit.publish` makes the
results of the attempts that counted visible.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from flumina.errors import OutputError, UsageError
from flumina.input.dead_letters import SCHEMA
from flumina.model.emit import EVENT_COLUMNS, ONLY_OUTPUT
from flumina.model.order import Point
from flumina.model.schema import Schema
from flumina.storage.output_directory import OutputDirectory
from flumina.storage.recovery import recover

INLINE_LIMIT = 64 << 20
"""How many bytes one task sends back where there is no place for files."""

GROUP_ROWS = 1 << 19
"""Rows of a row group: dictionaries are made for each, so that short ones cost time and space."""

DEAD_LETTERS = "_dead_letters"
"""The output, and the folder below the results, that rows are put into which can't be read.

No output of a program can be called so, and readers of the results pass over it: its name begins with an underscore.
"""

RANK = pa.field("event_rank", pa.int32(), nullable=False)
SEQ = pa.field("event_seq", pa.int64(), nullable=False)
"""What is needed to bring rows into O, and is left out of results."""

_RUN = re.compile(r"[\w.-]+", re.ASCII)


@dataclass(frozen=True)
class Outputs:
    """The outputs of one run: what they are, and where they go (``location`` None: back to the driver, inline).

    ``ts_type`` is the type of ``event_ts``, ``streams`` are the names of streams by rank. With ``ordered`` the results
    are in O, rows of one event in the order in which they were emitted.
    """

    schemas: Mapping[str, Schema]
    ts_type: pa.DataType
    streams: tuple[str, ...]
    run: str
    location: OutputDirectory | None = None
    ordered: bool = False
    inline_limit: int = INLINE_LIMIT
    compression: str = "none"
    group_rows: int = GROUP_ROWS
    kept: bool = True
    """Whether there is anything to publish; else rows are checked, counted and dropped."""
    checked: bool = False
    """Whether files are told by their checksums."""
    aside: bool = False
    """Whether rows that can't be read are put aside, as one more output."""

    def __post_init__(self) -> None:
        if not _RUN.fullmatch(self.run):
            raise UsageError("RUN_ID", f"the id of a run is a part of file names, got {self.run!r}")
        if self.location is not None and self.location.run != self.run:
            raise UsageError("RUN_ID", f"the location belongs to run {self.location.run}, not {self.run}")
        for name, schema in self.schemas.items():
            for column in schema.names:
                if column.lower() in {taken.name for taken in EVENT_COLUMNS}:
                    raise UsageError(
                        "RESERVED_COLUMN",
                        f"output {name!r} has a column {column!r}, which every output gets by itself",
                        hint="give the column another name",
                    )

    @property
    def names(self) -> tuple[str, ...]:
        """What there is to publish: the program's outputs and, if rows are put aside, these."""
        return (*self.schemas, *((DEAD_LETTERS,) if self.aside else ()))

    def is_ordered(self, name: str) -> bool:
        """Whether an output is given in O: dead letters have no place there."""
        return self.ordered and name != DEAD_LETTERS

    def prepare(self) -> None:
        """Check before the run that results can go where they should; the driver calls this once."""
        if self.location is not None:
            recover(self.location)
            self.location.prepare()

    def discard(self) -> None:
        """Delete everything that tasks have staged, after a failure."""
        if self.location is not None:
            self.location.discard()

    def final(self, name: str) -> pa.Schema:
        """The columns of a result: the declared ones, then when and where the causing event was."""
        if name == DEAD_LETTERS:
            return SCHEMA
        ts, stream = EVENT_COLUMNS
        return pa.schema([*self.schemas[name].fields, ts.with_type(self.ts_type), stream])

    def encoded(self, name: str) -> pa.Schema:
        """The same, with the names of streams as a dictionary: how results are written."""
        final = self.final(name)
        last = final.field(len(final) - 1)
        return final.set(len(final) - 1, last.with_type(pa.dictionary(pa.int32(), pa.string())))

    def staged(self, name: str) -> pa.Schema:
        """The columns on the way: of ordered results with their place in O."""
        if not self.ordered:
            return self.encoded(name)
        return pa.schema([*list(self.final(name))[:-1], RANK, SEQ])

    @cached_property
    def stream_names(self) -> pa.Array:
        """The names of streams by rank: the dictionary of every ``event_stream`` column."""
        return pa.array(self.streams, pa.string())

    def folder(self, name: str) -> str:
        """Where the files of an output lie, below the place of the results: the only one has no folder of its own."""
        return "" if tuple(self.schemas) == (name,) == (ONLY_OUTPUT,) else f"{name}/"


@dataclass(frozen=True)
class SortedRun:
    """Rows in O that lie in one row group of a staged file, from their first to their last place."""

    first: Point
    last: Point
    rows: int


@dataclass(frozen=True)
class StagedFile:
    """A file that a task has written; ``runs`` has one entry for each row group where results are ordered."""

    path: str
    rows: int
    size: int
    runs: tuple[SortedRun, ...] = ()
    crc: int | None = None
    """Of all its bytes, where somebody may want to know much later whether they are still the same."""


@dataclass(frozen=True)
class Manifest:
    """What one attempt of a task has written of each output: files, or tables as Arrow IPC streams."""

    run: str
    task: int
    attempt: str
    rows: Mapping[str, int]
    files: Mapping[str, StagedFile]
    inline: Mapping[str, bytes]


def too_much(task: int, limit: int, what: str = "outputs") -> OutputError:
    """A task has more than it may send back."""
    return OutputError(
        "TOO_MUCH_OUTPUT",
        f"task {task} has more than {limit:,} bytes of {what} to send back",
        hint="pass out=PATH, so that they are written to files",
    )


def to_ipc(tables: Sequence[pa.Table]) -> bytes:
    """Tables as one Arrow IPC stream."""
    table = pa.concat_tables(tables)
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, table.schema) as stream:
        stream.write_table(table)
    result: bytes = buffer.getvalue().to_pybytes()
    return result
