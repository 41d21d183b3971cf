"""Options of a streaming query: those of ``start`` that ``run`` does not take."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypedDict

from flumina.engine.liveness import SPARK_TIMEOUT
from flumina.engine.options import (
    CommonArguments,
    CommonOptions,
    OnLostSlots,
    check_choice,
    check_on_lost_slots,
    check_switch,
    expected,
)
from flumina.errors import UsageError
from flumina.input.stream import Stream
from flumina.input.watermark_policy import InOrder, WatermarkPolicy
from flumina.streaming.rules import MAX_BUFFERED_ROWS, LateRows, Rules


class AvailableNow(TypedDict):
    """The trigger that processes all available rows and stops."""

    availableNow: Literal[True]


class ProcessingTime(TypedDict):
    """The trigger that starts a batch at an interval."""

    processingTime: str


Trigger = AvailableNow | ProcessingTime
"""Values of ``trigger=``, as for Spark."""


class StreamingArguments(CommonArguments, total=False):
    """The fields of :class:`StreamingOptions` as keyword arguments."""

    on_lost_slots: OnLostSlots
    watermarks: WatermarkPolicy | Mapping[str, WatermarkPolicy] | None
    late: LateRows
    dead_letters: str | os.PathLike[str] | None
    trigger: Trigger | None
    drain: bool
    max_buffered_rows: int
    name: str | None
    adaptive: bool
    allow_code_change: bool


@dataclass(frozen=True, kw_only=True)
class StreamingOptions(CommonOptions):
    """Options of a streaming query, besides those of :class:`~flumina.engine.options.CommonOptions`.

    ``task_timeout``       as for ``run``, but 600 s by default: Spark retries the batch after it
    ``on_lost_slots``      what happens to a batch whose cluster has fewer slots than before and gets no others within
                           ``EngineOptions(patience=...)`` seconds: "fail" ends the query with an error, "shrink"
                           processes the batch with the slots that are left, under a new plan
    ``watermarks``         the watermark policy, for all streams or by name:
                           :class:`~flumina.InOrder` (the default), :class:`~flumina.BoundedDelay`,
                           :class:`~flumina.Heartbeats`, :class:`~flumina.ClosedBatches`
    ``late``               what happens to rows at or before the watermark: "error", "dead-letter" or "drop" (counted)
    ``dead_letters``       the folder for dead letters; by default one in the checkpoint
    ``trigger``            ``{"availableNow": True}`` or ``{"processingTime": "1 second"}``, as for Spark
    ``drain``              with availableNow: the streams are complete, so process buffered rows, too
    ``max_buffered_rows``  the number of buffered rows above which a batch fails
    ``name``               the name of the query in Spark and in messages; by default that of the program
    ``adaptive``           change the plan between two batches where the cost model predicts 20 % less load or better
    ``allow_code_change``  resume from the checkpoint although the program's code has changed
    """

    task_timeout: float | None = SPARK_TIMEOUT
    on_lost_slots: OnLostSlots = "fail"
    watermarks: WatermarkPolicy | Mapping[str, WatermarkPolicy] | None = None
    late: LateRows = "error"
    dead_letters: str | os.PathLike[str] | None = None
    trigger: Trigger | None = None
    drain: bool = False
    max_buffered_rows: int = MAX_BUFFERED_ROWS
    name: str | None = None
    adaptive: bool = True
    allow_code_change: bool = False

    taken_by: ClassVar[str] = "start"

    def __post_init__(self) -> None:
        """Validate these options, too; :meth:`rules` validates the names of streams."""
        super().__post_init__()
        check_on_lost_slots(self.on_lost_slots, self.plan)
        check_choice("late", self.late, LateRows)
        if not isinstance(self.dead_letters, str | os.PathLike | None):
            raise expected("dead_letters", "the path of a folder", self.dead_letters)
        for option in ("drain", "adaptive", "allow_code_change"):
            check_switch(option, getattr(self, option))
        rows = self.max_buffered_rows
        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
            raise expected("max_buffered_rows", "an integer of at least 1", rows)
        if self.name is not None and (not isinstance(self.name, str) or not self.name):
            raise expected("name", "a text", self.name)
        self._check_trigger()

    def _check_trigger(self) -> None:
        given: object = {} if self.trigger is None else self.trigger
        times = isinstance(given, dict) and list(given) == ["processingTime"]
        if not (given in ({}, {"availableNow": True}) or (times and isinstance(given["processingTime"], str))):  # type: ignore[index]
            raise UsageError(
                "TRIGGER",
                f'expected trigger= as {{"availableNow": True}} or {{"processingTime": "1 second"}}, '
                f"got {self.trigger!r}",
                hint="leave it out to start each batch as soon as there are rows",
            )
        if self.drain and given != {"availableNow": True}:
            raise UsageError(
                "DRAIN",
                "drain=True expects that the streams are complete once all available rows are read",
                hint='use it with trigger={"availableNow": True}',
            )

    def rules(self, streams: Sequence[Stream]) -> Rules:
        """Return the rules for these streams, with a watermark policy for each."""
        return Rules(self._policies(streams), self.late, self.bad_rows, self.max_buffered_rows)

    def _policies(self, streams: Sequence[Stream]) -> dict[str, WatermarkPolicy]:
        given, names = self.watermarks, [stream.name for stream in streams]
        if given is None or isinstance(given, WatermarkPolicy):
            return dict.fromkeys(names, given or InOrder())
        if not isinstance(given, Mapping):
            raise expected("watermarks", "a policy, or a dict of policies by stream", given)
        for name, policy in given.items():
            if name not in names:
                raise UsageError("WATERMARKS", f"there is no stream {name!r}", hint=f"expected {', '.join(names)}")
            if not isinstance(policy, WatermarkPolicy):
                raise UsageError(
                    "WATERMARKS",
                    f"expected a watermark policy for stream {name!r}, got {policy!r}",
                    hint="the policies are fl.InOrder, fl.BoundedDelay, fl.Heartbeats and fl.ClosedBatches",
                )
        return {name: given.get(name, InOrder()) for name in names}
