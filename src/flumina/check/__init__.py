"""Check the laws that make parallel and sequential runs of a program equal.

See :mod:`flumina.check.laws` for the laws themselves.
"""

from flumina.check.laws import LAWS, Law
from flumina.check.report import CheckReport, Counterexample, LawResult
from flumina.check.runner import check

__all__ = ["LAWS", "CheckReport", "Counterexample", "Law", "LawResult", "check"]
