"""Declare input streams: their tags, columns and data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from flumina.errors import UsageError
from flumina.input.conversion import Converter
from flumina.input.files import Files, Parquet
from flumina.input.sources import GeneratorSource, InMemoryTables, Source
from flumina.model.tag import Tag, user_line


@dataclass(frozen=True)
class Stream:
    """One input: a name, the tag (or tags) of its events, and its data in one or more parts.

    ``data``        an Arrow table, a pandas DataFrame, a list of tables or DataFrames (one a part), a dict of columns,
                    or a list of dicts; or a source that is read in chunks: :class:`~flumina.Parquet` for files and
                    :class:`~flumina.GeneratorSource` for a generator. ``flumina.spark`` takes DataFrames of Spark, too.
    ``tag``         the tag of all its events; or a dict from values of ``tag_column`` to tags
    ``ts``, ``seq`` the timestamp column, and the column that orders events with equal timestamps, if there is one
    ``rename``      the column that holds a declared column, where the names differ: ``{"page": "page_id"}``
    ``sorted``      timestamps never decrease within a part, and that is checked; if False, parts are sorted. Spark
                    DataFrames are always sorted

    The order in which streams are given is their rank: of two events with equal timestamps, the one of the earlier
    stream comes first.
    """

    name: str
    tag: Tag | Mapping[Any, Tag]
    data: Any = field(repr=False)
    ts: str = "ts"
    seq: str | None = None
    tag_column: str | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    sorted: bool = True
    where: str = field(default_factory=lambda: user_line(2), repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse invalid declarations."""
        if not isinstance(self.name, str) or not self.name:
            raise UsageError("STREAM_NAME", f"a stream needs a name, got {self.name!r} at {self.where}")
        if isinstance(self.tag, Tag) == (self.tag_column is not None):
            raise UsageError(
                "STREAM_TAGS",
                f"stream {self.name!r}: give one tag, or tag_column= and a dict from its values to tags",
            )
        if not isinstance(self.tag, Tag) and not (
            isinstance(self.tag, Mapping) and self.tag and all(isinstance(tag, Tag) for tag in self.tag.values())
        ):
            message = f"stream {self.name!r}: expected tag= as a dict from values to tags, got {self.tag!r}"
            raise UsageError("STREAM_TAGS", message)
        for option in ("ts", "seq", "tag_column"):
            name = getattr(self, option)
            if not isinstance(name, str) and not (name is None and option != "ts"):
                raise UsageError(
                    "STREAM_COLUMN", f"stream {self.name!r}: {option}= is the name of a column, got {name!r}"
                )
        if not isinstance(self.rename, Mapping) or not all(isinstance(name, str) for name in self.rename.values()):
            message = f"stream {self.name!r}: rename= is a dict from declared columns to columns, got {self.rename!r}"
            raise UsageError("RENAME", message, hint="leave it out if no names differ")
        if isinstance(self.data, GeneratorSource) and self.data.rate is not None and not self.sorted:
            message = f"stream {self.name!r}: events that are due one after the other are sorted"
            raise UsageError("PACED_UNSORTED", message, hint="leave out sorted=False, or rate=")
        unknown = set(self.rename) - {f.name for tag in self.tags for f in tag.schema}
        if unknown:
            raise UsageError(
                "RENAME",
                f"stream {self.name!r}: rename names no declared column: {sorted(map(str, unknown))}",
                hint='it maps declared columns to columns of the data: rename={"declared": "in the data"}',
            )

    @property
    def tags(self) -> tuple[Tag, ...]:
        """The tags of this stream's events."""
        return (self.tag,) if isinstance(self.tag, Tag) else tuple(dict.fromkeys(self.tag.values()))

    def column_of(self, declared: str) -> str:
        """Return the input column that holds a declared column."""
        return self.rename.get(declared, declared)

    @cached_property
    def columns(self) -> list[str]:
        """The input columns in use, each once."""
        return list(self.types)

    @property
    def types(self) -> dict[str, pa.DataType | None]:
        """The input columns in use, with the types of declared ones."""
        names = (self.ts, *(name for name in (self.seq, self.tag_column) if name is not None))
        declared = {self.column_of(f.name): f.type for tag in self.tags for f in tag.schema}
        return {**dict.fromkeys(names), **declared}

    def source(self) -> Source:
        """Return the data as a source, which is read by part and chunk."""
        convert = Converter(self.name, self.types)
        if isinstance(self.data, Parquet):
            return self.data.source(self.name)
        if isinstance(self.data, GeneratorSource):
            return self.data.source(convert, self.ts)
        if isinstance(self.data, Source):
            return self.data
        return InMemoryTables(convert.tables(self.data))

    def file(self, part: int) -> str | None:
        """Return the path of a part's file, if the part is one."""
        return self.data.files[part].path if isinstance(self.data, Parquet) else None

    def parts(self) -> list[pa.Table]:
        """Return the data as Arrow tables, one for each part; a paced generator is read without waiting."""
        source = self.source()
        if isinstance(source, Files):
            source.check_schemas(self.columns)
        return [source.read(part) for part in range(source.parts)]
