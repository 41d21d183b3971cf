"""The law checker: whether a program means the same in parallel as one event after the other.

See :mod:`flumina.check.laws` for the laws themselves.
"""

from flumina.check.laws import LAWS, Law
from flumina.check.report import Counterexample, Report, Verdict
from flumina.check.runner import check

__all__ = ["LAWS", "Counterexample", "Law", "Report", "Verdict", "check"]
