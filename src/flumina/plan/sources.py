"""Describe the input for optimizers: streams, parts, hosts, rates and keys.

A :class:`StreamRates` describes one stream, given by the user or estimated; :func:`bind` checks all of them against
a program and gives :class:`Inputs`, in which every (stream, part, tag) has one :class:`Load`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from flumina.errors import UsageError
from flumina.model.hashing import BUCKETS, bucket_of
from flumina.model.tag import Tag
from flumina.model.tag_set import Key, KeySet, TagSet
from flumina.model.tick import Every, Tick
from flumina.plan.key_cover import bits
from flumina.plan.state_sizes import StateSize
from flumina.plan.tree import MAX_PARTS, Itag, StreamShape, union
from flumina.program.base import AnyProgram, define
from flumina.program.definition import Definition

Rate = float | Sequence[float] | None
"""Events a second on all parts together, or on each part; None if unknown."""


@dataclass(frozen=True)
class StreamRates:
    """One stream as an optimizer sees it.

    ``tags``   the tags it carries, each with its rate: ``{"view": 1000}``; a list of tags if rates are not known
    ``parts``  how many parts it has
    ``hot``    rates of single keys, for each tag: ``{"view": {"home": 600}}``; they are part of the tag's rate
    ``keys``   which keys each part holds, where that is known: keys or a :class:`~flumina.KeySet` for each part;
               None for a part that can hold any key
    ``hosts``  where the parts arrive: one name, or one for each part
    ``distinct``  how many different keys each tag has, where that is known: ``{"view": 50_000}``
    """

    name: str
    tags: Mapping[Any, Rate] | Iterable[Tag | str] | Tag | str
    parts: int = 1
    hot: Mapping[Any, Mapping[Any, float]] = field(default_factory=dict)
    keys: Sequence[KeySet | Iterable[Key] | None] | None = None
    hosts: str | Sequence[str | None] | None = None
    distinct: Mapping[Any, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Profile:
    """The distribution of one tag's events over keys: fractions of hot keys, the rest evenly.

    ``distinct`` is the number of keys over all tags, where keys are unbounded; 0 if unknown.
    """

    keys: KeySet
    hot: Mapping[Key, float]
    distinct: float = 0.0

    def __post_init__(self) -> None:
        """Create the cache of shares."""
        object.__setattr__(self, "_shares", {})

    @cached_property
    def rest(self) -> float:
        """The fraction of events whose keys are not hot."""
        return max(0.0, 1.0 - math.fsum(self.hot.values()))

    @cached_property
    def _others(self) -> int:
        """Over how many equal pieces the rest is spread: buckets, or the keys of a finite set."""
        if not self.keys.is_finite:
            return self.keys.buckets.bit_count()
        return len(self.keys.flips) - len(self.hot)

    @cached_property
    def _each(self) -> float:
        """The fraction of events of one key that is not hot, of unboundedly many; 0 if they were not counted."""
        return self.rest / max(1.0, self.distinct - len(self.hot)) if self.distinct else 0.0

    def share(self, keys: KeySet) -> float:
        """Return which fraction of the events has these keys."""
        shares: dict[KeySet, float] = self._shares  # type: ignore[attr-defined]
        share = shares.get(keys)
        if share is None:
            share = shares[keys] = 1.0 if keys == self.keys else self._share(keys)
        return share

    def _share(self, keys: KeySet) -> float:
        if keys.is_finite:
            hot = math.fsum(self.hot.get(key, 0.0) for key in keys.flips)
            if not self.keys.is_finite:
                named = sum(1 for key in keys.flips if key in self.keys and key not in self.hot)
                return hot + min(self.rest, named * self._each)
            if not self._others:
                return hot
            common = sum(1 for key in keys.flips if key in self.keys and key not in self.hot)
            return hot + self.rest * common / self._others
        hot = self._hot_share(keys)
        if not self._others:
            return hot
        if self.keys.is_finite:
            common = sum(1 for key in self.keys.flips if key in keys and key not in self.hot)
            return hot + self.rest * common / self._others
        named = sum(1 if key in keys else -1 for key in keys.flips if key in self.keys and key not in self.hot)
        evenly = self.rest * (keys.buckets & self.keys.buckets).bit_count() / self._others
        return hot + min(self.rest, max(0.0, evenly + named * self._each))

    def _hot_share(self, keys: KeySet) -> float:
        """Return the share of hot keys in an infinite set: of its buckets, corrected by named keys."""
        if not self.hot:
            return 0.0
        total = float(self._hot_buckets @ bits(keys))
        for key in keys.flips:
            if key in self.hot:
                total += self.hot[key] if key in keys else -self.hot[key]
        return max(0.0, total)

    @cached_property
    def _hot_buckets(self) -> npt.NDArray[np.float64]:
        """For each bucket the fraction of its hot keys."""
        found = np.zeros(BUCKETS)
        for key, fraction in self.hot.items():
            found[bucket_of(key)] += fraction
        return found


@dataclass(frozen=True)
class Load:
    """The events of one tag on one part of a stream; ``rate`` is None if unknown."""

    stream: str
    part: int
    tag: str
    profile: Profile
    rate: float | None
    host: str | None

    @property
    def events(self) -> TagSet:
        """Which events these are."""
        return TagSet([(self.tag, self.profile.keys)])


@dataclass(frozen=True)
class Inputs:
    """The input of one program, as far as it is known."""

    definition: Definition
    shapes: tuple[StreamShape, ...]
    loads: tuple[Load, ...]
    distinct: float = 0.0
    """How many different keys there are, as far as sources say; 0 if none does."""
    states: StateSize | None = None
    """How large states become, if that was sampled."""

    def require_rates(self, optimizer: str) -> None:
        """Raise a :class:`~flumina.errors.UsageError` that names every rate that is missing."""
        missing = dict.fromkeys((load.stream, load.tag) for load in self.loads if load.rate is None)
        if missing:
            what = ", ".join(f"{tag!r} on stream {stream!r}" for stream, tag in missing)
            raise UsageError(
                "MISSING_RATE",
                f"the optimizer {optimizer!r} needs the rate of {what}",
                hint="give events a second, or estimate them from data with flumina.plan.estimate",
            )

    @cached_property
    def ticks(self) -> frozenset[str]:
        """The names of the virtual streams."""
        return frozenset(shape.name for shape in self.shapes if shape.ticks)

    @cached_property
    def _by_place(self) -> Mapping[tuple[str, int, str], Load]:
        return {(load.stream, load.part, load.tag): load for load in self.loads}

    def rates_of(self, itag: Itag, part: int) -> Iterator[tuple[str, float]]:
        """Return events a second of each tag of an itag on one of its parts; unknown rates count as 0."""
        for tag, keys in itag.tags:
            load = self._by_place.get((itag.stream, part, tag))
            if load is not None:
                yield tag, (load.rate or 0.0) * load.profile.share(keys)

    def host_of(self, stream: str, part: int) -> str | None:
        """Return the host where a part arrives, if known."""
        return self._hosts.get((stream, part))

    @cached_property
    def _hosts(self) -> Mapping[tuple[str, int], str | None]:
        return {(load.stream, load.part): load.host for load in self.loads}


def bind(program: AnyProgram, sources: Iterable[StreamRates], states: StateSize | None = None) -> Inputs:
    """Check sources against a program; the order of the sources is the rank of the streams."""
    definition, given = define(program), tuple(sources)
    if not given:
        raise UsageError("NO_STREAMS", f"a plan for {definition.name} needs at least one stream")
    shapes: dict[str, StreamShape] = {}
    loads: list[Load] = []
    distinct = max(_Binder(definition, source).distinct_keys() for source in given)
    for source in given:
        shape, of_source = _Binder(definition, source, distinct).bind()
        if shape.name in shapes:
            raise UsageError("DUPLICATE_STREAM", f"two streams are called {shape.name!r}")
        shapes[shape.name] = shape
        loads += of_source
    for shape, load in tick_streams(definition, distinct):
        if shape.name in shapes:
            raise UsageError("TICK_STREAM", f"stream {shape.name!r} has the name of a tick of {definition.name}")
        shapes[shape.name] = shape
        loads.append(load)
    return Inputs(definition, tuple(shapes.values()), tuple(loads), distinct, states)


def tick_streams(definition: Definition, distinct: float = 0.0) -> list[tuple[StreamShape, Load]]:
    """Return the virtual stream of each tick tag, with its load for so many different keys.

    The rate is that of the data: one tick a period, of a keyed tag one for each key that is alive.
    """
    found = []
    for tag in definition.tags.values():
        if isinstance(tag, Tick):
            keys = tag.universe
            alive = 1.0 if tag.key is None else len(keys.flips) if keys.is_finite else max(1.0, distinct)
            rate = alive * tag.per_second if isinstance(tag, Every) else 0.0
            shape = StreamShape(tag.name, 1, TagSet([(tag.name, keys)]), ticks=True)
            found.append((shape, Load(tag.name, 0, tag.name, Profile(keys, {}, distinct), rate, None)))
    return found


@dataclass(frozen=True)
class _Binder:
    definition: Definition
    source: StreamRates
    counted: float = 0.0
    """How many different keys all sources have."""

    def error(self, condition: str, message: str, hint: str | None = None) -> UsageError:
        return UsageError(condition, f"stream {self.source.name!r}: {message}", hint=hint)

    def bind(self) -> tuple[StreamShape, list[Load]]:
        source = self.source
        if not isinstance(source.name, str) or not source.name:
            raise UsageError("STREAM_NAME", f"a stream needs a name, got {source.name!r}")
        if isinstance(source.parts, bool) or not isinstance(source.parts, int) or source.parts < 1:
            raise self.error("STREAM_PARTS", f"it needs a number of parts, at least one, got {source.parts!r}")
        if source.parts > MAX_PARTS:
            raise self.error("STREAM_PARTS", f"it has {source.parts} parts; at most {MAX_PARTS} can be planned")
        rates = {self.tag_name(tag): self.rates(tag, rate) for tag, rate in self.tags().items()}
        hot = {self.tag_name(tag): keys for tag, keys in source.hot.items()}
        for tag in hot.keys() - rates.keys():
            raise self.error("HOT_KEYS", f"hot keys are given for {tag!r}, which the stream does not carry")
        held = self.held(rates)
        loads = []
        for tag, of_parts in rates.items():
            profiles = self.profiles(tag, hot.get(tag, {}), of_parts, [sets[tag] for sets in held])
            for part, (profile, rate, host) in enumerate(zip(profiles, of_parts, self.hosts(), strict=True)):
                if not profile.keys.is_empty():
                    loads.append(Load(source.name, part, tag, profile, rate, host))
        loads.sort(key=lambda load: load.part)
        return StreamShape(source.name, source.parts, union(held), () if len(set(held)) == 1 else tuple(held)), loads

    def tags(self) -> Mapping[Any, Rate]:
        tags = self.source.tags
        if isinstance(tags, Tag | str):
            tags = {tags: None}
        elif not isinstance(tags, Mapping):
            tags = self.distinct(tags)
        if not tags:
            raise self.error("STREAM_TAGS", "it carries no tag")
        return tags

    def distinct(self, tags: object) -> dict[Tag | str, Rate]:
        """Return a list of tags; anything can stand in one that was read from a file."""
        if not isinstance(tags, Iterable):
            raise self.error("STREAM_TAGS", f"tags= is {tags!r}", "give tags, or a dict from tags to rates")
        found: dict[Tag | str, Rate] = {}
        for tag in tags:
            self.tag_name(tag)
            if tag in found:
                raise self.error("STREAM_TAGS", f"the tag {self.tag_name(tag)!r} is given twice")
            found[tag] = None
        return found

    def tag_name(self, tag: Tag | str) -> str:
        name = tag.name if isinstance(tag, Tag) else tag
        if not isinstance(name, str):
            raise self.error("STREAM_TAGS", f"expected a tag, got {name!r}", "give tags, or a dict from tags to rates")
        if name not in self.definition.tags:
            known = ", ".join(self.definition.tags)
            raise self.error("UNKNOWN_TAG", f"{self.definition.name} declares no tag {name!r}", f"its tags are {known}")
        if isinstance(self.definition.tags[name], Tick):
            hint = "leave it out: plans give ticks streams of their own"
            raise self.error("TICK_STREAM", f"{name!r} is a tick, whose events come by themselves", hint)
        return name

    def rates(self, tag: Tag | str, rate: Rate) -> list[float | None]:
        """Return the rate on each part."""
        parts = self.source.parts
        if rate is None:
            return [None] * parts
        if isinstance(rate, int | float) and not isinstance(rate, bool):
            self.check_rate(rate, f"the rate of {self.tag_name(tag)!r}")
            each: Sequence[Any] = [rate / parts] * parts
        elif isinstance(rate, Sequence) and not isinstance(rate, str):
            each = rate
        else:
            raise self.error("BAD_RATE", f"expected a number as the rate of {self.tag_name(tag)!r}, got {rate!r}")
        if len(each) != parts:
            raise self.error("BAD_RATE", f"{len(each)} rates of {self.tag_name(tag)!r} for {parts} parts")
        for value in each:
            self.check_rate(value, f"the rate of {self.tag_name(tag)!r}")
        return [float(value) for value in each]

    def check_rate(self, value: object, what: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
            raise self.error("BAD_RATE", f"{what} is {value!r}", "a rate is a number of events a second, 0 or more")

    def distinct_keys(self) -> float:
        """Return the largest number of distinct keys of a tag of this stream."""
        most = 0.0
        for tag, count in self.source.distinct.items():
            if self.definition.tags[self.tag_name(tag)].key is None:
                raise self.error(
                    "DISTINCT_KEYS", f"distinct= counts the keys of {self.tag_name(tag)!r}, which has none"
                )
            self.check_rate(count, f"the number of different keys of {self.tag_name(tag)!r}")
            most = max(most, float(count))
        return most

    def hosts(self) -> Sequence[str | None]:
        hosts, parts = self.source.hosts, self.source.parts
        if hosts is None or isinstance(hosts, str):
            return [hosts] * parts
        if len(hosts) != parts:
            raise self.error("STREAM_HOSTS", f"{len(hosts)} hosts for {parts} parts")
        return hosts

    def held(self, tags: Iterable[str]) -> list[TagSet]:
        """Return the events that each part can hold."""
        universe = {tag: self.definition.tags[tag].universe for tag in tags}
        keys, parts = self.source.keys, self.source.parts
        if keys is None:
            return [TagSet(universe)] * parts
        if len(keys) != parts:
            raise self.error("STREAM_KEYS", f"keys= has {len(keys)} entries for {parts} parts")
        found = []
        for part, of_part in enumerate(keys):
            held = None if of_part is None else of_part if isinstance(of_part, KeySet) else KeySet.of(*of_part)
            sets = {
                tag: all_keys if held is None or self.definition.tags[tag].key is None else all_keys & held
                for tag, all_keys in universe.items()
            }
            if TagSet(sets).is_empty():
                raise self.error("STREAM_KEYS", f"part {part} can hold no event at all", "leave the part out")
            found.append(TagSet(sets))
        return found

    def profiles(
        self, tag: str, hot: Mapping[Key, float], rates: Sequence[float | None], held: Sequence[KeySet]
    ) -> list[Profile]:
        """Return the profile of each part; a hot key's rate goes to the parts that can hold it."""
        if not hot:
            plain = {keys: Profile(keys, {}, self.counted) for keys in held}
            return [plain[keys] for keys in held]
        if self.definition.tags[tag].key is None:
            raise self.error("HOT_KEYS", f"hot keys are given for {tag!r}, which has no key")
        known = [rate for rate in rates if rate is not None]
        if len(known) < len(rates):
            raise self.error("MISSING_RATE", f"hot keys are given for {tag!r}, but not its rate")
        fractions: dict[KeySet, dict[Key, float]] = {keys: {} for keys in held}
        for key, rate in hot.items():
            self.check_rate(rate, f"the rate of {tag}({key!r})")
            holders = {keys for keys in held if key in keys}
            room = math.fsum(r for r, keys in zip(known, held, strict=True) if keys in holders)
            if not holders or rate > room * (1 + 1e-9):
                raise self.error("HOT_KEYS", f"{tag}({key!r}) has rate {rate:g}, but its parts only have {room:g}")
            for keys in holders:
                fractions[keys][key] = rate / room if room else 0.0
        for of_keys in fractions.values():
            total = math.fsum(of_keys.values())
            if total > 1 + 1e-9:
                raise self.error("HOT_KEYS", f"the hot keys of {tag!r} are {total:.0%} of its rate")
        made = {keys: Profile(keys, of_keys, self.counted) for keys, of_keys in fractions.items()}
        return [made[keys] for keys in held]
