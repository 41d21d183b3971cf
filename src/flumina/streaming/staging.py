"""Outputs on their way: each driver has a folder of its own for them, which goes when another one takes over.

A driver that was replaced may still be about to rename what it has staged. So nothing of it is touched before its
right to commit is gone, and then its folder is first renamed and only then deleted: a batch can't be half there.
"""

from __future__ import annotations

import re
import uuid

from flumina.checkpoint import Claim
from flumina.storage.directory import Folder

_OWN = re.compile(r"claim-(\d+)-.+")


class Staging:
    """A folder with a folder for each driver."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._own: Folder | None = None

    def begin(self, claim: Claim) -> None:
        """This driver has claimed the checkpoint: clear away what the ones before it have left."""
        self.folder.make()
        self.folder.sweep()
        for name in self.folder.names():
            found = _OWN.fullmatch(name)
            if found is None or int(found[1]) < claim.epoch:
                self.folder.discard(name)
        self._own = self.folder.below(f"claim-{claim.epoch:06d}-{claim.id}")
        self._own.make()

    def new(self, batch: int) -> str:
        """A path for outputs of a batch, where nothing is yet."""
        return self._mine.at(f"{batch}-{uuid.uuid4().hex[:8]}")

    def clear(self, batch: int) -> None:
        """A batch is where it belongs: take away what is left of it."""
        for name in self._mine.names():
            if name.startswith(f"{batch}-"):
                self._mine.remove(name)

    @property
    def _mine(self) -> Folder:
        assert self._own is not None, "nothing is staged before begin()"
        return self._own
