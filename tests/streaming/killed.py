"""A process that goes through batches until it is killed or done. Run by test_kills.py."""

import sys
from pathlib import Path

import flumina as fl
from flumina.apps import ValueBarrier
from tests.streaming.failpoints import from_environment
from tests.streaming.support import Query
from tests.streaming.test_batches import APART, BARRIERS, VALUES, barriers, batch, streams, values


def main(folder: Path) -> None:
    """From the first batch that is not known to be done, as Spark would: its own log is a file of ours."""
    query = Query(folder, ValueBarrier, streams(), watermarks=dict.fromkeys((VALUES, BARRIERS), fl.BoundedDelay()))
    query.batches.hooks = from_environment()
    done = folder / "done"
    first = int(done.read_text()) if done.exists() else 0
    for number in range(first, len(APART)):
        query.feed(number, APART[number])
        done.write_text(str(number + 1))
    query.feed(len(APART), batch(values(), barriers()), closed=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
