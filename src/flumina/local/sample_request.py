"""Request to sample state sizes, which a process of the pool executes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from flumina.input.dead_letters import BadRows
from flumina.input.stream import Stream
from flumina.plan.state_sizes import StateSize, sample_states
from flumina.program import pickling
from flumina.program.base import AnyProgram


@dataclass(frozen=True)
class SampleRequest:
    """A request to sample the states of a program, and the file for the result."""

    packed: bytes
    out: str

    @staticmethod
    def of(
        program: AnyProgram, heads: Sequence[Stream], distinct: float, bad_rows: BadRows, out: Path
    ) -> SampleRequest:
        """Pack a program and the first rows of its streams."""
        return SampleRequest(pickling.dumps((program, heads, distinct, bad_rows)), str(out))

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
