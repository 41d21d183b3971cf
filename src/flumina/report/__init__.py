"""What a run did, as a page for people and as JSON for programs; the same whatever the engine."""

from flumina.report.comparison import Comparison
from flumina.report.page import RunReport

__all__ = ["Comparison", "RunReport"]
