"""The three programs in plain PySpark, as somebody would write them who knows Spark well.

| | batch | streaming | manual |
|---|---|---|---|
| how | joins with the intervals between rare events | `applyInPandasWithState` | tasks that `allGather` |
| value-barrier | all cores | one key: one core | a second for every barrier |
| page views | all cores | as many cores as hot pages | a second for every change |
| fraud | all cores, two passes | one key: one core | a second for every rule |

*Batch* needs the whole input before it begins: rare events are collected first, and everything else is joined with
them. *Streaming* takes one slice of time after the other. *Manual* is the synchronization plan by hand: each task
reads the part that has its number, and a task that comes to a rare event waits for the others.

Every function takes a session and a folder of :mod:`benchmarks.baselines.inputs`, and gives DataFrames by output. Rare
events of one page, and rules, must have timestamps of their own: a DataFrame has no order in which they could be told
apart otherwise.
"""
