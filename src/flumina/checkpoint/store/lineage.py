"""Which snapshots count: those of the last driver, behind them the one that it went on from, and so on.

A driver that was replaced may be alive and go on writing; what it writes after its successor went on from an earlier
snapshot is on nobody's chain::

    epoch 1    1 - 2 - 3 - 4          (3 and 4 were written after epoch 2 had begun)
    epoch 2        '- 3' - 5         the chain is 5, 3', 2, 1
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from flumina.checkpoint.store.layout import Listing, SnapshotId


def lineage(listing: Listing, resumed: Callable[[int], SnapshotId | None]) -> Iterator[SnapshotId]:
    """The snapshots that count, the newest first; ``resumed`` tells from which one an epoch went on.

    It ends where snapshots were deleted because there are newer ones. That a driver without snapshots of its own has
    lost the one that it went on from is found by whoever reads it: it comes first.
    """
    term, found = listing.term, False
    bound: int | None = None
    while term:
        own = [p for p in listing.snapshot_ids if p.term == term and (bound is None or p.number <= bound)]
        yield from sorted(own, reverse=True)
        found = found or bool(own)
        before = resumed(term)
        if before is None:
            return
        if before not in listing.snapshot_ids:
            if not found:
                yield before
            return
        term, bound = before
