"""Pass the outputs of each micro-batch to a function of the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from flumina.checkpoint.store.manifest import EpochManifest, EpochOutputs, OutputFile
from flumina.model.emit import EVENT_COLUMNS, ONLY_OUTPUT
from flumina.output.commit import CommittedOutput, OutputCommit
from flumina.program.definition import RAISED, Definition, user_error
from flumina.spark.results import DataFrames
from flumina.spark.streaming.batch_engine import SparkEngine
from flumina.storage.directory import Directory, new_id
from flumina.storage.output_directory import OutputDirectory
from flumina.storage.owner_token import OwnerToken
from flumina.storage.staging import Staging
from flumina.streaming.sink import check_staged, staging_location


class FunctionSink:
    """Calls ``function(outputs, batch)`` at least once for every batch, each time with the same rows.

    Rows are in the order of their events; the order of events with equal timestamps and ``seq`` may differ between
    calls. ``outputs`` is a DataFrame, or for a program with named outputs a mapping of DataFrames by name. They can be
    read until the function returns.
    """

    ordered = True
    folder = None

    def __init__(
        self, function: Callable[[Any, int], object], folder: Directory, definition: Definition, engine: SparkEngine
    ) -> None:
        self.function, self.definition, self.engine = function, definition, engine
        self.staged = Staging(folder)

    def is_of(self, run: str) -> bool:  # noqa: ARG002
        """Return False: a function does not say which outputs it has."""
        return False

    def prepare(self, run: str, program: Mapping[str, Any]) -> None:
        """Do nothing: a function has no folder to bind to a run."""

    def begin(self, owner: OwnerToken) -> None:
        """Delete the files that earlier drivers have staged."""
        self.staged.begin(owner)

    def staging(self, batch: int) -> OutputDirectory:
        """Make a new folder in the checkpoint."""
        return staging_location(self.staged.directory, self.staged, batch)

    def stage(self, batch: int, written: OutputCommit | None, before: EpochOutputs, lineage: str) -> EpochOutputs:  # noqa: ARG002
        """Return the files of a batch; they have no names, since they stay where they are staged."""
        if written is None:
            return EpochOutputs(rows=before.rows, lineage=lineage)
        base, files = self.staged.directory.path, []
        for name, named in written.files.items():
            for file in named.values():
                assert file.crc is not None, "files that a manifest names have checksums"
                path = file.path.removeprefix(f"{base}/")
                files.append(OutputFile(name, path, file.size, file.crc, file.rows))
        rows = {name: before.rows.get(name, 0) + count for name, count in written.rows.items()}
        return EpochOutputs(None, tuple(files), rows, lineage=lineage)

    def show(self, epoch: EpochManifest) -> None:
        """Call the function with the outputs; raises UserCodeError if it raises."""
        results = {name: self._result(name, epoch.outputs.files) for name in self.definition.outputs}
        frames = DataFrames(self.engine.spark, results)
        only = tuple(self.definition.outputs) == (ONLY_OUTPUT,)
        try:
            self.function(frames[ONLY_OUTPUT] if only else frames, epoch.number - 1)
        except RAISED as error:
            raise user_error(self.function, error) from error

    def clear(self, batch: int) -> None:
        """Delete the staged files of a batch, once the function has returned."""
        self.staged.clear(batch)

    def _result(self, name: str, files: Sequence[OutputFile]) -> CommittedOutput:
        mine = [file for file in files if file.output == name]
        directory, schema = self.staged.directory, self._schema(name)
        if not mine:
            return CommittedOutput(0, schema, held=schema.empty_table())
        for file in mine:
            check_staged(directory, file)
        location = OutputDirectory(directory.filesystem, directory.path, new_id(), directory.path, renames=True)
        paths = tuple(directory.at(file.path) for file in mine)
        return CommittedOutput(sum(file.rows for file in mine), schema, directory.path, paths, location)

    def _schema(self, name: str) -> pa.Schema:
        """Return the columns of an output, nullable like those that Spark reads from files."""
        ts, stream = EVENT_COLUMNS
        fields = [*self.definition.outputs[name].fields, ts.with_type(self.engine.ts_type), stream]
        return pa.schema([field.with_nullable(True) for field in fields])  # noqa: FBT003 -- Arrow's own
