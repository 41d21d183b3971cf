"""Sample state sizes in a separate process, so that ``update`` can't harm the driver."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pyarrow as pa

from flumina.input.stream import Stream
from flumina.plan.state_sizes import EVENTS, StateSize, sample_states
from flumina.program import pickling
from flumina.program.base import AnyProgram


@dataclass(frozen=True)
class Sampling:
    """A request to sample the states of a program, and the file for the result."""

    packed: bytes
    out: str

    @staticmethod
    def of(program: AnyProgram, streams: Sequence[Stream], distinct: float, bad_rows: str, out: Path) -> Sampling:
        """Pack a program and the first rows of its streams."""
        first = [head for stream in streams if (head := _head(stream)) is not None]
        return Sampling(pickling.dumps((program, first, distinct, bad_rows)), str(out))

    def execute(self) -> None:
        """Sample, and write the size as JSON; write nothing where the program fails, since the run will raise."""
        with suppress(Exception):
            program, streams, distinct, bad_rows = pickling.loads(self.packed)
            found = sample_states(program, streams, distinct=distinct, bad_rows=bad_rows)
            Path(self.out).write_text(json.dumps(asdict(found)), encoding="utf-8")

    def result(self) -> StateSize | None:
        """Return the size that was written; None if there is none."""
        try:
            return StateSize(**json.loads(Path(self.out).read_text(encoding="utf-8")))
        except (OSError, ValueError):  # the process ended before it had written the file
            return None


def _head(stream: Stream) -> Stream | None:
    """Return the stream with the first rows of its parts; None if it has none."""
    source = stream.source()
    found = []
    for number in range(source.parts):
        chunk = next(iter(source.chunks(number, stream.columns, EVENTS)), None)
        if chunk is not None and chunk.num_rows:
            found.append(pa.Table.from_batches([chunk.slice(0, EVENTS)]))
    return replace(stream, data=found) if found else None
