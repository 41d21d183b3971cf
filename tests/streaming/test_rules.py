"""What a user may say of the input."""

from __future__ import annotations

import pytest

import flumina as fl
from flumina.input.watermark_policy import WatermarkPolicy
from flumina.streaming.rules import Rules


@pytest.mark.parametrize("other", [fl.InOrder(), fl.BoundedDelay(3), fl.Heartbeats("beat")])
def test_batches_lead_the_order_for_all_streams_or_for_none(other: WatermarkPolicy) -> None:
    with pytest.raises(fl.UsageError, match=r"WATERMARKS.*'a' has fl.ClosedBatches\(\), and stream 'b'"):
        Rules({"b": other, "a": fl.ClosedBatches()})
    Rules({"b": other, "a": other})
    Rules({"b": fl.ClosedBatches(), "a": fl.ClosedBatches()})
