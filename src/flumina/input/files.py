"""Read Parquet and Arrow files as a source: each file is one part.

Ways to read two columns of 16 M rows with one thread, in M rows per second of processor time (snappy, dictionary /
snappy, plain / uncompressed)::

    iter_batches(131,072), memory-mapped                46 / 33 / 155
    the same, the file mapped anew every few row groups 48 / 28 / 161
    iter_batches(131,072), pre_buffer, row group by row group  48 / 30 / 125
    read_row_group, memory-mapped                       46 / 27 / 165

So mapping pays off, and reading in chunks costs no more than whole row groups, but bounds memory.
"""

from __future__ import annotations

import fnmatch
import os
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import PurePath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from flumina.errors import InputError, UsageError
from flumina.input.sources import CHUNK_ROWS, numbered

_MAPPED = 256 * 2**20
"""Bytes mapped at once: pages that were read count as memory of the process until they are unmapped."""

_SAMPLED = 8
"""Row groups of a file that are read for a sample."""

_MAGIC = frozenset("*?[")


@dataclass(frozen=True)
class Parquet:
    """Parquet or Arrow files, for ``Stream(data=...)``; each file is one part.

    ``path``        a file; a folder, whose files are taken in the order of their names, files that begin with ``_`` or
                    ``.`` left out; a pattern with ``*``, ``?`` or ``**``; a URI that pyarrow knows; or a list of these
    ``filesystem``  a file system of pyarrow or fsspec, which must be possible to pickle

    The files are listed once; copies of this object in other processes read the same ones.
    """

    path: str | PurePath | Sequence[str | PurePath]
    filesystem: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse invalid arguments."""
        if not self.paths or not all(isinstance(path, str | PurePath) and str(path) for path in self.paths):
            raise UsageError("PARQUET_PATH", f"fl.Parquet needs a path or a list of paths, got {self.path!r}")
        if self.filesystem is not None:
            try:
                pickle.dumps(pa.fs._ensure_filesystem(self.filesystem))
            except Exception as error:
                message = f"fl.Parquet: expected a file system that can be pickled, got {self.filesystem!r}: {error}"
                raise UsageError("PARQUET_FILESYSTEM", message) from error

    @property
    def paths(self) -> tuple[str | PurePath, ...]:
        """The paths as given."""
        given: Any = self.path
        return tuple(given) if isinstance(given, list | tuple) else (given,)

    def source(self, stream: str) -> Files:
        """Return the source of the stream of this name."""
        return Files(stream, self)

    @cached_property
    def files(self) -> tuple[File, ...]:
        """The files; raises FileNotFoundError or another OSError with a path if there are none."""
        return tuple(File(system, path) for given in self.paths for system, path in self._find(os.fspath(given)))

    def _find(self, given: str) -> Iterator[tuple[pa.fs.FileSystem, str]]:
        if self.filesystem is not None:
            system, path = pa.fs._ensure_filesystem(self.filesystem), given
        elif "://" in given:
            system, path = pa.fs.FileSystem.from_uri(given)
        else:
            system, path = pa.fs.LocalFileSystem(), os.path.abspath(given)  # noqa: PTH100 -- links stay links
        kind = system.get_file_info(path).type
        if kind == pa.fs.FileType.File:
            found = [path]
        elif kind == pa.fs.FileType.Directory:
            found = _folder(system, path)
        elif _MAGIC & set(path):
            parts = path.split("/")
            fixed = next(n for n, part in enumerate(parts) if _MAGIC & set(part))
            found = sorted(dict.fromkeys(_match(system, "/".join(parts[:fixed]) or "/", parts[fixed:])))
        else:
            raise FileNotFoundError(f"there is no file {given}")
        if not found:
            raise FileNotFoundError(f"there are no files in {given}; for a stream without events, data=[] says so")
        for name in found:
            yield system, name


def _listed(system: pa.fs.FileSystem, folder: str) -> list[pa.fs.FileInfo]:
    infos = system.get_file_info(pa.fs.FileSelector(folder, allow_not_found=True))
    return sorted((i for i in infos if not i.base_name.startswith(("_", "."))), key=lambda info: info.base_name)


def _folder(system: pa.fs.FileSystem, folder: str) -> list[str]:
    infos = _listed(system, folder)
    for info in infos:
        if info.type == pa.fs.FileType.Directory:  # ignoring its files would be a silent loss
            raise IsADirectoryError(f"{info.path} is a folder too; {folder}/**/*.parquet means the files in it as well")
    return [info.path for info in infos]


def _match(system: pa.fs.FileSystem, folder: str, pattern: Sequence[str]) -> Iterator[str]:
    """Yield the files below a folder that match a pattern, given name by name."""
    first, *rest = pattern
    if first == "**":
        yield from _match(system, folder, rest or ["*"])
    for info in _listed(system, folder):
        is_folder = info.type == pa.fs.FileType.Directory
        if first == "**":
            if is_folder:
                yield from _match(system, info.path, pattern)
        elif fnmatch.fnmatchcase(info.base_name, first):
            if rest and is_folder:
                yield from _match(system, info.path, rest)
            elif not rest and not is_folder:
                yield info.path


@dataclass(frozen=True)
class File:
    """One file; its first bytes determine the format."""

    system: pa.fs.FileSystem
    path: str

    @property
    def is_local(self) -> bool:
        """Whether it can be mapped into memory."""
        return isinstance(self.system, pa.fs.LocalFileSystem)

    def open(self, *, mapped: bool) -> pa.NativeFile:
        """Open the file at its first byte."""
        return pa.memory_map(self.path) if mapped and self.is_local else self.system.open_input_file(self.path)

    @cached_property
    def reader(self) -> _Parquet | _Arrow:
        """The reader of its format."""
        with self.system.open_input_file(self.path) as file:
            start = file.read(6)
        if start[:4] == b"PAR1":
            return _Parquet(self)
        if start == b"ARROW1":
            return _Arrow(self)
        what = "is empty" if not start else "is neither a Parquet nor an Arrow file"
        raise pa.ArrowInvalid(f"the file {what}")

    def __getstate__(self) -> dict[str, object]:
        """Leave out open readers."""
        return {"system": self.system, "path": self.path}


class _Parquet:
    def __init__(self, file: File) -> None:
        self.file = file
        with file.open(mapped=False) as opened:
            self.metadata = pq.read_metadata(opened)
        self.schema = self.metadata.schema.to_arrow_schema()
        self.rows = self.metadata.num_rows

    def chunks(self, columns: Sequence[str], size: int) -> Iterator[pa.RecordBatch]:
        for groups in self._runs():
            yield from self._read(groups, columns, size)

    def sample(self, columns: Sequence[str], rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        groups = self.metadata.num_row_groups
        spread = np.unique(np.linspace(0, groups - 1, _SAMPLED).astype(int)).tolist() if groups else []
        firsts = np.cumsum([0, *(self.metadata.row_group(group).num_rows for group in range(groups))])
        with self._open(spread) as file:
            for group in spread:
                for chunk in islice(self._batches(file, [group], columns, max(1, rows // len(spread))), 1):
                    yield int(firsts[group]), chunk

    def bounds(self, column: str) -> pa.Array | None:
        """Return bounds from the statistics of the row groups, if all have some."""
        paths = [self.metadata.schema.column(number).path for number in range(self.metadata.num_columns)]
        if column not in paths:
            return None
        index = paths.index(column)
        found = [self.metadata.row_group(g).column(index).statistics for g in range(self.metadata.num_row_groups)]
        if not found or not all(statistics is not None and statistics.has_min_max for statistics in found):
            return None
        values = [value for statistics in found for value in (statistics.min, statistics.max)]
        return pa.array([min(values), max(values)], self.schema.field(column).type)

    def _runs(self) -> Iterator[list[int]]:
        """Yield ranges of row groups that are mapped together."""
        run: list[int] = []
        mapped = 0
        for group in range(self.metadata.num_row_groups):
            bytes_ = self.metadata.row_group(group).total_byte_size
            if run and mapped + bytes_ > _MAPPED:
                yield run
                run, mapped = [], 0
            run.append(group)
            mapped += bytes_
        if run:
            yield run

    def _read(self, groups: list[int], columns: Sequence[str], size: int) -> Iterator[pa.RecordBatch]:
        with self._open(groups) as file:
            yield from self._batches(file, groups, columns, size)

    @staticmethod
    def _batches(
        file: pq.ParquetFile, groups: list[int], columns: Sequence[str], size: int
    ) -> Iterator[pa.RecordBatch]:
        yield from file.iter_batches(size, row_groups=groups, columns=list(columns), use_threads=False)

    @contextmanager
    def _open(self, groups: list[int]) -> Iterator[pq.ParquetFile]:
        """Open the file to read these row groups."""
        small = sum(self.metadata.row_group(group).total_byte_size for group in groups) <= _MAPPED
        local = self.file.is_local
        # A row group too large for memory is read through a buffer; remote files are fastest read at once.
        options: dict[str, Any] = {"pre_buffer": small and not local, "buffer_size": 0 if small else 2**20}
        with self.file.open(mapped=small) as opened:
            yield pq.ParquetFile(opened, metadata=self.metadata, **options)


class _Arrow:
    def __init__(self, file: File) -> None:
        self.file = file
        with file.open(mapped=True) as opened, pa.ipc.open_file(opened) as reader:
            self.schema = reader.schema
            self.rows = sum(reader.get_batch(n).num_rows for n in range(reader.num_record_batches))

    def chunks(self, columns: Sequence[str], size: int) -> Iterator[pa.RecordBatch]:
        fields = [index for index, name in enumerate(self.schema.names) if name in columns]
        options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
        with self.file.open(mapped=True) as opened, pa.ipc.open_file(opened, options=options) as reader:
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                for start in range(0, batch.num_rows, size):
                    yield batch.slice(start, size)

    def sample(self, columns: Sequence[str], rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        step = max(1, self.rows // max(1, rows))
        pieces = numbered(self.chunks(columns, CHUNK_ROWS))
        yield from (piece for number, piece in enumerate(pieces) if number % step == 0)

    def bounds(self, column: str) -> None:
        """Return None: the format has no statistics."""


def _is_untyped(type_: pa.DataType) -> bool:
    """Return whether a column holds nothing but nulls, by its type."""
    return bool(pa.types.is_null(type_.value_type if pa.types.is_dictionary(type_) else type_))


@dataclass(frozen=True)
class Files:
    """The files of one stream."""

    stream: str
    parquet: Parquet

    @property
    def parts(self) -> int:
        """How many files there are."""
        with self._errors(None, None):
            return len(self.parquet.files)

    def schema(self, part: int) -> pa.Schema:
        """Return the columns of a file."""
        return self._reader(part).schema

    def rows(self, part: int) -> int:
        """Return the number of rows from the file's metadata."""
        return int(self._reader(part).rows)

    def chunks(self, part: int, columns: Sequence[str], size: int = CHUNK_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file; only these columns are read."""
        reader = self._reader(part)
        with self._errors(part, self.parquet.files[part].path):
            yield from reader.chunks(columns, size)

    def sample(self, part: int, columns: Sequence[str], rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the first rows of some row groups."""
        reader = self._reader(part)
        with self._errors(part, self.parquet.files[part].path):
            yield from reader.sample(columns, rows)

    def bounds(self, part: int, column: str) -> pa.Array | None:
        """Return bounds from a file's statistics, if it has them."""
        return self._reader(part).bounds(column)

    def read(self, part: int) -> pa.Table:
        """Return all rows and columns of a file."""
        schema = self.schema(part)
        return pa.Table.from_batches(self.chunks(part, list(dict.fromkeys(schema.names))), schema)

    def check_schemas(self, columns: Sequence[str]) -> None:
        """Raise if two files give one of these columns different types."""
        first = self.schema(0)
        for part in range(1, self.parts):
            schema = self.schema(part)
            for name in columns:
                one, other = first.get_field_index(name), schema.get_field_index(name)
                if one < 0 or other < 0:
                    continue  # the decoder of the part reports missing columns
                types = first.field(one).type, schema.field(other).type
                if types[0] != types[1] and not any(map(_is_untyped, types)):
                    paths = self.parquet.files[part].path, self.parquet.files[0].path
                    raise InputError(
                        "FILE_SCHEMAS",
                        f"the column is {types[1]} in {paths[0]}, but {types[0]} in {paths[1]}",
                        stream=self.stream,
                        part=part,
                        column=name,
                    )

    def _reader(self, part: int) -> _Parquet | _Arrow:
        with self._errors(None, None):
            file = self.parquet.files[part]
        with self._errors(part, file.path):
            return file.reader

    @contextmanager
    def _errors(self, part: int | None, path: str | None) -> Iterator[None]:
        """Convert errors of files to :class:`~flumina.errors.InputError`, with the file's path."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            where = "" if path is None else f"{path}: "
            condition = "NO_FILE" if isinstance(error, FileNotFoundError) else "UNREADABLE_FILE"
            raise InputError(condition, f"{where}{error}", stream=self.stream, part=part) from error
