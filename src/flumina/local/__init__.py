"""Run plans in processes of this machine: no Spark, no Java, the same tasks."""

from flumina.local.run import run

__all__ = ["run"]
