"""Outputs into a function of the user's."""

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
    """Calls ``function(outputs, batch)`` for every batch, with the same rows in the same order if it has to be again.

    That is the order of events; among those with equal timestamps and equal ``seq`` columns it may be another one.
    ``outputs`` is a DataFrame, or for a program with named outputs a mapping of them by name. They can be read until
    the function returns.
    """

    ordered = True
    place: str | None = None

    def __init__(
        self, function: Callable[[Any, int], object], folder: Directory, definition: Definition, engine: SparkEngine
    ) -> None:
        self.function, self.definition, self.engine = function, definition, engine
        self.staged = Staging(folder)

    def is_of(self, run: str) -> bool:  # noqa: ARG002
        """Nobody can tell."""
        return False

    def prepare(self, run: str, program: Mapping[str, Any]) -> None:
        """Nothing: what the function does belongs to it alone."""

    def begin(self, owner: OwnerToken) -> None:
        """Clear away what drivers before this one have staged."""
        self.staged.begin(owner)

    def staging(self, batch: int) -> str:
        """A folder in the checkpoint."""
        return self.staged.new(batch)

    def commit(
        self,
        batch: int,
        results: Mapping[str, CommittedOutput],
        lineage: str,  # noqa: ARG002
        before: Mapping[str, int],  # noqa: ARG002
    ) -> None:
        """Call the function."""
        filled = results or {name: self._empty(name) for name in self.definition.outputs}
        frames = DataFrames(self.engine.spark, filled)
        only = tuple(self.definition.outputs) == (ONLY_OUTPUT,)
        try:
            self.function(frames[ONLY_OUTPUT] if only else frames, batch)
        except RAISED as error:
            raise user_error(self.function, error) from error
        self.staged.clear(batch)

    def holds(self, batch: int, rows: Mapping[str, int], lineage: str) -> bool:  # noqa: ARG002
        """Spark asks for the next batch only once the function has returned."""
        return True

    def _empty(self, name: str) -> CommittedOutput:
        """With the schema of batches that have rows: what Spark reads from files may be null, as far as it knows."""
        ts, stream = EVENT_COLUMNS
        fields = [*self.definition.outputs[name].fields, ts.with_type(self.engine.ts_type), stream]
        table = pa.schema([field.with_nullable(True) for field in fields]).empty_table()  # noqa: FBT003 -- Arrow's own
        return CommittedOutput(0, table.schema, held=table)
