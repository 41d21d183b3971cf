"""Identify the driver that may write, and the run that a directory belongs to.

One token for checkpoints, sinks and outputs. Nothing expires, and no clock is read::

    run     the same for all drivers that resume a run: a directory belongs to one run, for good
    term    counts the drivers of a run: the one with the highest term may write, all others are fenced off
    id      distinguishes two drivers that take the same term at once
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from flumina.errors import OutputError
from flumina.storage.directory import Directory, new_id

OWNER = "_flumina_owner"
"""The file in an output directory that names the run to which it belongs."""

_NAME = re.compile(r"owner-(\d{6,})-([0-9a-f]{16})", re.ASCII)


class OwnerName(NamedTuple):
    """The term and the id of a driver, as used in the names of its files and directories."""

    term: int
    id: str

    def __str__(self) -> str:
        return f"owner-{self.term:06d}-{self.id}"

    @staticmethod
    def parse(text: str) -> OwnerName | None:
        """Parse a name; return None if it is not one.

        >>> str(OwnerName.parse("owner-000011-00ff00ff00ff00ff")), OwnerName.parse("owner-11")
        ('owner-000011-00ff00ff00ff00ff', None)
        """
        found = _NAME.fullmatch(text)
        return None if found is None else OwnerName(int(found[1]), found[2])

    @staticmethod
    def following(term: int) -> OwnerName:
        """Return the name of a new driver, with the term after a given one."""
        return OwnerName(term + 1, new_id())


@dataclass(frozen=True)
class OwnerToken:
    """The driver that may write to everything that belongs to a run."""

    run: str
    name: OwnerName

    @property
    def term(self) -> int:
        """The number of this driver among the drivers of the run."""
        return self.name.term

    @property
    def id(self) -> str:
        """The id that no other driver of this term has."""
        return self.name.id

    def is_fenced(self, terms: set[int]) -> bool:
        """Tell whether another driver of the run has a higher term than this one."""
        return max(terms, default=0) > self.term


def belongs_to(directory: Directory, run: str) -> bool:
    """Tell whether a directory belongs to a run; its owner file is kept when the directory is moved."""
    return directory.read(OWNER) == run.encode()


def take(directory: Directory, run: str) -> None:
    """Make a run the owner of a directory that is new or empty; raise if another run owns it."""
    directory.create()
    taken = [name for name in directory.names() if not name.startswith(("_", "."))]
    if directory.read(OWNER) is None and taken:
        raise OutputError(
            "OUT_EXISTS",
            f"{directory.path} is not empty: it has {taken[0]}",
            hint="choose a new folder for the outputs of the query",
        )
    directory.write_once(OWNER, run.encode())
    if not belongs_to(directory, run):
        raise OutputError(
            "OUT_TAKEN",
            f"{directory.path} holds the batches of a query with another checkpoint",
            hint="resume with that checkpoint, or choose a new folder",
        )
