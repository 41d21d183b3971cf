"""Versions: what is left of everything up to a batch, one file for each batch, with checksums.

A version has facts (JSON) and blobs: the state as the codec packs it, and for each stream the rows that are carried, as
Arrow. Damage is an error, never a silent fresh start.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flumina.engine.job import StateFile
from flumina.errors import CheckpointError
from flumina.streaming.folder import Bytes, Folder

FORMAT = "flumina version 1"
KEPT = 3
"""How many versions are kept; two are needed to try the last batch again."""


@dataclass(frozen=True)
class Version:
    """What is left after a batch."""

    batch: int
    facts: Mapping[str, Any]
    blobs: Mapping[str, memoryview]


class Versions:
    """The versions in a folder."""

    def __init__(self, folder: Folder, kept: int = KEPT) -> None:
        assert kept >= 2, "the last batch has to be repeatable"
        self.folder, self.kept = folder, kept
        self._written: tuple[int, int, list[dict[str, Any]]] = (-1, 0, [])
        """The version that was last written or read: its batch, where its blobs begin, and what they are."""

    def batches(self) -> list[int]:
        """The batches of which there is a version."""
        return sorted(int(name) for name in self.folder.names() if name.isdigit())

    def write(self, batch: int, facts: Mapping[str, Any], blobs: Mapping[str, Bytes]) -> int:
        """Write a version, in place of one that a failed try may have left; gives its size."""
        views = {name: memoryview(blob) for name, blob in blobs.items()}
        listed = [
            {"name": name, "size": view.nbytes, "sha256": hashlib.sha256(view).hexdigest()}
            for name, view in views.items()
        ]
        body = json.dumps({"format": FORMAT, "batch": batch, "facts": facts, "blobs": listed}).encode()
        head = f"{hashlib.sha256(body).hexdigest()} {len(body)}\n".encode()
        self.folder.write(_name(batch), [head, body, *views.values()])
        self._written = (batch, len(head) + len(body), listed)
        return len(head) + len(body) + sum(view.nbytes for view in views.values())

    def read(self, batch: int) -> Version:
        """Read a version, and check every byte of it."""
        where = self.folder.at(_name(batch))
        found = self.folder.read(_name(batch))
        if found is None:
            raise CheckpointError(
                "MISSING_VERSION",
                f"{where} is not there, so batch {batch + 1} has no state to begin with",
                hint="restore the checkpoint, or begin with a new one",
            )
        whole = memoryview(found)
        line = found.find(b"\n", 0, 200)
        try:
            checksum, length = bytes(whole[:line]).decode().split()
            body = whole[line + 1 : line + 1 + int(length)]
            if hashlib.sha256(body).hexdigest() != checksum:
                raise ValueError("the checksum of the head is wrong")  # noqa: TRY301 -- one report for all of these
            head = json.loads(bytes(body))
            if head["format"] != FORMAT or head["batch"] != batch:
                raise ValueError(f"it is {head['format']!r} of batch {head['batch']}")  # noqa: TRY301
            blobs: dict[str, memoryview] = {}
            at = line + 1 + int(length)
            self._written = (batch, at, head["blobs"])
            for entry in head["blobs"]:
                blob = whole[at : at + entry["size"]]
                at += entry["size"]
                if hashlib.sha256(blob).hexdigest() != entry["sha256"]:
                    raise ValueError(f"the checksum of {entry['name']!r} is wrong")  # noqa: TRY301
                blobs[entry["name"]] = blob
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                "DAMAGED", f"{where} is damaged: {error}", hint="restore the checkpoint, or begin with a new one"
            ) from None
        return Version(batch, head["facts"], blobs)

    def locate(self, batch: int, blob: str) -> StateFile:
        """Where a blob of a version lies, for those who read nothing else."""
        if self._written[0] != batch:
            self.read(batch)
        _, at, listed = self._written
        for entry in listed:
            if entry["name"] == blob:
                return StateFile(
                    self.folder.filesystem, self.folder.at(_name(batch)), at, entry["size"], entry["sha256"]
                )
            at += entry["size"]
        raise KeyError(blob)

    def prune(self) -> None:
        """Delete versions that nobody needs any more."""
        for batch in self.batches()[: -self.kept]:
            self.folder.remove(_name(batch))


def _name(batch: int) -> str:
    return f"{batch:012d}"
