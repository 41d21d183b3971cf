"""Page views: every view and get gives out what its page says at that moment, a change what it said before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.window import Window

from benchmarks.baselines.gang import Gang, Part, gang
from benchmarks.baselines.inputs import Folder
from benchmarks.baselines.intervals import Bins, after, inside
from benchmarks.baselines.keyed import in_order, keyed

OUTPUT = "page string, user long, info string"
CHANGE = 2
"""The rank of the stream of changes."""


def batch(spark: SparkSession, folder: Folder) -> dict[str, DataFrame]:
    """Views and gets are joined with the intervals between changes of their page, which are sent to all tasks.

    The textbook's way, ``last(info) OVER (PARTITION BY page ORDER BY ts)``, has a task for each page and so as many as
    there are hot pages.
    """
    changes = folder.frame(spark, "changes")
    asked = folder.frame(spark, "views").unionByName(folder.frame(spark, "gets"), allowMissingColumns=True)
    told = inside(asked, after(changes, ["page"]), Bins.of(changes), ["page"], "left")
    old = F.lag("info").over(Window.partitionBy("page").orderBy("ts"))
    changed = changes.select("page", F.lit(None).cast("long").alias("user"), old.alias("info"))
    return {"output": told.select("page", "user", "info").unionByName(changed)}


def streaming(spark: SparkSession, folder: Folder) -> dict[str, DataFrame]:
    """Keyed by page: a page that gets most of the views gets one core."""
    return {"output": query(folder.slices(spark))}


def query(rows: DataFrame) -> DataFrame:
    """The same for rows from anywhere: ``kind`` (2 for a change), ``ts``, ``page``, ``user``, ``info``."""
    return keyed(rows, "page", _join, OUTPUT, "info string")


def _join(key: tuple[Any, ...], pieces: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    rows = in_order(pieces)
    (known,) = state.get if state.exists else (None,)
    changes = rows["kind"].to_numpy() == CHANGE
    infos = np.array([known, *rows["info"].to_numpy()[changes]], object)
    count = np.cumsum(changes)
    state.update((infos[-1],))
    yield pd.DataFrame({"page": key[0], "user": rows["user"].astype("Int64"), "info": infos[count - changes]})


def manual(spark: SparkSession, folder: Folder) -> dict[str, DataFrame]:
    """Each task joins the views of its own part; at a change all wait until everybody has come so far."""
    parts, gets, changes = folder.parts("views"), folder.parts("gets"), folder.parts("changes")

    def work(me: Gang) -> Iterator[pa.RecordBatch]:
        asked = [Part(parts[me.number], ["page", "user"])] + ([Part(gets[0], ["page"])] if me.leads else [])
        mine = Part(changes[0]).rows() if me.leads else iter(())
        infos: dict[str, str | None] = {}
        change = me.learn(next(mine, None))
        while True:
            for part in asked:
                yield from (_told(rows, infos) for rows in part.upto(change["ts"] if change else 1 << 62))
            if change is None:
                return
            if me.leads:
                yield _rows([change["page"]], [None], [infos.get(change["page"])])
            infos[change["page"]] = change["info"]
            change = me.learn(next(mine, None))

    return {"output": gang(spark, len(parts), work, OUTPUT)}


def _told(rows: pa.RecordBatch, infos: dict[str, str | None]) -> pa.RecordBatch:
    """Views or gets with what their pages say."""
    pages = rows["page"].dictionary_encode()
    said = pa.array([infos.get(page) for page in pages.dictionary.to_pylist()], pa.string())
    users = rows["user"] if "user" in rows.schema.names else pa.nulls(rows.num_rows, pa.int64())
    return _rows(rows["page"], users, pc.take(said, pages.indices))


def _rows(pages: Any, users: Any, infos: Any) -> pa.RecordBatch:  # noqa: ANN401 -- anything that pyarrow takes
    columns = [pa.array(pages, pa.string()), pa.array(users, pa.int64()), pa.array(infos, pa.string())]
    return pa.record_batch(columns, names=["page", "user", "info"])
