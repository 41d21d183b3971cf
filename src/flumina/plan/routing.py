"""Route events to workers, one at a time or a batch by column operations.

For each (stream, part, tag) the plan's workers divide the keys. Where one worker has them all, routing a batch costs
nothing; else it is one hash of the key column, one table look-up, and one more for keys that the plan names.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flumina.errors import InputError, UsageError
from flumina.model.batch import Batch
from flumina.model.hashing import BUCKETS, bucket_column
from flumina.model.order import Ints
from flumina.model.tag import Tag
from flumina.model.tag_set import Key, KeySet, TagSet, is_value
from flumina.plan.key_cover import bits
from flumina.plan.tree import Plan
from flumina.program.base import AnyProgram, define
from flumina.program.definition import Definition

NOBODY = -1
"""The number of no worker."""


@dataclass(frozen=True)
class _Route:
    """The workers of one tag's events on one part."""

    owners: tuple[tuple[int, KeySet], ...]
    only: int | None
    """The worker that handles every key there can be, if one does."""
    type: pa.DataType | None
    """That of the keys; None for a tag without."""

    def of_key(self, key: Key) -> int:
        """Return the worker of one key."""
        return next((number for number, keys in self.owners if key in keys), NOBODY)

    @cached_property
    def by_bucket(self) -> npt.NDArray[np.int32]:
        """For each bucket the worker of its keys that no set names."""
        table = np.full(BUCKETS, NOBODY, np.int32)
        for number, keys in self.owners:
            if keys.buckets:
                table[bits(keys) == 1] = number
        return table

    @cached_property
    def named(self) -> tuple[list[Key], npt.NDArray[np.int32]]:
        """The keys that any worker's set names, and the worker of each; without keys that only other tags can have."""
        flips = dict.fromkeys(key for _, owned in self.owners for key in owned.flips)
        keys = [key for key in flips if self.type is None or is_value(key, self.type)]
        holder = {key: number for number, owned in self.owners for key in owned.flips if key in owned}
        # A key that one set excludes and no set includes by name may still lie in another worker's bucket.
        numbers = [holder[key] if key in holder else self.of_key(key) for key in keys]
        return keys, np.array(numbers, np.int32)

    def of_column(self, keys: pa.Array) -> npt.NDArray[np.int32]:
        """Return the worker of every entry of a key column."""
        if any(owned.buckets for _, owned in self.owners):
            numbers = self.by_bucket[bucket_column(keys)]
        else:
            numbers = np.full(len(keys), NOBODY, np.int32)
        names, holders = self.named
        if names:
            found = pc.index_in(keys, value_set=self.value_set)
            at = found.fill_null(NOBODY).to_numpy(zero_copy_only=False)
            hits = at >= 0
            numbers[hits] = holders[at[hits]]
        return numbers

    @cached_property
    def value_set(self) -> pa.Array:
        """The named keys as a column."""
        return pa.array(self.named[0], self.type)


class Router:
    """The routes of one plan; workers are numbered in preorder, as in ``plan.workers``."""

    def __init__(self, plan: Plan, program: AnyProgram) -> None:
        self.plan = plan
        self.definition: Definition = define(program)
        owners: dict[tuple[str, int], list[tuple[int, TagSet]]] = {}
        for number, worker in enumerate(plan.workers):
            for itag in worker.itags:
                for part in itag.parts:
                    owners.setdefault((itag.stream, part), []).append((number, itag.tags))
        self._owners = {at: tuple(found) for at, found in owners.items()}
        self._routes: dict[tuple[tuple[tuple[int, TagSet], ...], str], _Route] = {}
        self._at: dict[tuple[str, int, str], _Route] = {}

    def route(self, tag: Tag | str, key: Key, stream: str, part: int) -> str:
        """Return the id of the worker for this tag and key on this part; key None for an unkeyed tag."""
        name = tag if isinstance(tag, str) else tag.name
        number = self._route(stream, part, name).of_key(key)
        if number == NOBODY:
            raise self._unrouted(name, key, stream, part)
        return self.plan.workers[number].id

    def only(self, stream: str, part: int, tag: Tag | str) -> int | None:
        """Return the number of the worker that handles all events of a tag on a part; None if several divide them."""
        return self._route(stream, part, tag if isinstance(tag, str) else tag.name).only

    def numbers(self, stream: str, part: int, batch: Batch) -> int | npt.NDArray[np.int32]:
        """Return for each event of a batch the number of its worker; one number if the plan has one for all."""
        routes = [self._route(stream, part, tag.name) for tag in batch.tags]
        constants = {route.only for route in routes}
        if len(constants) == 1 and None not in constants:
            return next(only for only in constants if only is not None)
        columns = [
            self._column(stream, part, tag, route, table)
            for tag, route, table in zip(batch.tags, routes, batch.tables, strict=True)
        ]
        if batch.table_of is None or batch.row_of is None:
            return columns[0]
        numbers = np.empty(len(batch), np.int32)
        for which, column in enumerate(columns):
            mine = batch.table_of == which
            numbers[mine] = column[batch.row_of[mine]]
        return numbers

    def split(self, stream: str, part: int, batch: Batch) -> dict[int, Ints | None]:
        """Return for each worker (by number) the positions of its events in order; None for all events."""
        if not len(batch):
            return {}
        numbers = self.numbers(stream, part, batch)
        if isinstance(numbers, int):
            return {numbers: None}
        grouped = np.argsort(numbers, kind="stable")
        workers, starts = np.unique(numbers[grouped], return_index=True)
        if len(workers) == 1:
            return {int(workers[0]): None}
        return dict(zip(workers.tolist(), np.split(grouped, starts[1:]), strict=True))

    def receivers(self, stream: str, part: int) -> tuple[int, ...]:
        """Return the numbers of the workers that handle events of a part."""
        self._check(stream, part)
        return tuple(dict.fromkeys(number for number, _ in self._owners.get((stream, part), ())))

    def _check(self, stream: str, part: int) -> None:
        shape = self.plan.stream(stream)
        if not 0 <= part < shape.parts:
            raise UsageError("NO_PART", f"stream {stream!r} has the parts 0-{shape.parts - 1}, got {part}")

    def _route(self, stream: str, part: int, tag: str) -> _Route:
        route = self._at.get((stream, part, tag))
        if route is None:
            self._check(stream, part)
            owners = self._owners.get((stream, part), ())
            route = self._routes.get((owners, tag))
            if route is None:
                route = self._routes[owners, tag] = self._make(owners, tag)
            self._at[stream, part, tag] = route
        return route

    def _make(self, owners: tuple[tuple[int, TagSet], ...], tag: str) -> _Route:
        mine = tuple((number, tags[tag]) for number, tags in owners if tags.has_any(tag))
        universe = self.definition.everything[tag]
        whole = [number for number, keys in mine if keys == universe]
        key = self.definition.tags[tag].key
        return _Route(mine, whole[0] if whole else None, None if key is None else key.type)

    def _column(self, stream: str, part: int, tag: Tag, route: _Route, table: pa.RecordBatch) -> npt.NDArray[np.int32]:
        if route.only is not None:
            return np.full(table.num_rows, route.only, np.int32)
        if tag.key is None:
            numbers = np.full(table.num_rows, route.of_key(None), np.int32)
        else:
            numbers = route.of_column(table.column(0))
        lost = np.flatnonzero(numbers == NOBODY)
        if len(lost):
            key = None if tag.key is None else table.column(0)[int(lost[0])].as_py()
            raise self._unrouted(tag.name, key, stream, part, row=int(lost[0]))
        return numbers

    def _unrouted(self, tag: str, key: Key, stream: str, part: int, row: int | None = None) -> InputError:
        what = f"tag {tag!r}" if key is None else f"tag {tag!r} with key {key!r}"
        return InputError(
            "UNROUTED",
            f"no worker of the plan handles {what} here",
            stream=stream,
            part=part,
            row=row,
            hint="the part declares which tags and keys it holds; this event is none of them",
        )


def route(plan: Plan, program: AnyProgram, tag: Tag | str, key: Key, stream: str, part: int) -> str:
    """Return the id of the worker that handles such an event; make a :class:`Router` to ask more than once."""
    return Router(plan, program).route(tag, key, stream, part)
