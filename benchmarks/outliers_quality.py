# ruff: noqa: INP001, T201 -- a script, which prints
"""How many attacks the outlier detection finds in a file of the KDD Cup 1999, and how many others it flags.

    python benchmarks/outliers_quality.py kddcup.data_10_percent.gz --workers 2

Connections are flagged by the last global model; the label of a connection is looked at here only. Four fifths of the
file are two floods, which are no outliers by any measure; so a second run thins attacks out until those of a kind are
at most ``--most``, in the order of the file, as an intrusion among everyday traffic would be.

What others claim. The original paper reports detection rates for each kind of attack; its figures are not repeated
here, as its text was not at hand to check them: give them with ``--claimed`` to have them printed beside ours. The
paper on dependency-guided synchronization, whose case study this is, reports a speedup only: 7.3 on 8 nodes, beside 7.7
of the original.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import flumina as fl
from flumina import local
from flumina.apps import Outliers
from flumina.apps.outliers import COLUMNS, LABEL, read
from flumina.apps.text import LINE
from flumina.model.order import Ints

NORMAL = "normal."


def table_of(path: Path) -> pa.Table:
    """The whole file in memory, with labels."""
    streams = read(path).streams
    return pa.concat_tables(streams[0].data.function.file.tables())


def thinned(labels: npt.NDArray[np.object_], most: int) -> Ints:
    """Places of all normal connections and of at most so many attacks of each kind, spread over the file."""
    kept = [np.flatnonzero(labels == NORMAL)]
    for kind in sorted(set(labels) - {NORMAL}):
        places = np.flatnonzero(labels == kind)
        kept.append(places[np.unique(np.linspace(0, len(places) - 1, most).astype(int))])
    return np.sort(np.concatenate(kept))


def flagged(table: pa.Table, every: int, workers: int) -> tuple[npt.NDArray[np.bool_], float]:
    """Which connections a run with so many workers flags, and the seconds that it took."""
    count = table.num_rows
    rows = table.select(list(COLUMNS)).append_column("ts", pa.array(np.arange(count)))
    with tempfile.TemporaryDirectory() as folder:
        for part in range(workers):
            mine = rows.take(pa.array(np.arange(part, count, workers)))
            pq.write_table(mine, Path(folder) / f"{part}.parquet")
        streams = [
            fl.Stream("connections", Outliers.connection, fl.Parquet(folder)),
            fl.Stream("queries", Outliers.query, {"ts": np.arange(every - 1, count, every)}),
        ]
        result = local.run(Outliers, streams, workers=workers, optimizer="greedy", progress=False)
    found = np.zeros(count, bool)
    found[result.outputs["outlier"].column("event_ts").to_numpy()] = True
    return found, result.stats.seconds


def report(title: str, labels: npt.NDArray[np.object_], found: npt.NDArray[np.bool_], owned: dict[str, float]) -> None:
    """Rates for all attacks and for each kind, beside what was claimed."""
    normal = labels == NORMAL
    print(f"\n## {title}: {len(labels):,} connections, {np.count_nonzero(~normal):,} attacks\n")
    print("| connections | how many | flagged | claimed |\n|---|---|---|---|")
    shown: Sequence[tuple[str, npt.NDArray[np.bool_]]] = [
        ("all attacks (detection rate)", ~normal),
        ("normal (false-positive rate)", normal),
        *((kind.rstrip("."), labels == kind) for kind in sorted(set(labels) - {NORMAL})),
    ]
    for name, which in shown:
        owner = owned.get(name.split(" ")[0])
        beside = "not known here" if owner is None else f"{owner:.1%}"
        print(f"| {name} | {np.count_nonzero(which):,} | {np.mean(found[which]):.1%} | {beside} |")
    kinds = [kind for kind in set(labels) - {NORMAL} if found[labels == kind].any()]
    print(f"\nkinds of attack of which at least one connection was flagged: {len(kinds)} of {len(set(labels)) - 1}")


def main() -> None:
    """Run twice and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="the file of the KDD Cup 1999, gzip or not")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--every", type=int, default=5_000, help="connections for one query")
    parser.add_argument("--most", type=int, default=100, help="attacks of a kind that are kept in the second run")
    parser.add_argument("--claimed", action="append", default=[], metavar="KIND=RATE", help="all=0.9, normal=0.01, ...")
    given = parser.parse_args()
    owned = {kind: float(rate) for kind, _, rate in (text.partition("=") for text in given.owned)}
    table = table_of(given.path)
    labels = np.array(table.column(LABEL).to_pylist(), object)
    assert pc.all(pc.equal(table.column(LINE), pa.array(np.arange(table.num_rows)))).as_py(), "lines are missing"
    for title, places in (
        ("as the file is", np.arange(len(labels))),
        (f"at most {given.most} attacks of a kind", thinned(labels, given.most)),
    ):
        found, seconds = flagged(table.take(pa.array(places)), given.every, given.workers)
        report(title, labels[places], found, owned)
        print(f"{len(places) / seconds:,.0f} connections a second with {given.workers} workers")


if __name__ == "__main__":
    main()
