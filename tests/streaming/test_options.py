"""Options of queries: what is wrong with one is told by its name, and watermarks are found for each stream."""

from typing import Any

import pytest

import flumina as fl
from flumina.apps.value_barrier import ValueBarrier
from flumina.streaming.options import StreamingOptions

STREAMS = [fl.Stream("values", ValueBarrier.value, []), fl.Stream("barriers", ValueBarrier.barrier, [])]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"late": "ignore"}, r"\[LATE\] expected late= as 'error' or 'dead-letter' or 'drop', got 'ignore'"),
        ({"bad_rows": "drop"}, r"\[BAD_ROWS\]"),
        ({"max_buffered_rows": 0}, r"\[MAX_BUFFERED_ROWS\] expected max_buffered_rows= as an integer"),
        ({"max_buffered_rows": True}, r"\[MAX_BUFFERED_ROWS\]"),
        ({"dead_letters": 3}, r"\[DEAD_LETTERS\]"),
        ({"drain": "no"}, r"\[DRAIN\] expected drain= as True or False"),
        ({"drain": True}, r"\[DRAIN\] drain=True expects(.|\n)*availableNow"),
        ({"drain": True, "trigger": {"processingTime": "1 second"}}, r"\[DRAIN\]"),
        ({"adaptive": 1}, r"\[ADAPTIVE\]"),
        ({"allow_code_change": "no"}, r"\[ALLOW_CODE_CHANGE\]"),
        ({"name": ""}, r"\[NAME\]"),
        ({"on_lost_slots": "wait"}, r"\[ON_LOST_SLOTS\] expected on_lost_slots= as 'fail' or 'shrink'"),
        ({"on_lost_slots": "shrink", "plan": "plan.json"}, r"\[LOST_SLOTS\].*makes a new plan"),
        ({"trigger": "now"}, r"\[TRIGGER\] expected trigger="),
        ({"trigger": {"once": True}}, r"\[TRIGGER\]"),
        ({"trigger": {"processingTime": 5}}, r"\[TRIGGER\]"),
        ({"closed": True}, r"\[UNKNOWN_OPTION\] start has no option closed="),
        ({"out": "folder"}, r"\[UNKNOWN_OPTION\] start has no option out="),
    ],
)
def test_what_is_wrong_is_told_by_name(given: dict[str, Any], told: str) -> None:
    with pytest.raises(fl.UsageError, match=told):
        StreamingOptions.of(given)


def test_every_stream_has_a_watermark_policy() -> None:
    late = fl.BoundedDelay(3)
    assert StreamingOptions().rules(STREAMS).policies == {"values": fl.InOrder(), "barriers": fl.InOrder()}
    assert StreamingOptions(watermarks=late).rules(STREAMS).policies == {"values": late, "barriers": late}
    one = StreamingOptions(watermarks={"values": late}).rules(STREAMS)
    assert one.policies == {"values": late, "barriers": fl.InOrder()}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (3, "expected watermarks= as a policy"),
        ({"nobody": fl.InOrder()}, r"there is no stream 'nobody'\n +hint: expected values, barriers"),
        ({"values": "late"}, "expected a watermark policy for stream 'values', got 'late'"),
    ],
)
def test_what_is_no_policy_is_refused(given: Any, told: str) -> None:
    with pytest.raises(fl.UsageError, match=rf"\[WATERMARKS\].*{told}"):
        StreamingOptions(watermarks=given).rules(STREAMS)
