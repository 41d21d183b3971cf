"""Options are spelled out once, and what is wrong with one is told by its name."""

import inspect
import re
from dataclasses import fields
from typing import Any, get_type_hints

import pytest

import flumina as fl
from flumina import local
from flumina.apps.value_barrier import ValueBarrier
from flumina.engine.options import (
    CommonArguments,
    CommonOptions,
    RunArguments,
    RunOptions,
    SparkRunArguments,
    SparkRunOptions,
)
from flumina.streaming.options import StreamingArguments, StreamingOptions

PAIRS = [
    (CommonOptions, CommonArguments),
    (RunOptions, RunArguments),
    (SparkRunOptions, SparkRunArguments),
    (StreamingOptions, StreamingArguments),
]


@pytest.mark.parametrize(("options", "arguments"), PAIRS)
def test_type_checkers_see_the_same_names_and_types(options: type[CommonOptions], arguments: Any) -> None:
    hints = get_type_hints(options)
    assert {name: hints[name] for name in options.names()} == get_type_hints(arguments)
    assert not arguments.__required_keys__


@pytest.mark.parametrize(("options", "arguments"), PAIRS)
def test_every_option_is_explained(options: type[CommonOptions], arguments: Any) -> None:
    told = {name for cls in options.__mro__ for name in re.findall(r"^ +``(\w+)``", cls.__doc__ or "", re.MULTILINE)}
    assert told >= set(options.names())


def test_functions_show_all_options_at_run_time() -> None:
    shown = inspect.signature(local.run).parameters
    assert list(shown) == ["program", "streams", *RunOptions.names()]
    assert {shown[one.name].kind for one in fields(RunOptions)} == {inspect.Parameter.KEYWORD_ONLY}
    assert (shown["optimizer"].default, shown["workers"].default) == ("cost", None)
    assert inspect.signature(fl.run).parameters["task_timeout"].default == 600
    assert list(inspect.signature(fl.start).parameters)[:5] == ["program", "streams", "sink", "checkpoint", "on"]
    for name in StreamingOptions.names():
        assert f"``{name}``" in (fl.start.__doc__ or "")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"workers": 0}, r"\[WORKERS\] expected workers= as an integer of at least 1, got 0"),
        ({"workers": True}, r"\[WORKERS\].*got True"),
        ({"workers": 2, "plan": "plan.json"}, r"\[WORKERS\].*plan= or workers=, not both"),
        ({"plan": 3}, r"\[PLAN\] expected plan= as a plan, or the path of a saved one, got 3"),
        ({"optimizer": "magic"}, r"\[OPTIMIZER\] expected optimizer= as 'cost' or 'greedy' or 'sequential'"),
        ({"bad_rows": "drop"}, r"\[BAD_ROWS\] expected bad_rows= as 'error' or 'dead-letter', got 'drop'"),
        ({"bad_rows": ["error"]}, r"\[BAD_ROWS\]"),
        ({"tls": 1}, r"\[TLS\] expected tls= as True or False, got 1"),
        ({"task_timeout": -1}, r"\[TASK_TIMEOUT\] expected task_timeout= as a number of seconds"),
        ({"engine_options": {"window": 3}}, r"\[ENGINE_OPTIONS\] expected engine_options= as a fl.EngineOptions"),
        ({"engine_options": None}, r"\[ENGINE_OPTIONS\]"),
        ({"out": 3}, r"\[OUT\] expected out= as the path of a folder, or fl.DISCARD, got 3"),
        ({"overwrite": "yes"}, r"\[OVERWRITE\]"),
        ({"ordered": None}, r"\[ORDERED\]"),
        ({"return_state": 1}, r"\[RETURN_STATE\]"),
        ({"progress": "no"}, r"\[PROGRESS\]"),
        ({"checkpoint": 3, "out": "o"}, r"\[CHECKPOINT\]"),
        ({"checkpoint": "c"}, r"\[CHECKPOINT_OUT\] checkpoint= needs out="),
        (
            {"wrokers": 2},
            r"\[UNKNOWN_OPTION\] run on this machine has no option wrokers=(.|\n)*did you mean workers=",
        ),
        ({"order": True}, r"\[UNKNOWN_OPTION\].*order=\n +hint: did you mean ordered="),
        ({"quite": 2}, r"\[UNKNOWN_OPTION\].*quite=\n +hint: the options are workers, plan"),
    ],
)
def test_what_is_wrong_is_told_by_name(given: dict[str, Any], told: str) -> None:
    with pytest.raises(fl.UsageError, match=told):
        RunOptions.of(given)
    with pytest.raises(fl.UsageError, match=told):
        local.run(ValueBarrier, [], **given)  # options come first: that there are no streams is another error


def test_on_spark_there_are_more() -> None:
    with pytest.raises(fl.UsageError, match=r"\[ON_LOST_SLOTS\] expected on_lost_slots= as 'fail' or 'shrink'"):
        SparkRunOptions.of({"on_lost_slots": "wait"})
    with pytest.raises(fl.UsageError, match=r"LOST_SLOTS.*needs checkpoint="):
        SparkRunOptions(on_lost_slots="shrink")
    with pytest.raises(fl.UsageError, match=r"LOST_SLOTS.*makes a new plan"):
        SparkRunOptions(on_lost_slots="shrink", plan="plan.json", checkpoint="c", out="o")
    assert (SparkRunOptions().task_timeout, RunOptions().task_timeout) == (600, None)


def test_a_timeout_makes_signs_of_life_more_frequent() -> None:
    assert RunOptions().liveness.interval == 5
    assert RunOptions(task_timeout=6).liveness.interval == 2
    assert RunOptions(engine_options=fl.EngineOptions(liveness_interval=1), task_timeout=6).liveness.interval == 1
