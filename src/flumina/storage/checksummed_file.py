"""Encode small JSON files that contain their own checksum.

The first member of the object is the SHA-256 of every byte that follows it::

    {"sha256": "3b5d...",
    "format": "flumina-checkpoint",
    ...}

Any JSON reader can read the file, and :func:`decode` detects every changed, missing or added byte.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from flumina.errors import CheckpointError, UsageError
from flumina.storage.checksum import damaged

FORMAT = "flumina-checkpoint"
VERSION = 5
"""Incremented when the files change so that older versions of the library would misread them."""

_OPENING, _CLOSING = b'{"sha256": "', b'",\n'
_DIGITS = 64


def encode(kind: str, content: Mapping[str, Any]) -> bytes:
    """Return the bytes of a file with some JSON content, one line for each member."""
    members = {"format": FORMAT, "version": VERSION, "kind": kind, **content}
    try:
        lines = [f"{json.dumps(name)}: {json.dumps(value, allow_nan=False)}" for name, value in members.items()]
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            "NOT_JSON", f"a {kind} can't be written as JSON: {error}", hint="texts, numbers, lists and dicts can"
        ) from error
    rest = (",\n".join(lines) + "}\n").encode()
    return _OPENING + hashlib.sha256(rest).hexdigest().encode() + _CLOSING + rest


def decode(data: bytes, kind: str, file: str) -> dict[str, Any]:
    """Verify and return the content of a file that :func:`encode` made.

    ``file`` is its path, for error messages.
    """
    start = len(_OPENING) + _DIGITS + len(_CLOSING)
    rest = data[start:]
    if data[:start] != _OPENING + hashlib.sha256(rest).hexdigest().encode() + _CLOSING:
        raise damaged(file, _damage(data))
    content: dict[str, Any] = json.loads(data)
    version = content.get("version")
    if content.get("format") != FORMAT or content.get("kind") != kind:
        raise damaged(file, f"its checksum is right, but it is not the {kind} of a checkpoint")
    if version != VERSION:
        raise CheckpointError(
            "CHECKPOINT_VERSION",
            f"{file} has format {version!r}; this version of flumina reads format {VERSION}",
            file=file,
            hint="resume with the version of flumina that wrote it, or start with a new checkpoint",
        )
    return content


def _damage(data: bytes) -> str:
    if not data:
        return "it is empty"
    if data.startswith(_OPENING) and not data.endswith(b"}\n"):
        return f"it ends after {len(data):,} bytes, in the middle"
    return "its bytes do not match the checksum in it"
