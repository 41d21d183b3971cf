"""Stage results in one directory for each driver, deleted when another driver takes over.

A driver that was replaced may still be about to rename its staged files. So its directory is not touched before it is
fenced off, and then it is first renamed and only then deleted: a batch is never committed in part.
"""

from __future__ import annotations

import uuid

from flumina.storage.directory import Directory
from flumina.storage.owner_token import OwnerName, OwnerToken


class Staging:
    """A directory with one directory for each driver."""

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self._own: Directory | None = None

    def begin(self, owner: OwnerToken) -> None:
        """Delete the staged files of earlier drivers; called once ``owner`` owns the run."""
        self.directory.create()
        self.directory.remove_temporary_files()
        for name in self.directory.names():
            found = OwnerName.parse(name)
            if found is None or found.term < owner.term:
                self.directory.discard(name)
        self._own = self.directory.below(str(owner.name))
        self._own.create()

    def new(self, batch: int) -> Directory:
        """Make a new directory for outputs of a batch."""
        made = self._mine.below(f"{batch}-{uuid.uuid4().hex[:8]}")
        made.create()
        return made

    def clear(self, batch: int) -> None:
        """Delete the staged files of a batch that has been committed."""
        for name in self._mine.names():
            if name.startswith(f"{batch}-"):
                self._mine.remove(name)

    @property
    def _mine(self) -> Directory:
        assert self._own is not None, "nothing is staged before begin()"
        return self._own
