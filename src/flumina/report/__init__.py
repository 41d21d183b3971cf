"""Report a run as an HTML page or as JSON, alike for all backends."""

from flumina.report.comparison import Comparison
from flumina.report.page import RunReport

__all__ = ["Comparison", "RunReport"]
