"""Spark backend: run a program once, or as a streaming query."""

from flumina.spark.run import run
from flumina.spark.streaming.start import start

__all__ = ["run", "start"]
