"""A driver that can be killed: fraud detection over files, from and to a folder. Run by test_streaming_faults.py."""

import sys
from pathlib import Path

from tests.system.cluster import session
from tests.system.streaming import Files, start


def main(folder: Path) -> None:
    """Process all there is, and say so."""
    spark = session("local[2,4]")
    query = start(spark, Files(folder / "in", {}).streams(spark), folder)
    query.awaitTermination()
    print("done")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
