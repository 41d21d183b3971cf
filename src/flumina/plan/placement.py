"""Place workers close to their input, and parents beside a child.

With known hosts, a worker goes to the host where most of its own events arrive. Else every leaf gets a slot of its own.
A worker that is free to choose goes to the place of the child that has less to do: one of its two edges then crosses no
network, and a root with two leaves needs two slots, not three.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from flumina.model.tag_set import KeySet
from flumina.plan.sources import Inputs
from flumina.plan.tree import PlanWorker

Origin = tuple[Hashable, str | None]
"""A part of a stream (or several that are alike), and the host where it arrives."""


@dataclass(slots=True)
class Site:
    """A worker as placement and the cost model see it: how many events it has, of which tags, and from where."""

    rates: dict[str, float] = field(default_factory=dict)
    """Its own events a second, for each tag."""
    sources: dict[Origin, float] = field(default_factory=dict)
    """The same for each part of a stream, with the host where it arrives (None if that is not known)."""
    keys: list[KeySet] = field(default_factory=list)
    """The keys of its own events, one set for each time that events were added."""
    children: list[Site] = field(default_factory=list)
    place: str | None = None

    @property
    def rate(self) -> float:
        """All its own events a second."""
        return sum(self.rates.values())

    def add(self, tag: str, source: Origin | None, rate: float, keys: KeySet) -> None:
        """Add events that the worker handles itself; ticks come from no source."""
        self.keys.append(keys)
        self.rates[tag] = self.rates.get(tag, 0.0) + rate
        if source is not None:
            self.sources[source] = self.sources.get(source, 0.0) + rate

    def hosts(self) -> dict[str, float]:
        """Return its own events a second for each known host where they arrive."""
        found: dict[str, float] = {}
        for (_, host), rate in self.sources.items():
            if host is not None:
                found[host] = found.get(host, 0.0) + rate
        return found

    def walk(self) -> Iterator[Site]:
        """Yield this site and all below in preorder."""
        waiting = [self]
        while waiting:
            site = waiting.pop()
            yield site
            waiting.extend(reversed(site.children))


def site_of(worker: PlanWorker, inputs: Inputs) -> Site:
    """Return a worker and all below it, with their places."""
    site = Site(place=worker.place, children=[site_of(child, inputs) for child in worker.children])
    for itag in worker.itags:
        held = dict(itag.tags)
        for part in sorted(itag.parts):
            host = inputs.host_of(itag.stream, part)
            source = None if itag.stream in inputs.ticks else ((itag.stream, part), host)
            for tag, rate in inputs.rates_of(itag, part):
                site.add(tag, source, rate, held[tag])
    return site


def choose_places(root: Site) -> None:
    """Give every site a place; the same sites get the same places every time."""
    sites = list(root.walk())
    hosts = {id(site): site.hosts() for site in sites}
    hosts_known = any(hosts.values())
    busy: dict[str, float] = defaultdict(float)
    leaves = 0
    for site in sites:
        site.place = None
        if hosts[id(site)]:
            site.place = max(hosts[id(site)], key=hosts[id(site)].__getitem__)
        elif not site.children and not hosts_known:
            site.place = f"slot{leaves}"
            leaves += 1
        if site.place is not None:
            busy[site.place] += site.rate
    for site in reversed(sites):
        if site.place is None:
            free = [child.place for child in site.children if child.place is not None] or sorted(busy)
            site.place = min(free, key=busy.__getitem__)
            busy[site.place] += site.rate


def placed(root: PlanWorker, inputs: Inputs) -> PlanWorker:
    """Return the same tree with places."""
    top = site_of(root, inputs)
    choose_places(top)
    return with_places(root, top)


def with_places(worker: PlanWorker, site: Site) -> PlanWorker:
    """Return the tree with the places of these sites."""
    children = tuple(with_places(*pair) for pair in zip(worker.children, site.children, strict=True))
    return PlanWorker(worker.id, worker.kind, worker.itags, children, site.place)
