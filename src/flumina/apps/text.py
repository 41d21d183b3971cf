"""Read rows of text files block by block as typed columns.

A bad line is an error with its number, or left out and counted. A block is parsed at once; only where that fails is it
divided in halves until the bad lines are found, so that good files are read at the speed of Arrow.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from flumina.errors import InputError
from flumina.model.schema import type_name

BLOCK = 4 * 2**20
LINE = "line"
"""The column that tells which line of the file a row was, from 0."""

_BLANKS = re.compile(rb"[ \t]+")

OnBad = Callable[[int, str], None]
"""A handler of bad lines: takes the number of the line, from 0, and the reason."""


@dataclass(frozen=True)
class TextFile:
    """A text file with a row on each line, perhaps compressed.

    ``columns``  the names and types of its columns
    ``blanks``   columns are separated by blanks, any number of them, rather than by commas
    ``lenient``  leave out bad lines rather than raise an error
    ``limits``   how far from 0 the values of a column may be; what is no number is beyond any limit
    """

    path: Path
    stream: str
    columns: Mapping[str, pa.DataType]
    blanks: bool = False
    lenient: bool = False
    limits: Mapping[str, float] = field(default_factory=dict)

    def tables(self, bad: OnBad | None = None) -> Iterator[pa.Table]:
        """Yield the good rows, in the order of the file, with the number of their :data:`LINE`.

        ``bad`` gets the others; without it they are an error, unless the file is read leniently.
        """
        on_bad = bad or (_nothing if self.lenient else self._refuse)
        first = 0
        for lines in self._blocks(on_bad):
            for at, table in self._parse(lines, first, on_bad):
                numbers = pa.array(np.arange(at, at + table.num_rows))
                fine = self._within(table.append_column(LINE, numbers), on_bad)
                if fine.num_rows:
                    yield fine
            first += len(lines)

    def scan(self, look: Callable[[pa.Table], None]) -> tuple[str, ...]:
        """Read the whole file, passing on its rows; return the reason for each line left out.

        A file without any line is an error.
        """
        found: list[str] = []
        empty = True

        def note(number: int, what: str) -> None:
            found.append(f"{self.path}:{number + 1}: {what}")

        for table in self.tables(note if self.lenient else None):
            empty = False
            look(table)
        if empty and not found:
            raise InputError("NO_LINES", f"{self.path} has no lines", stream=self.stream, hint="is it the right file?")
        return tuple(found)

    def _blocks(self, bad: OnBad) -> Iterator[list[bytes]]:
        """Yield the file in lines, many at once; the last one may have been cut short if it does not end."""
        number, rest = 0, b""
        with _errors(self.path, self.stream), _opened(self.path) as file:
            while block := file.read(BLOCK):
                lines = (rest + block).split(b"\n")
                rest = lines.pop()
                number += len(lines)
                if len(rest) > BLOCK:
                    message = f"{self.path}:{number + 1}: the line is longer than {BLOCK:,} bytes"
                    raise InputError("LONG_LINE", message, stream=self.stream, row=number, hint="is it text?")
                if lines:
                    yield lines
        if rest:
            bad(number, f"the file ends within the line {_shown(rest)}, which may have been cut short")

    def _parse(self, lines: Sequence[bytes], first: int, bad: OnBad) -> Iterator[tuple[int, pa.Table]]:
        text = b"\n".join(lines)
        if self.blanks:
            text = _BLANKS.sub(b",", b"\n".join(line.strip() for line in lines))
        try:
            yield first, self._read(text)
        except pa.ArrowInvalid as error:
            if len(lines) == 1:
                bad(first, self._wrong(lines[0], error))
                return
            middle = len(lines) // 2
            yield from self._parse(lines[:middle], first, bad)
            yield from self._parse(lines[middle:], first + middle, bad)

    def _within(self, table: pa.Table, bad: OnBad) -> pa.Table:
        """Return the rows whose values are within the limits."""
        for name, limit in self.limits.items():
            fine = np.abs(table.column(name).to_numpy()) <= limit
            if not fine.all():
                beyond = table.filter(pa.array(~fine))
                for line, value in zip(beyond.column(LINE).to_pylist(), beyond.column(name).to_pylist(), strict=True):
                    bad(line, f"column {name!r}: {value!r} is not between {-limit:g} and {limit:g}")
                table = table.filter(pa.array(fine))
        return table

    def _read(self, text: bytes) -> pa.Table:
        return pc.read_csv(
            io.BytesIO(text + b"\n"),
            pc.ReadOptions(column_names=list(self.columns), use_threads=False, block_size=2 * BLOCK),
            pc.ParseOptions(quote_char=False, ignore_empty_lines=False),
            pc.ConvertOptions(column_types=dict(self.columns), null_values=[], strings_can_be_null=False),
        )

    def _wrong(self, line: bytes, error: pa.ArrowInvalid) -> str:
        """Return why one line can't be read."""
        values = line.split() if self.blanks else line.split(b",")
        if len(values) != len(self.columns):
            return f"{len(values)} columns instead of {len(self.columns)} in the line {_shown(line)}"
        for (name, type_), value in zip(self.columns.items(), values, strict=True):
            try:
                pa.array([value.decode()]).cast(type_)
            except (pa.ArrowInvalid, UnicodeDecodeError):
                return f"column {name!r}: expected {type_name(type_)}, got {_shown(value)}"
        return f"{error} in the line {_shown(line)}"

    def _refuse(self, number: int, what: str) -> None:
        raise InputError(
            "BAD_LINE",
            f"{self.path}:{number + 1}: {what}",
            stream=self.stream,
            row=number,
            hint="mend the file, or read it with lenient=True: lines that do not fit are then left out and counted",
        )


def beginning(path: Path, stream: str) -> bytes:
    """Return the first bytes of a file, to recognize its format."""
    with _errors(path, stream), _opened(path) as file:
        return bytes(file.read(4096))


def _opened(path: Path) -> pa.NativeFile:
    return pa.input_stream(str(path), compression="detect")


@contextmanager
def _errors(path: Path, stream: str) -> Iterator[None]:
    """Convert errors of a file to :class:`~flumina.errors.InputError`, with its path."""
    try:
        yield
    except OSError as error:
        condition = "NO_FILE" if isinstance(error, FileNotFoundError) else "UNREADABLE_FILE"
        raise InputError(condition, f"{path}: {error}", stream=stream) from error


def _nothing(number: int, what: str) -> None:
    """Ignore a bad line: it was counted before."""


def _shown(line: bytes) -> str:
    text = line.decode("utf-8", "replace")
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
