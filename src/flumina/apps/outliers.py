"""Detect outliers among network connections by a model that queries train.

The structure is that of fraud detection; the algorithm is RELOADED, see :mod:`flumina.apps.reloaded`. The columns are
from the KDD Cup 1999, which the original was tried on: text columns are categorical, whole numbers are counts and
sizes, others are rates from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import flumina as fl
from flumina.apps.app import App, Opened
from flumina.apps.reloaded import THRESHOLD, UNIT, Categories, Model, Summary, logarithmic, percentages
from flumina.apps.text import LINE, TextFile
from flumina.apps.workload import Columns, Flow, Steady, below, noise, parameter, require, share
from flumina.model.order import Ints

COLUMNS = {
    "duration": "long",
    "protocol_type": "string",
    "service": "string",
    "flag": "string",
    "src_bytes": "long",
    "dst_bytes": "long",
    "land": "string",
    "wrong_fragment": "long",
    "urgent": "long",
    "hot": "long",
    "num_failed_logins": "long",
    "logged_in": "string",
    "num_compromised": "long",
    "root_shell": "long",
    "su_attempted": "long",
    "num_root": "long",
    "num_file_creations": "long",
    "num_shells": "long",
    "num_access_files": "long",
    "num_outbound_cmds": "long",
    "is_host_login": "string",
    "is_guest_login": "string",
    "count": "long",
    "srv_count": "long",
    "serror_rate": "double",
    "srv_serror_rate": "double",
    "rerror_rate": "double",
    "srv_rerror_rate": "double",
    "same_srv_rate": "double",
    "diff_srv_rate": "double",
    "srv_diff_host_rate": "double",
    "dst_host_count": "long",
    "dst_host_srv_count": "long",
    "dst_host_same_srv_rate": "double",
    "dst_host_diff_srv_rate": "double",
    "dst_host_same_src_port_rate": "double",
    "dst_host_srv_diff_host_rate": "double",
    "dst_host_serror_rate": "double",
    "dst_host_srv_serror_rate": "double",
    "dst_host_rerror_rate": "double",
    "dst_host_srv_rerror_rate": "double",
}
CATEGORIES, SIZES, RATES = (
    tuple(name for name, type_ in COLUMNS.items() if type_ == kind) for kind in ("string", "long", "double")
)


@dataclass
class Knowledge:
    """The state: a summary of what a worker has seen, and the model of the last query."""

    summary: Summary = field(default_factory=Summary)
    model: Model | None = None


def measured(sizes: list[Any], rates: list[Any]) -> Ints:
    """Return the continuous attributes of some connections, given by column, as small integers, a row each."""
    return np.concatenate((logarithmic(np.array(sizes, np.int64)), percentages(np.array(rates, np.float64)))).T


class Outliers(fl.Program):
    """A summary that connections add to, and a model that they read and queries set."""

    connection = fl.Tag(", ".join(f"{name} {type_} NOT NULL" for name, type_ in COLUMNS.items()))
    query = fl.Tag()
    depends = fl.depends((query, query), (query, connection))
    output = {
        "outlier": "protocol_type string, service string, flag string, score double",
        "model": "connections long, combinations long, itemsets long",
    }

    def init(self) -> Knowledge:
        """Return the empty summary and no model."""
        return Knowledge()

    def update(self, state: Knowledge, event: fl.Event, emit: fl.Emit) -> None:
        """Score a connection by the model, and add it to the summary; train the next model at a query."""
        if event.tag is self.query:
            emit.model(*self.answer(state))
            return
        categories = tuple(event[name] for name in CATEGORIES)
        measures = measured([[event[name]] for name in SIZES], [[event[name]] for name in RATES])
        state.summary.add(categories, measures)
        if state.model is not None:
            score = float(state.model.scores(categories, measures)[0] / UNIT)
            if score > THRESHOLD:
                emit.outlier(*categories[:3], score)

    def update_batch(self, state: Knowledge, batch: fl.Batch, emit: fl.Emit) -> None:
        """Score and add all connections with the same categorical values at once."""
        if batch.tag is self.query:
            if len(batch):
                emit.model.columns(*zip(*(self.answer(state) for _ in range(len(batch))), strict=True))
            return
        measures = measured([batch[name] for name in SIZES], [batch[name] for name in RATES])
        scores = np.zeros(len(batch), np.int64)
        for categories, rows in by_categories(batch):
            state.summary.add(categories, measures[rows])
            if state.model is not None:
                scores[rows] = state.model.scores(categories, measures[rows])
        found = np.flatnonzero(scores > THRESHOLD * UNIT)
        columns = (batch.arrow(name).take(pa.array(found)) for name in CATEGORIES[:3])
        emit.outlier.columns(*columns, scores[found] / UNIT, at=found)

    def answer(self, state: Knowledge) -> tuple[int, int, int]:
        """Train the next model; return the sizes of its input and of itself."""
        state.model = Model.train(state.summary)
        return state.summary.records, len(state.summary.moments), len(state.model.frequent)

    def fork(self, state: Knowledge, left: fl.TagSet, right: fl.TagSet) -> tuple[Knowledge, Knowledge]:
        """Give the summary to the side with the queries, the model to both."""
        learner = Knowledge(model=state.model)
        return (learner, state) if right.has(self.query) else (state, learner)

    def join(self, left: Knowledge, right: Knowledge) -> Knowledge:
        """Add the summaries; both sides have the same model."""
        left.summary.merge(right.summary)
        return left


def by_categories(batch: fl.Batch) -> Iterator[tuple[Categories, Ints]]:
    """Yield the combinations of categorical values in a batch, each with the rows that have it."""
    codes, radix = np.zeros(len(batch), np.int64), 1
    for name in CATEGORIES:
        encoded = batch.arrow(name).dictionary_encode()
        size = max(len(encoded.dictionary), 1)
        if radix * size >= 1 << 62:
            codes, radix = np.unique(codes, return_inverse=True)[1], len(batch)
        codes, radix = codes * size + encoded.indices.to_numpy(), radix * size
    order = np.argsort(codes, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1) if len(batch) else []
    first = pa.array([rows[0] for rows in groups], pa.int64())
    values = [batch.arrow(name).take(first).to_pylist() for name in CATEGORIES]
    yield from zip(zip(*values, strict=True), groups, strict=True)


@dataclass(frozen=True)
class Kind:
    """A kind of made-up connections: how often it occurs among its likes, and what is typical of it."""

    often: int
    protocol: str
    service: str
    flag: str
    logged_in: str
    sent: int
    received: int
    count: int
    errors: float = 0.0
    traces: int = 0
    """Its traces: files, accesses, attempts."""


USUAL = (
    Kind(50, "tcp", "http", "SF", "1", 220, 4_000, 8),
    Kind(20, "udp", "domain_u", "SF", "0", 40, 90, 120),
    Kind(15, "tcp", "smtp", "SF", "1", 1_100, 330, 2),
    Kind(10, "icmp", "eco_i", "SF", "0", 20, 0, 1),
    Kind(5, "tcp", "ftp_data", "SF", "1", 6_000, 0, 4),
)
TRACES = ("hot", "num_compromised", "num_root", "num_file_creations", "num_access_files")
UNUSUAL = (
    Kind(5, "tcp", "private", "S0", "0", 0, 0, 250, 0.98),
    Kind(3, "tcp", "http", "SF", "1", 54_000, 8_000, 6, traces=2),
    Kind(1, "tcp", "telnet", "RSTO", "0", 130, 180, 1, 0.5, traces=1),
    Kind(1, "icmp", "ecr_i", "SF", "0", 1_032, 0, 500),
)


@dataclass(frozen=True, kw_only=True)
class Connections(Steady):
    """Connections of a few usual kinds and, here and there, of unusual ones; and queries."""

    ratio: int = parameter(10_000, "connections on each part for one query")
    unusual: float = parameter(0.01, "the share of unusual connections")

    def __post_init__(self) -> None:
        """Refuse a share outside 0 to 1."""
        super().__post_init__()
        self.require("unusual", 0 <= self.unusual <= 1, "should be between 0 and 1")

    def flows(self) -> list[Flow]:
        """Return connections in parts, and one stream of queries."""
        return [
            self.often("connections", Outliers.connection, self._connections),
            self.rare("queries", Outliers.query, self._queries, self.ratio),
        ]

    def is_unusual(self, numbers: Ints) -> npt.NDArray[np.bool_]:
        """Return which connections are unusual: what a perfect detector would flag."""
        return share(noise(self.seed, "unusual", numbers)) < self.unusual

    def _kinds(self, numbers: Ints) -> Ints:
        """Return the kind of each connection, as a place in ``USUAL + UNUSUAL``."""
        kinds = [np.repeat(np.arange(len(of)), [kind.often for kind in of]) for of in (USUAL, UNUSUAL)]
        bits = noise(self.seed, "kind", numbers)
        usual, unusual = (of[below(len(of), bits)] for of in kinds)
        return np.where(self.is_unusual(numbers), unusual + len(USUAL), usual)

    def _connections(self, numbers: Ints) -> Columns:
        kinds, count = self._kinds(numbers), len(numbers)

        def typical(name: str) -> npt.NDArray[Any]:
            return np.array([getattr(kind, name) for kind in USUAL + UNUSUAL])[kinds]

        def text(name: str) -> pa.Array:
            return pa.array([getattr(kind, name) for kind in USUAL + UNUSUAL]).take(pa.array(kinds))

        def about(name: str) -> Ints:
            spread = 0.75 + share(noise(self.seed, name, numbers)) / 2
            return (typical(name) * spread).astype(np.int64)

        rate = np.minimum(typical("errors") * (0.9 + share(noise(self.seed, "rate", numbers)) / 5), 1)
        busy = about("count")
        columns = {name: np.zeros(count, np.int64) for name in SIZES} | {name: np.zeros(count) for name in RATES}
        texts = {"protocol_type": "protocol", "service": "service", "flag": "flag", "logged_in": "logged_in"}
        return {
            **columns,
            **{name: pa.array(["0"]).take(pa.array(np.zeros(count, np.int64))) for name in CATEGORIES},
            **{name: text(of) for name, of in texts.items()},
            **dict.fromkeys(TRACES, typical("traces")),
            "src_bytes": about("sent"),
            "dst_bytes": about("received"),
            "duration": below(3, noise(self.seed, "duration", numbers)),
            "count": busy,
            "srv_count": busy,
            "same_srv_rate": np.ones(count),
            "serror_rate": rate,
            "srv_serror_rate": rate,
            "dst_host_serror_rate": rate,
        }

    def _queries(self, numbers: Ints) -> Columns:
        return {}


LABEL = "label"
_TYPES = {"string": pa.string(), "long": pa.int64(), "double": pa.float64()}


@dataclass(frozen=True)
class ConnectionRecords:
    """The connections in a file of the KDD Cup, for ``fl.GeneratorSource``: timestamps are the numbers of the lines."""

    file: TextFile
    parts: int

    def __call__(self, part: int) -> Iterator[pa.Table]:
        """Yield the connections of a part, one in ``parts``; each part reads the whole file."""
        for table in self.file.tables():
            mine = table.filter(pa.array(table.column(LINE).to_numpy() % self.parts == part))
            yield mine.rename_columns(["ts" if name == LINE else name for name in mine.column_names])


def read(path: Path, *, parts: int = 1, lenient: bool = False, every: int = 10_000) -> Opened:
    """Open a file of the KDD Cup 1999 (41 attributes and a label), with a query after ``every`` lines.

    It is read once here, for the number of its lines and for bad lines.
    """
    require("a file for outliers", "every", every, every >= 1, "should be at least 1")
    types = {name: _TYPES[type_] for name, type_ in COLUMNS.items()}
    file = TextFile(path, "connections", {**types, LABEL: pa.string()}, lenient=lenient)
    last: list[int] = [-1]
    left_out = file.scan(lambda table: last.append(table.column(LINE)[-1].as_py()))
    queries = {"ts": np.arange(every - 1, last[-1] + 1, every)}
    connections = fl.GeneratorSource(ConnectionRecords(file, parts), parts)
    streams = [
        fl.Stream("connections", Outliers.connection, connections),
        fl.Stream("queries", Outliers.query, queries),
    ]
    return Opened(streams, left_out)


APP = App("outliers", Outliers, Connections, reader=read)
