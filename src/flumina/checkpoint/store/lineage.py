"""Follow the lineage: the snapshots of the last owner, and the ones it resumed from.

A driver that was replaced may be alive and continue to write; snapshots that it writes after its successor resumed from
an earlier one are not in the lineage::

    term 1    1 - 2 - 3 - 4          (3 and 4 were written after term 2 had begun)
    term 2        '- 3' - 5          the lineage is 5, 3', 2, 1
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from flumina.checkpoint.store.layout import Listing, SnapshotId


def lineage(listing: Listing, resumed: Callable[[int], SnapshotId | None]) -> Iterator[SnapshotId]:
    """Return the snapshots of the lineage, the newest first; ``resumed`` returns the one that a term resumed from.

    The lineage ends where snapshots were deleted because there are newer ones. The first one may be missing, if the
    last driver has no snapshots of its own: reading it then raises.
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
