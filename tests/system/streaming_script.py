"""A driver that can be killed: a query over one of the sources, in a folder. Run by test_streaming_faults.py."""

import json
import sys
from functools import partial
from pathlib import Path

import flumina as fl
from flumina.apps import PageViews
from flumina.streaming import batches
from tests.streaming.failpoints import from_environment
from tests.system.cluster import session
from tests.system.endless import ENDLESS, SHORTLY, options, stopped_after
from tests.system.streaming import Files, Pages
from tests.system.streaming import start as start_query

start = partial(start_query, engine_options=fl.EngineOptions(hooks=from_environment()))

LAST = 4
"""The batch after which somebody stops what does not end of itself."""


def over_files(folder: Path, *, endless: bool) -> None:
    """All there is; or as a query that would wait for more, until there is none."""
    spark = session("local[2,4]")
    streams = Files(folder / "in", {}).streams(spark)
    if endless:
        query = start(spark, streams, folder, trigger=SHORTLY, drain=False)
        query.processAllAvailable()
        query.stop()
    else:
        start(spark, streams, folder).awaitTermination()


def over_pages(folder: Path) -> None:
    """Each worker has some of the pages, and writes and reads its share of the state by itself, however small."""
    batches.INLINE_STATE = 0
    spark = session("local[2,4]")
    streams = Pages(folder / "in", {}).streams(spark)
    start(spark, streams, folder, program=PageViews, watermarks=fl.BoundedDelay(20)).awaitTermination()


def over_endless(name: str, folder: Path) -> None:
    """Some batches of a source that has always more; how far it came is in a file."""
    spark = session("local[2,4]")
    source = ENDLESS[name]
    done = stopped_after(start(spark, source.streams(spark), folder, **options(source)), LAST)
    (folder / "done.json").write_text(json.dumps(done))


def main(folder: Path, name: str) -> None:
    """By the name of the source."""
    if name in ENDLESS:
        over_endless(name, folder)
    elif name == "pages":
        over_pages(folder)
    else:
        over_files(folder, endless=name == "files, waiting")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
