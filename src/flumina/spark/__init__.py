"""Runs plans on a Spark cluster: once, or batch after batch."""

from flumina.spark.run import run
from flumina.spark.streaming.start import start

__all__ = ["run", "start"]
