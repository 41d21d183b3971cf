"""Call an injected object at every step of a batch: tests use it to end the driver at each of them."""

from __future__ import annotations

BATCH_STEPS = (
    "after-ingest",
    "after-watermark",
    "before-state",
    "after-state",
    "before-sink",
    "after-sink",
    "before-commit",
    "after-commit",
)
"""In the order in which a batch reaches them."""


class Hooks:
    """Does nothing; tests derive from it, and pass an object in :class:`~flumina.engine.job.Settings`."""

    def reached(self, step: str, batch: int) -> None:
        """Called when a batch reaches a step of :data:`BATCH_STEPS`, in the driver."""


NO_HOOKS = Hooks()
"""What runs and queries have unless they are given something else."""
