"""Stage results in a directory of the driver that owns the run, and delete it when another driver takes over.

A driver that was replaced may still be about to rename what it has staged. So nothing of it is touched before its
right to commit is gone, and then its directory is first renamed and only then deleted: a batch can't be half there.
"""

from __future__ import annotations

import uuid

from flumina.storage.directory import Directory
from flumina.storage.owner import OwnerName, OwnerToken


class Staging:
    """A directory with one directory for each driver."""

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self._own: Directory | None = None

    def begin(self, owner: OwnerToken) -> None:
        """Delete what drivers before this one have staged; called once this one owns the run."""
        self.directory.create()
        self.directory.remove_temporary_files()
        for name in self.directory.names():
            found = OwnerName.parse(name)
            if found is None or found.term < owner.term:
                self.directory.discard(name)
        self._own = self.directory.below(str(owner.name))
        self._own.create()

    def new(self, batch: int) -> str:
        """Return a path for outputs of a batch, where nothing is yet."""
        return self._mine.at(f"{batch}-{uuid.uuid4().hex[:8]}")

    def clear(self, batch: int) -> None:
        """Delete what is left of a batch that has been committed."""
        for name in self._mine.names():
            if name.startswith(f"{batch}-"):
                self._mine.remove(name)

    @property
    def _mine(self) -> Directory:
        assert self._own is not None, "nothing is staged before begin()"
        return self._own
