# ruff: noqa: INP001, T201 -- a script, which prints
"""What snapshots cost: with and without them, for states from 1 KB to 100 MB, and for many keys in several shares.

    python benchmarks/snapshots_bench.py

Both kinds of run read the same generated events in two local processes, in turns; the ratio is what counts.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import flumina as fl
from flumina import local
from flumina.apps import ValueBarrier
from flumina.checkpoint.store.checkpoints import Checkpoints

WINDOW = 10_000
SIZES = (("1 KB", 10, 100), ("1 MB", 1000, 1000), ("10 MB", 1000, 10_000), ("100 MB", 1000, 100_000))
"""Of states: what they are called, how many pages, and how long their texts are."""


class Memory(fl.KeyedProgram):
    """A page remembers its last text: the state is as large as there are pages, times the length of a text."""

    view = fl.Tag("text binary", key="page long")
    depends = fl.depends((view, view))
    output = "page long"
    text = fl.Replicated("binary")

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:  # noqa: ARG002
        """Remember the text."""
        state.text = event.text


def values(part: int, *, rows: int) -> Iterator[dict[str, Any]]:
    """Values for two parts in turns."""
    for start in range(0, rows, 100_000):
        ts = np.arange(start, start + 100_000) * 2 + part
        yield {"ts": ts, "v": ts}


def with_and_without(rows: int, rounds: int) -> None:
    """The same run with ten snapshots and with none."""
    streams = [
        fl.Stream("values", ValueBarrier.value, fl.GeneratorSource(partial(values, rows=rows), parts=2)),
        fl.Stream("barriers", ValueBarrier.barrier, {"ts": np.arange(2 * WINDOW - 1, 2 * rows, 2 * WINDOW)}),
    ]
    ratios, each = [], []
    for turn in range(rounds + 1):
        with tempfile.TemporaryDirectory() as folder:
            at = Path(folder)
            plain = local.run(ValueBarrier, streams, workers=2, out=at / "plain", progress=False)
            checkpoint = fl.Checkpoint(at / "kept", events=2 * rows // 11)
            kept = local.run(ValueBarrier, streams, workers=2, out=at / "out", checkpoint=checkpoint, progress=False)
        if turn:  # the first one starts processes
            ratios.append(plain.stats.seconds / kept.stats.seconds)
            each.append((kept.stats.seconds - plain.stats.seconds) / max(1, kept.stats.snapshots))
    print(
        f"{2 * rows:,} events, {kept.stats.snapshots} snapshots: {shown(ratios)} of the speed without, "
        f"{1e3 * statistics.median(each):.0f} ms each ({1e3 * min(each):.0f}-{1e3 * max(each):.0f})"
    )


def pages(part: int, *, count: int, size: int) -> Iterator[dict[str, Any]]:
    """Every page is seen once, the first of them a second time much later."""
    del part
    step = max(1, 10_000_000 // size)
    for start in range(0, count, step):
        ts = np.arange(start, min(count, start + step))
        yield {"ts": ts, "page": ts, "text": [bytes(size)] * len(ts)}
    for turn in range(40):
        yield {"ts": [count + turn], "page": [0], "text": [bytes(size)]}


def sizes(rounds: int) -> None:
    """One snapshot for states of several sizes."""
    print("\n| state | bytes on disk | a snapshot costs, ms |\n|---|---|---|")
    for title, count, size in SIZES:
        data = fl.GeneratorSource(partial(pages, count=count, size=size))
        streams = [fl.Stream("views", Memory.view, data)]
        engine_options = fl.EngineOptions(chunk_rows=max(10, count // 10))
        costs, stored = [], 0
        for turn in range(rounds + 1):
            with tempfile.TemporaryDirectory() as folder:
                at = Path(folder)
                plain = local.run(
                    Memory, streams, workers=1, out=fl.DISCARD, engine_options=engine_options, progress=False
                )
                once = fl.Checkpoint(at / "kept", when=lambda since: since.snapshots == 0 and since.events >= count)  # noqa: B023
                kept = local.run(
                    Memory,
                    streams,
                    workers=1,
                    out=fl.DISCARD,
                    checkpoint=once,
                    engine_options=engine_options,
                    progress=False,
                )
                found = [one.manifest.state_size for one in Checkpoints(at / "kept").all()]
                stored = max(stored, *found) if found else stored
            if turn:
                costs.append(1e3 * (kept.stats.seconds - plain.stats.seconds))
        spread = f"{statistics.median(costs):.0f} ({min(costs):.0f}-{max(costs):.0f})"
        print(f"| {title} | {stored:,} | {spread} |", flush=True)


def keys(part: int, *, count: int) -> Iterator[dict[str, Any]]:
    """Every key twice, the two parts in turns."""
    for start in range(0, count, 50_000):
        ts = np.arange(start, start + 50_000) * 2 + part
        yield {"ts": ts, "page": ts % count, "text": [b"some text"] * len(ts)}


def shares(count: int, rounds: int) -> None:
    """One snapshot of a state with many keys, by one worker and by two that have half of the keys each."""
    streams = [fl.Stream("views", Memory.view, fl.GeneratorSource(partial(keys, count=count), parts=2))]
    engine_options = fl.EngineOptions(chunk_rows=20_000, window=40_000)
    print(f"\n{count:,} keys\n\n| workers | shares | a snapshot costs, ms |\n|---|---|---|")
    medians = {}
    for workers in (1, 2):
        costs, files = [], 0
        for turn in range(rounds + 1):
            with tempfile.TemporaryDirectory() as folder:
                at = Path(folder)
                options: dict[str, Any] = {"workers": workers, "optimizer": "greedy", "engine_options": engine_options}
                plain = local.run(Memory, streams, out=fl.DISCARD, progress=False, **options)
                once = fl.Checkpoint(at, when=lambda since: since.snapshots == 0 and since.events >= count)
                kept = local.run(Memory, streams, out=fl.DISCARD, checkpoint=once, progress=False, **options)
                files = max(len(one.manifest.states) for one in Checkpoints(at).all())
            if turn:
                costs.append(1e3 * (kept.stats.seconds - plain.stats.seconds))
        medians[workers] = statistics.median(costs)
        spread = f"{medians[workers]:.0f} ({min(costs):.0f}-{max(costs):.0f})"
        print(f"| {workers} | {files} | {spread} |", flush=True)
    print(f"\nratio {medians[1] / medians[2]:.2f}")


def shown(numbers: list[float]) -> str:
    """Median, lowest and highest."""
    return f"{statistics.median(numbers):.2f} ({min(numbers):.2f}-{max(numbers):.2f})"


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of each part")
    parser.add_argument("--keys", type=int, default=500_000, help="keys of the state in shares")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with_and_without(given.rows, given.rounds)
    sizes(given.rounds)
    shares(given.keys, given.rounds)


if __name__ == "__main__":
    main()
