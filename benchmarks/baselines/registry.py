"""All baselines by name, and how one is run to its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession

from benchmarks.baselines import fraud, page_views, value_barrier
from benchmarks.baselines.inputs import Folder
from benchmarks.baselines.keyed import finished

Baseline = Callable[[SparkSession, Folder], dict[str, DataFrame]]

BASELINES: Mapping[str, Mapping[str, Baseline]] = {
    app: {"batch": module.batch, "streaming": module.streaming, "manual": module.manual}
    for app, module in (("value-barrier", value_barrier), ("page-views", page_views), ("fraud", fraud))
}
"""By the names of :data:`flumina.apps.registry.APPS`, then by how they are written."""


def run(baseline: Baseline, spark: SparkSession, folder: Folder) -> None:
    """Have all outputs made, and dropped."""
    for frame in baseline(spark, folder).values():
        if frame.isStreaming:
            finished(frame)
        else:
            frame.write.format("noop").mode("overwrite").save()
