"""Call an injected object at every step of a batch, for tests of crashes."""

from __future__ import annotations

BATCH_STEPS = (
    "after-ingest",
    "after-watermark",
    "staged",
    "before-state",
    "after-state",
    "before-sink",
    "dead-letters-shown",
    "after-sink",
    "before-commit",
    "after-commit",
    "pruned",
)
"""The steps of a batch, in order."""


class Hooks:
    """Hooks that do nothing; tests pass a derived object in :class:`~flumina.engine.options.EngineOptions`."""

    def reached(self, step: str, batch: int) -> None:
        """Handle that a batch has reached a step of :data:`BATCH_STEPS`; called in the driver."""


NO_HOOKS = Hooks()
"""The default of runs and queries."""
