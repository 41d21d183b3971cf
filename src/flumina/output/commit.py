"""Commit the results of a run: once, and only from the attempts that succeeded."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from flumina.errors import UsageError
from flumina.model.order import argsort
from flumina.output.merge import RunFile, SortedRunReader, merged
from flumina.output.parquet_file import ParquetFile
from flumina.output.row_buffer import places
from flumina.output.staged_outputs import Manifest, Outputs, StagedFile
from flumina.storage.checksum import Checksum, check_files
from flumina.storage.filesystem import join, storage_errors
from flumina.storage.output_directory import OutputDirectory

FILE_ROWS = 32 << 20
"""Rows in one file of ordered results."""


@dataclass(frozen=True)
class CommittedOutput:
    """One output of a run that has ended: in ``files`` below ``path``, or (without files) in memory."""

    rows: int
    schema: pa.Schema = field(repr=False)
    path: str | None = None
    files: tuple[str, ...] = ()
    location: OutputDirectory | None = field(default=None, repr=False)
    held: pa.Table | None = field(default=None, repr=False)

    @property
    def kept(self) -> bool:
        """Tell whether the rows can be read."""
        return self.location is not None or self.held is not None

    def dataset(self) -> ds.Dataset:
        """Return the rows as a dataset, for reading parts of them; raise if they were discarded."""
        if not self.kept:
            raise UsageError("NOT_KEPT", f"{self.rows:,} rows were emitted and discarded, since out=DISCARD was passed")
        if self.location is None:
            return ds.dataset(self.held)
        with storage_errors("read", str(self.path)):
            return ds.dataset(
                list(self.files), schema=self.schema, format="parquet", filesystem=self.location.filesystem
            )

    def table(self) -> pa.Table:
        """Return all rows as a table in memory; raise if they were discarded."""
        if self.held is not None:
            return self.held
        with storage_errors("read", str(self.path)):
            return self.dataset().to_table()


@dataclass(frozen=True)
class OutputCommit:
    """Files that are ready to be committed: by output, the final name of each staged file."""

    outputs: Outputs
    rows: Mapping[str, int]
    files: Mapping[str, Mapping[str, StagedFile]]

    def make_visible(self) -> None:
        """Move all files to their place; completes the commit of a driver that died."""
        assert self.outputs.location is not None
        self.outputs.location.commit({name: file.path for files in self.files.values() for name, file in files.items()})

    def results(self) -> dict[str, CommittedOutput]:
        """Return the committed outputs by name."""
        location = self.outputs.location
        if location is None:
            return {
                name: CommittedOutput(self.rows.get(name, 0), self.outputs.final(name)) for name in self.outputs.names
            }
        return {
            name: CommittedOutput(
                self.rows.get(name, 0),
                self.outputs.final(name),
                join(location.path, self.outputs.folder(name).rstrip("/")).rstrip("/"),
                tuple(join(location.path, file) for file in named),
                location,
            )
            for name, named in self.files.items()
        }


def commit_outputs(outputs: Outputs, manifests: Sequence[Manifest]) -> dict[str, CommittedOutput]:
    """Commit the outputs of these attempts, one for each task, and delete the files of all others.

    Raises if the run has been committed before.
    """
    tasks = sorted(manifest.task for manifest in manifests)
    if tasks != list(range(len(tasks))):
        raise UsageError("MANIFESTS", f"expected one manifest for each task, got manifests of tasks {tasks}")
    if outputs.location is None and outputs.kept:
        tables = {name: _inline(outputs, name, manifests) for name in outputs.names}
        return {name: CommittedOutput(len(table), table.schema, held=table) for name, table in tables.items()}
    if outputs.location is not None:
        outputs.location.check_not_committed()
    commit = prepare(outputs, manifests)
    if outputs.location is not None:
        commit.make_visible()
    return commit.results()


def prepare(outputs: Outputs, manifests: Sequence[Manifest]) -> OutputCommit:
    """Prepare the commit of the files of these attempts, of one or more epochs; no reader sees them yet.

    Ordered files are merged here, in the driver, from the sorted runs of the tasks, with bounded memory. Each call
    writes files with unique names: a driver that was replaced, and has not noticed it yet, never writes into a file of
    its successor. Files with a checksum are read once more, so that a damaged file is neither committed nor merged.
    """
    _check(outputs, manifests)
    rows = {name: sum(manifest.rows.get(name, 0) for manifest in manifests) for name in outputs.names}
    files: dict[str, dict[str, StagedFile]] = {}
    location = outputs.location
    if location is not None:
        prefix = join(location.staging, uuid.uuid4().hex[:12])
        for name in outputs.names:
            staged = _files(location, name, manifests)
            if outputs.is_ordered(name):
                staged = _merge(outputs, location, name, manifests, prefix)
            staged = staged or [_empty(outputs, location, name, prefix)]
            files[name] = {outputs.file_name(name, number): file for number, file in enumerate(staged)}
    return OutputCommit(outputs, rows, files)


def _check(outputs: Outputs, manifests: Sequence[Manifest]) -> None:
    """Raise unless all manifests are of this run, each of another attempt."""
    for manifest in manifests:
        if manifest.run != outputs.run:
            raise UsageError("MANIFESTS", f"expected manifests of run {outputs.run}, got one of run {manifest.run}")
    attempts = [(manifest.task, manifest.attempt) for manifest in manifests]
    if len(set(attempts)) < len(attempts):
        raise UsageError("MANIFESTS", f"expected one manifest for each attempt of a task, got {attempts}")


def _inline(outputs: Outputs, name: str, manifests: Sequence[Manifest]) -> pa.Table:
    _check(outputs, manifests)
    final = outputs.final(name)
    tables = [pa.ipc.open_stream(m.inline[name]).read_all() for m in manifests if name in m.inline]
    if not tables:
        return final.empty_table()
    table = pa.concat_tables(tables)
    if outputs.is_ordered(name):
        table = _encoded(outputs, name, table.take(pa.array(argsort(*places(table)))))
    return table.cast(final)


def _files(location: OutputDirectory, name: str, manifests: Sequence[Manifest]) -> list[StagedFile]:
    files = [manifest.files[name] for manifest in manifests if name in manifest.files]
    checksums = _checksums(files)
    for file in files:
        if file.path not in checksums:
            location.check_staged(file.path, file.size)
    check_files(location.filesystem, checksums)
    return files


def _checksums(files: Sequence[StagedFile]) -> dict[str, Checksum]:
    return {file.path: Checksum(file.size, file.crc) for file in files if file.crc is not None}


def _empty(outputs: Outputs, location: OutputDirectory, name: str, prefix: str) -> StagedFile:
    """Write a file without rows, for readers to find the columns; ``prefix`` begins its path."""
    final = outputs.final(name)
    path = f"{prefix}-{name}.parquet"
    file = ParquetFile(location.filesystem, path, final, final, outputs.compression, checked=outputs.checked)
    file.write(final.empty_table())
    file.close()
    location.sync(path)
    return StagedFile(path, 0, file.size, crc=file.crc)


def _merge(
    outputs: Outputs, location: OutputDirectory, name: str, manifests: Sequence[Manifest], prefix: str
) -> list[StagedFile]:
    runs: list[SortedRunReader] = []
    for number, manifest in enumerate(manifests):
        if name in manifest.files:
            staged = manifest.files[name]
            file = RunFile(partial(_open, location, staged.path))
            runs += [SortedRunReader(file, (number, n), run) for n, run in enumerate(staged.runs)]
    final = outputs.final(name)
    written: list[ParquetFile] = []
    with storage_errors("merge results in", location.staging):
        for table in _groups(merged(runs), outputs.group_rows):
            if not written or written[-1].rows >= FILE_ROWS:
                if written:
                    written[-1].close()
                path = f"{prefix}-{name}-{len(written):05d}.parquet"
                schemas = outputs.encoded(name), final
                written.append(
                    ParquetFile(location.filesystem, path, *schemas, outputs.compression, checked=outputs.checked)
                )
            written[-1].write(_encoded(outputs, name, table))
        if written:
            written[-1].close()
        location.sync(*(file.path for file in written))
    return [StagedFile(file.path, file.rows, file.size, crc=file.crc) for file in written]


def _open(location: OutputDirectory, path: str) -> pq.ParquetFile:
    with storage_errors("read", path):
        return pq.ParquetFile(location.filesystem.open_input_file(path), buffer_size=1 << 18)


def _groups(tables: Iterator[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Combine tables to the size of row groups."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(map(len, waiting)) >= rows:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def _encoded(outputs: Outputs, name: str, table: pa.Table) -> pa.Table:
    """Convert a sorted staged table to the columns of results: names of streams instead of places in O."""
    ranks = table.column(table.num_columns - 2).to_numpy().astype(np.int32)
    streams = pa.DictionaryArray.from_arrays(pa.array(ranks), outputs.stream_names)
    return pa.Table.from_arrays([*table.columns[:-2], streams], schema=outputs.encoded(name))
