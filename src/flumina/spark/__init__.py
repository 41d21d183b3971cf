"""Runs plans on a Spark cluster, each in one gang-scheduled stage."""

from flumina.spark.run import run

__all__ = ["run"]
