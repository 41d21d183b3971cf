"""Convert Python data to Arrow tables: dicts of columns, lists of rows, pandas DataFrames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from flumina.errors import InputError, UsageError
from flumina.model.schema import BadValueError, column, type_name


@dataclass(frozen=True)
class Converter:
    """Converts a stream's data to tables; ``types`` maps the columns in use to their declared types."""

    stream: str
    types: Mapping[str, pa.DataType | None]

    def tables(self, data: Any) -> list[pa.Table]:  # noqa: ANN401 -- the value of Stream(data=...)
        """Return one table for each part."""
        given = data
        if isinstance(data, pa.Table | pa.RecordBatch):
            data = [data]
        elif isinstance(data, Mapping):
            data = [self.columns(data)]
        elif is_pandas(data):
            data = [self._from_pandas(data, 0)]
        elif isinstance(data, Sequence) and not isinstance(data, str) and all(isinstance(d, Mapping) for d in data):
            data = [self._from_rows(data)]
        elif isinstance(data, Sequence):
            data = [self._from_pandas(d, part) if is_pandas(d) else d for part, d in enumerate(data)]
        if not (isinstance(data, Sequence) and all(isinstance(d, pa.Table | pa.RecordBatch) for d in data)):
            raise UsageError(
                "STREAM_DATA",
                f"stream {self.stream!r}: data is a {type(given).__name__}",
                hint="give an Arrow table, a DataFrame, a list of either (parts), a dict of columns, a list of dicts, "
                "fl.Parquet or fl.GeneratorSource",
            )
        return [pa.Table.from_batches([d]) if isinstance(d, pa.RecordBatch) else d for d in data]

    def columns(self, data: Mapping[str, Any], part: int = 0, first: int = 0) -> pa.Table:
        """Return rows, given by column and numbered from ``first``, as a table; lists get their declared types."""
        arrays = {name: self._array(name, values, part, first) for name, values in data.items() if name in self.types}
        count = max(map(len, arrays.values()), default=0)
        for name, array in arrays.items():
            if len(array) != count:
                message = f"the column has {len(array)} rows, but others have {count}"
                raise self._error("COLUMN_LENGTH", message, name, part=part)
        # Columns that are not declared are not converted, but their names make errors about missing ones clearer.
        return pa.table({str(name): arrays[name] if name in arrays else pa.nulls(count) for name in data})

    def _from_rows(self, rows: Sequence[Mapping[str, object]]) -> pa.Table:
        if not rows:
            return pa.table({name: pa.array([], type_) for name, type_ in self.types.items()})
        names = dict.fromkeys(name for row in rows for name in row)
        return self.columns({name: [row.get(name) for row in rows] for name in names})

    def _from_pandas(self, frame: Any, part: int) -> pa.Table:  # noqa: ANN401 -- pandas is not needed for anything else
        for name in frame.columns:
            if list(frame.columns).count(name) > 1:
                raise self._error("DUPLICATE_COLUMN", "the column stands twice in the data", str(name), part=part)
        return self.columns({name: frame[name] for name in frame.columns}, part)

    def _array(
        self,
        name: str,
        values: Any,  # noqa: ANN401
        part: int,
        first: int,
    ) -> pa.Array | pa.ChunkedArray:
        type_ = self.types[name]
        if isinstance(values, pa.Array | pa.ChunkedArray):
            return values
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise self._error("COLUMN_TYPE", f"a column is a list or an array, got {values!r}", name, part=part)
        if type_ is None and (isinstance(values, list | tuple) or str(getattr(values, "dtype", "")) == "object"):
            self._check_zones(name, values, part, first)
        if not isinstance(values, list | tuple):
            try:
                return pa.array(values)
            except (pa.ArrowException, TypeError, ValueError):
                values = list(values)
        try:
            return column(values, type_)
        except BadValueError as error:
            expected = "a value like the ones before" if type_ is None else type_name(type_)
            message, row = f"expected {expected}, got {error.value!r}", first + error.index
            raise self._error("COLUMN_TYPE", message, name, row, part=part) from None

    def _check_zones(self, name: str, values: Iterable[object], part: int, first: int) -> None:
        """Refuse a mix of times with and without a zone, which Arrow would silently convert."""
        first_aware = None
        for row, value in enumerate(values, first):
            if isinstance(value, datetime) and value == value:  # noqa: PLR0124 -- pandas' NaT is a datetime
                aware = value.utcoffset() is not None
                if first_aware is None:
                    first_aware = aware
                if aware != first_aware:
                    message = f"{value!r} has {'a' if aware else 'no'} time zone, unlike the times before it"
                    raise self._error("TIMESTAMP_TYPE", message, name, row, part=part)

    def _error(self, condition: str, message: str, column: str, row: int | None = None, *, part: int = 0) -> InputError:
        return InputError(condition, message, stream=self.stream, part=part, row=row, column=column)


def is_pandas(data: object) -> bool:
    """Return whether this is a pandas DataFrame; pandas need not be installed."""
    return type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns")
