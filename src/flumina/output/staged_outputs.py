"""Describe the outputs of a run: staged and final columns, and the manifests of tasks.

The driver makes one :class:`Outputs` and sends it to the tasks. Each attempt of a task writes through an
:class:`~flumina.output.writer.OutputWriter`, which returns a :class:`Manifest`;
:func:`~flumina.output.commit.commit_outputs` makes the results of the successful attempts visible.
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
"""Largest number of bytes that a task sends back to the driver, where there is no output directory."""

GROUP_ROWS = 1 << 19
"""Rows in a row group: each has its own dictionaries, so that short ones cost time and space."""

DEAD_LETTERS = "_dead_letters"
"""Name of the output, and of the folder below the results, that holds dead letters.

It begins with an underscore: no output of a program can have this name, and readers of the results ignore the folder.
"""

RANK = pa.field("event_rank", pa.int32(), nullable=False)
SEQ = pa.field("event_seq", pa.int64(), nullable=False)
"""Columns by which rows are sorted into O; they are staged, and left out of results."""

_RUN = re.compile(r"[\w.-]+", re.ASCII)


@dataclass(frozen=True)
class Outputs:
    """The outputs of one run and their destination (``location`` None: inline, to the driver).

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
    """Whether outputs are committed; else rows are validated, counted and discarded."""
    checked: bool = False
    """Whether files are written with checksums."""
    aside: bool = False
    """Whether dead letters are written, as one more output."""

    def __post_init__(self) -> None:
        if not _RUN.fullmatch(self.run):
            raise UsageError("RUN_ID", f"expected a run id of letters, digits, '_', '.' and '-', got {self.run!r}")
        if self.location is not None and self.location.run != self.run:
            raise UsageError("RUN_ID", f"expected a location of run {self.run}, got one of run {self.location.run}")
        for name, schema in self.schemas.items():
            for column in schema.names:
                if column.lower() in {taken.name for taken in EVENT_COLUMNS}:
                    raise UsageError(
                        "RESERVED_COLUMN",
                        f"output {name!r} declares a column {column!r}, which is added to every output",
                        hint="give the column another name",
                    )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all outputs that are committed: the program's and, with ``aside``, the dead letters."""
        return (*self.schemas, *((DEAD_LETTERS,) if self.aside else ()))

    def is_ordered(self, name: str) -> bool:
        """Tell whether an output is written in O: dead letters have no place in it."""
        return self.ordered and name != DEAD_LETTERS

    def prepare(self) -> None:
        """Repair and check the output directory; the driver calls this once, before the run."""
        if self.location is not None:
            recover(self.location)
            self.location.prepare()

    def discard(self) -> None:
        """Delete all staged files, after a failure."""
        if self.location is not None:
            self.location.discard()

    def final(self, name: str) -> pa.Schema:
        """Return the columns of a result: the declared ones, then timestamp and stream of the causing event."""
        if name == DEAD_LETTERS:
            return SCHEMA
        ts, stream = EVENT_COLUMNS
        return pa.schema([*self.schemas[name].fields, ts.with_type(self.ts_type), stream])

    def encoded(self, name: str) -> pa.Schema:
        """Return the columns of a result as they are written: the names of streams as a dictionary."""
        final = self.final(name)
        last = final.field(len(final) - 1)
        return final.set(len(final) - 1, last.with_type(pa.dictionary(pa.int32(), pa.string())))

    def staged(self, name: str) -> pa.Schema:
        """Return the columns of staged files: of ordered results with their place in O."""
        if not self.ordered:
            return self.encoded(name)
        return pa.schema([*list(self.final(name))[:-1], RANK, SEQ])

    @cached_property
    def stream_names(self) -> pa.Array:
        """The names of streams by rank: the dictionary of every ``event_stream`` column."""
        return pa.array(self.streams, pa.string())

    def file_name(self, name: str, number: int) -> str:
        """Return the final name of a file of an output, below the output directory."""
        return f"{self.folder(name)}part-{number:05d}-{self.run}.parquet"

    def folder(self, name: str) -> str:
        """Return the folder of an output below the output directory; empty for the only output."""
        return "" if tuple(self.schemas) == (name,) == (ONLY_OUTPUT,) else f"{name}/"


@dataclass(frozen=True)
class SortedRun:
    """Rows in O in one row group of a staged file, with their first and last place."""

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
    """CRC-32 of all bytes, where snapshots refer to the file."""


@dataclass(frozen=True)
class Manifest:
    """The outputs that one attempt of a task has written: files, or tables as Arrow IPC streams."""

    run: str
    task: int
    attempt: str
    rows: Mapping[str, int]
    files: Mapping[str, StagedFile]
    inline: Mapping[str, bytes]


def too_much(task: int, limit: int, what: str = "outputs") -> OutputError:
    """Return the error for a task with more output than it may send back to the driver."""
    return OutputError(
        "TOO_MUCH_OUTPUT",
        f"task {task} has more than {limit:,} bytes of {what} to send back",
        hint="pass out=PATH, so that they are written to files",
    )


def to_ipc(tables: Sequence[pa.Table]) -> bytes:
    """Encode tables as one Arrow IPC stream."""
    table = pa.concat_tables(tables)
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, table.schema) as stream:
        stream.write_table(table)
    result: bytes = buffer.getvalue().to_pybytes()
    return result
