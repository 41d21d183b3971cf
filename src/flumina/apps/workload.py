"""Generate seeded inputs of any size: events as functions of their numbers.

Event n of a flow is made from n and the seed alone, by a hash, so that any part of it can be made anywhere, at once and
in bounded memory; how many parts there are decides only which part has it (n modulo the number of parts).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self, get_type_hints

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from flumina.errors import UsageError
from flumina.input.sources import CHUNK_ROWS, GeneratorSource
from flumina.input.stream import Stream
from flumina.model.hashing import hash_column, hash_key
from flumina.model.order import Ints
from flumina.model.tag import Tag

MICROSECONDS = 1_000_000

Columns = Mapping[str, Any]
"""Columns of equal length, as numpy or Arrow arrays."""


def noise(seed: int, what: str, numbers: Ints) -> npt.NDArray[np.uint64]:
    """Return 64 random bits for each number; ``what`` distinguishes columns made from the same numbers.

    >>> noise(1, "v", np.array([5, 6]))[1] == noise(1, "v", np.array([6]))[0]
    np.True_
    """
    start = np.uint64(hash_key(f"{seed} {what}"))
    return hash_column(pa.array((start + numbers.astype(np.uint64)).view(np.int64)))


def below(limit: int, bits: npt.NDArray[np.uint64]) -> Ints:
    """Return random bits as numbers from 0 to limit - 1."""
    return (bits % np.uint64(limit)).astype(np.int64)


def share(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Return random bits as numbers from 0 up to 1."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True)
class Flow:
    """One stream of a workload.

    ``make``   the columns of the events with these numbers, timestamps (microseconds) among them, never decreasing
    ``count``  how many events there are
    ``rate``   how many of them there are in a second, for pacing
    """

    name: str
    tag: Tag
    make: Callable[[Ints], Columns]
    count: int
    rate: float
    parts: int = 1

    def __call__(self, part: int) -> Iterator[Columns]:
        """Yield the events of one part, chunk by chunk."""
        step = CHUNK_ROWS * self.parts
        for first in range(part, self.count, step):
            yield self.make(np.arange(first, min(first + step, self.count), self.parts))

    def stream(self, *, paced: bool, heartbeats: float) -> Stream:
        """Return the flow as a stream that is generated in the task that reads it."""
        rate = max(self.rate / self.parts, 1e-3) if paced else None
        return Stream(self.name, self.tag, GeneratorSource(self, self.parts, rate, heartbeats))


def parameter(default: float | str, about: str) -> Any:  # noqa: ANN401 -- it stands for the parameter's value
    """Return a parameter of a workload, with its description."""
    return field(default=default, metadata={"about": about})


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The generated input of a program; the fields of a subclass are its parameters.

    ``flows`` gives its streams in the order of their ranks.
    """

    parts: int = parameter(2, "parts of the streams that work in parallel")
    seed: int = parameter(1, "another seed gives other events")

    def __post_init__(self) -> None:
        """Refuse invalid parameters: numbers are at least one, but there may be no events."""
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(f.default, int) and f.name != "seed":
                least = 0 if f.name == "events" else 1
                self.require(f.name, isinstance(value, int) and value >= least, f"should be at least {least}")

    def require(self, name: str, fine: bool, what: str) -> None:  # noqa: FBT001 -- it is the condition
        """Raise an error that names a parameter unless it is fine."""
        require(type(self).__name__, name, getattr(self, name), fine, what)

    def flows(self) -> list[Flow]:
        """Return the flows; every workload has its own."""
        raise NotImplementedError

    def streams(self, *, paced: bool = False, heartbeats: float = 100.0) -> list[Stream]:
        """Return streams that tasks generate; ``paced`` ones in real time, with heartbeats."""
        return [flow.stream(paced=paced, heartbeats=heartbeats) for flow in self.flows()]

    def tables(self) -> list[Stream]:
        """Return the streams in memory."""
        made = self.streams()
        return [Stream(s.name, s.tag, s.parts()) for s in made]

    def write(self, folder: str | Path) -> list[Path]:
        """Write the streams as Parquet files, ``stream/part-00000.parquet``, and return their paths."""
        paths = []
        for stream in self.streams():
            source = stream.source()
            types = {name: type_ or pa.int64() for name, type_ in stream.types.items()}
            schema = pa.schema(types)
            (Path(folder) / stream.name).mkdir(parents=True, exist_ok=True)
            for part in range(source.parts):
                path = Path(folder) / stream.name / f"part-{part:05d}.parquet"
                with pq.ParquetWriter(path, schema) as writer:
                    for chunk in source.chunks(part, stream.columns):
                        writer.write_table(pa.Table.from_batches([chunk]).select(schema.names).cast(schema))
                paths.append(path)
        return paths

    @classmethod
    def parameters(cls) -> dict[str, tuple[object, str]]:
        """Return the names of the parameters, each with its default and description."""
        return {f.name: (f.default, f.metadata["about"]) for f in fields(cls)}

    @classmethod
    def of(cls, given: Mapping[str, object]) -> Self:
        """Return a workload from parameters as values or text."""
        types = get_type_hints(cls)
        return cls(**arguments(cls.__name__, {name: types[name] for name in cls.parameters()}, given))


def require(whose: str, name: str, value: object, fine: bool, what: str) -> None:  # noqa: FBT001 -- it is the condition
    """Raise an error that names a parameter and its value unless it is fine."""
    if not fine:
        raise UsageError("PARAMETER", f"{whose}: {name}={value!r} {what}")


def arguments(whose: str, types: Mapping[str, type], given: Mapping[str, object]) -> dict[str, Any]:
    """Convert arguments, some of them perhaps text, to values of these types.

    >>> arguments("f", {"n": int, "share": float}, {"n": "10_000", "share": 1})
    {'n': 10000, 'share': 1.0}
    """
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in types:
            hint = f"it has {', '.join(types)}" if types else "leave it out: there is nothing to be set"
            raise UsageError("PARAMETER", f"{whose} has no {name!r}", hint=hint)
        try:
            values[name] = types[name](value)
        except (TypeError, ValueError):
            message = f"{whose}: expected {name}= as {types[name].__name__}, got {value!r}"
            raise UsageError("PARAMETER", message) from None
    return values


@dataclass(frozen=True, kw_only=True)
class Steady(Workload):
    """Events that come at a steady rate, and now and then one that synchronizes, on a stream of its own.

    Streams that synchronize come last, so that such an event sees what happened at the same time.
    """

    events: int = parameter(1_000_000, "events that work in parallel, on all parts together")
    rate: int = parameter(1_000_000, "how many of them there are in a second: what timestamps are made from")

    def ts(self, numbers: Ints) -> Ints:
        """When the events that work in parallel happen, in microseconds."""
        return numbers * MICROSECONDS // self.rate

    def often(self, name: str, tag: Tag, make: Callable[[Ints], Columns]) -> Flow:
        """Return the flow that works in parallel; ``make`` gives its columns besides the timestamp."""
        return Flow(name, tag, Often(self, make), self.events, self.rate, self.parts)

    def rare(self, name: str, tag: Tag, make: Callable[[Ints], Columns], ratio: int) -> Flow:
        """Return a flow of one event for ``ratio`` events on each part, just after the last of them."""
        every = ratio * self.parts
        return Flow(name, tag, Rare(self, make, every), self.events // every, self.rate / every)


@dataclass(frozen=True)
class Often:
    """The columns of events that come at a steady rate."""

    workload: Steady
    columns: Callable[[Ints], Columns]

    def __call__(self, numbers: Ints) -> Columns:
        """Return the columns and the timestamps."""
        return {"ts": self.workload.ts(numbers), **self.columns(numbers)}


@dataclass(frozen=True)
class Rare:
    """The columns of events that follow every so many others."""

    workload: Steady
    columns: Callable[[Ints], Columns]
    every: int

    def __call__(self, numbers: Ints) -> Columns:
        """Return the columns, and the timestamp of the last event before each."""
        return {"ts": self.workload.ts((numbers + 1) * self.every - 1), **self.columns(numbers)}
