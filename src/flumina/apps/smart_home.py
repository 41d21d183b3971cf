"""Predict the load of smart homes: query 1 of the DEBS 2014 Grand Challenge.

At the end of a slice (an hour, say) the load of each plug, household and house is predicted for the slice after next,
as the challenge suggests: the mean of the average load in the slice that ends and of the average in past slices at the
predicted time of day. (The challenge takes the median of the past; as in the paper, it is the average here, which is a
sum and a count however long the past is.) A household's load is the sum of its plugs', a house's that of its
households'.

Loads are whole milliwatts and averages are rounded down, so that sums are the same in whatever order they are made, and
readings of one house need not depend on each other. With floats they would have to, as in the paper:
:class:`SmartHomeByHand` shows that relation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import flumina as fl
from flumina.apps.app import App, Opened
from flumina.apps.text import TextFile, beginning
from flumina.apps.workload import MICROSECONDS, Columns, Flow, Workload, below, noise, parameter, require
from flumina.model.order import Ints

AHEAD = 2
"""Predictions are for the slice after next."""

Place = tuple[int | None, int | None]
"""Household and plug; None for all of them."""


@dataclass
class House:
    """A house: what was read in this slice, and the averages of past slices at each time of day."""

    recent: dict[Place, tuple[int, int]] = field(default_factory=dict)
    """For each plug the sum and the number of its readings."""
    past: dict[Place, dict[int, tuple[int, int]]] = field(default_factory=dict)
    """For each plug, household and the house, by time of day: the sum and the number of past averages."""

    def add(self, plug: Place, total: int, readings: int) -> None:
        """Add readings of a plug."""
        known, count = self.recent.get(plug, (0, 0))
        self.recent[plug] = known + total, count + readings

    def close(self, time: int, later: int) -> dict[Place, int]:
        """End a slice at a time of day; the loads to expect at a later one."""
        averages: dict[Place, int] = {}
        for (household, plug), (total, readings) in self.recent.items():
            for place in ((household, plug), (household, None), (None, None)):
                averages[place] = averages.get(place, 0) + total // readings
        self.recent.clear()
        return {place: self._expect(place, average, time, later) for place, average in averages.items()}

    def _expect(self, place: Place, average: int, time: int, later: int) -> int:
        past = self.past.setdefault(place, {})
        total, slices = past.get(time, (0, 0))
        past[time] = total + average, slices + 1
        if later not in past:
            return average
        total, slices = past[later]
        return (average + total // slices) // 2


class SmartHome(fl.KeyedProgram):
    """One house; readings of it are independent of each other, the end of a slice depends on everything."""

    load = fl.Tag("household int NOT NULL, plug int NOT NULL, milliwatts long NOT NULL", key="house int")
    end = fl.Tag("slice long NOT NULL, per_day long NOT NULL")
    depends = fl.depends((end, end), (end, load))
    output = "house int, household int, plug int, slice long, milliwatts long"
    examples = {"per_day": [1, 3, 24], "household": [0, 1], "plug": [0, 1]}

    def init(self) -> House:
        """Return the state without readings."""
        return House()

    def update(self, state: House, event: fl.Event, emit: fl.Emit) -> None:
        """Add a reading to the readings of its plug."""
        state.add((event.household, event.plug), event.milliwatts, 1)

    def update_batch(self, state: House, batch: fl.Batch, emit: fl.Emit) -> None:
        """Add the readings plug by plug."""
        if not len(batch):
            return
        households, plugs = batch["household"], batch["plug"]
        order = np.lexsort((plugs, households))
        households, plugs = households[order], plugs[order]
        starts = np.flatnonzero(np.append(True, (np.diff(households) != 0) | (np.diff(plugs) != 0)))
        totals = fl.total(batch["milliwatts"][order], starts)
        readings = np.diff(starts, append=len(batch)).tolist()
        columns = (households[starts].tolist(), plugs[starts].tolist(), totals, readings)
        for household, plug, total, count in zip(*columns, strict=True):
            state.add((household, plug), total, count)

    def update_all(self, states: dict[int, House], event: fl.Event, emit: fl.Emit) -> None:
        """Predict for every house with readings in this slice."""
        time, later = event.slice % event.per_day, (event.slice + AHEAD) % event.per_day
        for house, state in states.items():
            for (household, plug), milliwatts in state.close(time, later).items():
                emit(house, household, plug, event.slice + AHEAD, milliwatts)

    def fork(self, state: House, left: fl.TagSet, right: fl.TagSet) -> tuple[House, House]:
        """Keep readings and past on the left; the right starts empty."""
        return state, House()

    def join(self, left: House, right: House) -> House:
        """Add the readings; at most one side has a past."""
        for plug, (total, readings) in right.recent.items():
            left.add(plug, total, readings)
        return replace(left, past=left.past or right.past)


class SmartHomeByHand(fl.Program):
    """The same with one map for all houses, and the paper's relation: a house depends on itself."""

    load = fl.Tag("household int NOT NULL, plug int NOT NULL, milliwatts long NOT NULL", key="house int")
    end = fl.Tag("slice long NOT NULL, per_day long NOT NULL")
    depends = fl.depends((load, load), (end, end), (end, load))
    output = "house int, household int, plug int, slice long, milliwatts long"
    examples = {"per_day": [1, 3, 24], "household": [0, 1], "plug": [0, 1]}

    def init(self) -> dict[int, House]:
        """Return the state without readings."""
        return {}

    def update(self, state: dict[int, House], event: fl.Event, emit: fl.Emit) -> None:
        """Add a reading to the readings of its plug, or predict for all houses."""
        if event.tag is self.load:
            state.setdefault(event.house, House()).add((event.household, event.plug), event.milliwatts, 1)
            return
        time, later = event.slice % event.per_day, (event.slice + AHEAD) % event.per_day
        for house, known in state.items():
            for (household, plug), milliwatts in known.close(time, later).items():
                emit(house, household, plug, event.slice + AHEAD, milliwatts)

    def fork(
        self, state: dict[int, House], left: fl.TagSet, right: fl.TagSet
    ) -> tuple[dict[int, House], dict[int, House]]:
        """Give a house to the side with its readings, or to the left."""
        halves: tuple[dict[int, House], dict[int, House]] = ({}, {})
        for house, known in state.items():
            halves[right.has(self.load, house)][house] = known
        return halves

    def join(self, left: dict[int, House], right: dict[int, House]) -> dict[int, House]:
        """Merge the maps: no house is on both sides."""
        return left | right


SECONDS_PER_DAY = 86_400
NO_SLICE = f"does not divide a day; it should be one of the numbers that do: 1, 2, ..., 3600, ..., {SECONDS_PER_DAY}"

_BY_HOUR = np.array(
    [40, 35, 30, 30, 30, 40, 70, 110, 120, 100, 90, 90, 110, 100, 90, 90, 100, 130, 170, 190, 180, 150, 100, 60]
)
"""How the load of a house goes up and down over a day, in percent."""


@dataclass(frozen=True, kw_only=True)
class Homes(Workload):
    """Readings of all plugs at regular intervals, with a daily profile; a part has all readings of its houses."""

    houses: int = parameter(20, "how many houses there are; a multiple of the parts")
    households: int = parameter(4, "households of each house")
    plugs: int = parameter(13, "plugs of each household")
    hours: int = parameter(24, "for how many hours there are readings")
    interval: int = parameter(1, "seconds between two readings of a plug")
    slice_seconds: int = parameter(3600, "seconds of a slice")
    speed: int = parameter(360, "how much faster than in the houses time passes in timestamps")

    def __post_init__(self) -> None:
        """Refuse a house on two parts, and slices across midnight."""
        super().__post_init__()
        self.require("houses", self.houses % self.parts == 0, f"should be a multiple of parts={self.parts}")
        self.require("slice_seconds", SECONDS_PER_DAY % self.slice_seconds == 0, NO_SLICE)

    def flows(self) -> list[Flow]:
        """Ends of slices, before what happens at the same time, and readings."""
        plugs, seconds = self.houses * self.households * self.plugs, self.hours * 3600
        rate = self.speed * plugs / self.interval
        return [
            Flow("ends", SmartHome.end, self._ends, seconds // self.slice_seconds, self.speed / self.slice_seconds),
            Flow("loads", SmartHome.load, self._loads, plugs * (seconds // self.interval), rate, self.parts),
        ]

    def _ends(self, numbers: Ints) -> Columns:
        ts = (numbers + 1) * self.slice_seconds * MICROSECONDS // self.speed
        return {"ts": ts, "slice": numbers, "per_day": np.full(len(numbers), SECONDS_PER_DAY // self.slice_seconds)}

    def _loads(self, numbers: Ints) -> Columns:
        step, plug = np.divmod(numbers, self.houses * self.households * self.plugs)
        seconds = step * self.interval
        household, house = np.divmod(plug, self.houses)
        typical = below(100_000, noise(self.seed, "plug", plug))
        milliwatts = typical * _BY_HOUR[seconds // 3600 % 24] // 100 + below(5_000, noise(self.seed, "load", numbers))
        return {
            "ts": seconds * MICROSECONDS // self.speed,
            "house": house.astype(np.int32),
            "household": (household % self.households).astype(np.int32),
            "plug": (household // self.households).astype(np.int32),
            "milliwatts": milliwatts,
        }


_COLUMNS = {
    "ts": pa.int64(),
    "value": pa.float64(),
    "property": pa.int32(),
    "plug": pa.int32(),
    "household": pa.int32(),
    "house": pa.int32(),
}
MOST_SLICES = 10_000_000
"""More slices mean a wrong timestamp; ends of slices are held in memory."""
_MOST_WATTS = 9e12
"""A float tells whole milliwatts apart up to about here."""
_LOAD = 1
"""The property of readings that are loads; the others are work, which query 1 does not need."""


@dataclass(frozen=True)
class Readings:
    """The loads in a file of the challenge, for ``fl.GeneratorSource``; each part has some of the houses."""

    file: TextFile
    parts: int

    def __call__(self, part: int) -> Iterator[pa.Table]:
        """Yield the readings of a part, in whole milliwatts."""
        for table in self.file.tables():
            mine = np.remainder(table.column("house").to_numpy(), self.parts) == part
            loads = table.filter(pc.and_(pc.equal(table.column("property"), _LOAD), pa.array(mine)))
            milliwatts = pc.round(pc.multiply(loads.column("value"), 1000.0)).cast(pa.int64())
            yield loads.select(["ts", "house", "household", "plug"]).append_column("milliwatts", milliwatts)


def read(path: Path, *, parts: int = 1, lenient: bool = False, slice_seconds: int = 3600) -> Opened:
    """Open a file of the challenge: comma-separated, or columns without ids separated by blanks.

    It is read once here, for its first and its last slice and for bad lines.
    """
    fine = slice_seconds >= 1 and SECONDS_PER_DAY % slice_seconds == 0
    require("a file for smart-home", "slice_seconds", slice_seconds, fine, NO_SLICE)
    commas = b"," in beginning(path, "loads")
    columns = {"id": pa.int64(), **_COLUMNS} if commas else _COLUMNS
    file = TextFile(path, "loads", columns, blanks=not commas, lenient=lenient, limits={"value": _MOST_WATTS})
    times: list[int] = []
    left_out = file.scan(lambda table: times.extend(pc.min_max(table.column("ts")).as_py().values()))
    first, last = (min(times) // slice_seconds, max(times) // slice_seconds) if times else (0, 0)
    if last - first > MOST_SLICES:
        message = f"{path}: from {min(times)} to {max(times)} there are more than {MOST_SLICES:,} slices"
        raise fl.InputError("SLICES", message, stream="loads", hint="timestamps are seconds; are all of them right?")
    slices = np.arange(first, last)
    per_day = np.full(len(slices), SECONDS_PER_DAY // slice_seconds)
    ends = {"ts": (slices + 1) * slice_seconds, "slice": slices, "per_day": per_day}
    loads = fl.GeneratorSource(Readings(file, parts), parts)
    return Opened([fl.Stream("ends", SmartHome.end, ends), fl.Stream("loads", SmartHome.load, loads)], left_out)


APP = App("smart-home", SmartHome, Homes, by_hand=SmartHomeByHand, reader=read)
