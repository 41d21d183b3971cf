"""Format key sets and itags for all renderings of a plan."""

from __future__ import annotations

from flumina.model.hashing import BUCKETS
from flumina.model.tag_set import UNKEYED, Key, KeySet, TagSet
from flumina.plan.key_cover import bits
from flumina.plan.tree import Itag, ranges

SHOWN_KEYS = 3
"""How many keys are named before the rest is counted."""


def key_order(key: Key) -> tuple[str, object]:
    """Return a total order on keys of all types."""
    return type(key).__name__, key


def keys_text(keys: KeySet) -> str:
    """Format a key set.

    >>> keys_text(KeySet.of(*range(1, 9)))
    '1, 2, 3, … 8 keys'
    >>> keys_text(KeySet.everything() - KeySet.of("home"))
    "all but 'home'"
    """
    extra = _some(sorted((key for key in keys.flips if key in keys), key=key_order))
    missing = _some(sorted((key for key in keys.flips if key not in keys), key=key_order))
    if keys.is_finite:
        return extra or "nothing"
    if keys.buckets.bit_count() == BUCKETS:
        base = "all"
    else:
        base = f"#{ranges(bits(keys).nonzero()[0].tolist())}"
        if base.count(",") > SHOWN_KEYS:
            base = f"#{keys.buckets.bit_count()} buckets"
    return base + (f" and {extra}" if extra else "") + (f" but {missing}" if missing else "")


def _some(keys: list[Key]) -> str:
    shown = ", ".join(repr(key) for key in keys[:SHOWN_KEYS])
    return shown if len(keys) <= SHOWN_KEYS else f"{shown}, … {len(keys)} keys"


def tags_text(tags: TagSet) -> str:
    """Format a tag set; tags with the same keys share one mention of them."""
    by_keys: dict[KeySet, list[str]] = {}
    for name, keys in tags:
        by_keys.setdefault(keys, []).append(name)
    pieces = []
    for keys, names in by_keys.items():
        pieces.append(", ".join(names) if keys == UNKEYED else f"{', '.join(names)} ({keys_text(keys)})")
    return "; ".join(pieces)


def parts_text(itag: Itag, parts: int) -> str:
    """Format the parts of its stream on which an itag arrives.

    >>> parts_text(Itag("views", frozenset({0, 1}), TagSet()), 4)
    'views[0-1]'
    """
    return itag.stream if len(itag.parts) == parts else f"{itag.stream}[{ranges(itag.parts)}]"


def count(number: int, noun: str) -> str:
    """Format a number with its noun.

    >>> count(1, "leaf"), count(2, "leaf"), count(3, "worker")
    ('1 leaf', '2 leaves', '3 workers')
    """
    plural = noun[:-1] + "ves" if noun.endswith("f") else noun + "s"
    return f"{number} {noun if number == 1 else plural}"
