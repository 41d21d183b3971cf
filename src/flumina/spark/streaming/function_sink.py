"""Pass the outputs of each micro-batch to a function of the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from flumina.model.emit import EVENT_COLUMNS, ONLY_OUTPUT
from flumina.output.commit import CommittedOutput
from flumina.program.definition import RAISED, Definition, user_error
from flumina.spark.results import DataFrames
from flumina.spark.streaming.engine import SparkEngine
from flumina.storage.directory import Directory
from flumina.storage.owner import OwnerToken
from flumina.storage.staging import Staging


class FunctionSink:
    """Calls ``function(outputs, batch)`` at least once for every batch, each time with the same rows.

    Rows are in the order of their events; the order of events with equal timestamps and ``seq`` may differ between
    calls. ``outputs`` is a DataFrame, or for a program with named outputs a mapping of DataFrames by name. They can be
    read until the function returns.
    """

    ordered = True
    place: str | None = None

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

    def staging(self, batch: int) -> str:
        """Return a new folder in the checkpoint."""
        return self.staged.new(batch)

    def commit(
        self,
        batch: int,
        results: Mapping[str, CommittedOutput],
        lineage: str,  # noqa: ARG002
        before: Mapping[str, int],  # noqa: ARG002
    ) -> None:
        """Call the function with the outputs; raises UserCodeError if it raises."""
        filled = results or {name: self._empty(name) for name in self.definition.outputs}
        frames = DataFrames(self.engine.spark, filled)
        only = tuple(self.definition.outputs) == (ONLY_OUTPUT,)
        try:
            self.function(frames[ONLY_OUTPUT] if only else frames, batch)
        except RAISED as error:
            raise user_error(self.function, error) from error
        self.staged.clear(batch)

    def holds(self, batch: int, rows: Mapping[str, int], lineage: str) -> bool:  # noqa: ARG002
        """Return True: Spark requests the next batch only once the function has returned."""
        return True

    def _empty(self, name: str) -> CommittedOutput:
        """Return an output without rows, nullable like the columns that Spark reads from the files of other batches."""
        ts, stream = EVENT_COLUMNS
        fields = [*self.definition.outputs[name].fields, ts.with_type(self.engine.ts_type), stream]
        table = pa.schema([field.with_nullable(True) for field in fields]).empty_table()  # noqa: FBT003 -- Arrow's own
        return CommittedOutput(0, table.schema, held=table)
