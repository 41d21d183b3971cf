"""Combine a program with its workload and its file reader."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from flumina.apps.workload import Workload, arguments
from flumina.errors import UsageError
from flumina.input.files import Parquet
from flumina.input.stream import Stream
from flumina.model.tag import Tag
from flumina.program.base import Program


@dataclass(frozen=True)
class Opened:
    """Files as streams; ``left_out`` has the reason for each row that ``lenient`` left out."""

    streams: list[Stream]
    left_out: tuple[str, ...] = ()


Reader = Callable[..., Opened]
"""``read(path, *, parts, lenient, ...)``: a file that others made as the streams of a program; further arguments are
numbers with defaults."""


@dataclass(frozen=True)
class App:
    """A program and its inputs.

    ``by_hand``   the same program with its own fork and join, where the first has declared state
    ``reader``    for files in a format of their own; without one, folders of Parquet files are read
    """

    name: str
    program: type[Program]
    workload: type[Workload]
    by_hand: type[Program] | None = None
    reader: Reader | None = None

    def generate(self, **parameters: object) -> Workload:
        """Return generated input; takes the workload's parameters, as values or as text."""
        return self.workload.of(parameters)

    def open(self, path: str | Path, *, parts: int = 1, lenient: bool = False, **options: object) -> Opened:
        """Open input from files: a folder as :meth:`Workload.write` makes it, or the program's own format.

        ``parts``    into how many parts a single text file is divided
        ``lenient``  leave out rows that can't be read, and say which, rather than raise an error
        ``options``  numbers that the program's own format needs, as values or as text
        """
        place = Path(path)
        if self.reader is None or place.is_dir():
            streams = _folder(place, {flow.name: flow.tag for flow in self.workload().flows()})
            arguments(f"a folder for {self.name}", {}, options)
            return Opened(streams)
        given = arguments(f"a file for {self.name}", dict.fromkeys(self.options, int), options)
        return self.reader(place, parts=parts, lenient=lenient, **given)

    @property
    def options(self) -> tuple[str, ...]:
        """The options of :meth:`open` for a file in the program's own format."""
        named = {} if self.reader is None else inspect.signature(self.reader).parameters
        return tuple(name for name in named if name not in ("path", "parts", "lenient"))


def _folder(place: Path, tags: Mapping[str, Tag]) -> list[Stream]:
    """Return a stream for each folder or file with the name of one."""
    names = {name: [p for p in (place / name, *sorted(place.glob(f"{name}.*"))) if p.exists()] for name in tags}
    missing = [name for name, found in names.items() if not found]
    if missing:
        raise UsageError(
            "NO_STREAM_FILES",
            f"{place} has nothing for the stream{'s' if len(missing) > 1 else ''} {', '.join(missing)}",
            hint=f"it needs a folder {missing[0]}/ of Parquet or Arrow files, or a file {missing[0]}.parquet",
        )
    for name, found in names.items():
        if len(found) > 1:
            raise UsageError(
                "TWO_STREAM_FILES",
                f"{place} has more than one thing for the stream {name}: {', '.join(path.name for path in found)}",
                hint=f"leave one of them there; several files of a stream belong into a folder {name}/",
            )
    return [Stream(name, tag, Parquet(names[name])) for name, tag in tags.items()]
