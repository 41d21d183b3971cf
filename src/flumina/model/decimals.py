"""Exact arithmetic on decimals: Python's default context rounds to 28 digits, Spark's decimals have up to 38."""

from __future__ import annotations

import decimal
from contextlib import AbstractContextManager

DIGITS = 100
"""Room for every sum of decimals of 38 digits that anybody will live to see."""


def exact_decimals() -> AbstractContextManager[decimal.Context]:
    """Within it, sums of decimals are not rounded.

    >>> with exact_decimals():
    ...     print(decimal.Decimal("1e19") + decimal.Decimal("4e-18") - decimal.Decimal("1e19"))
    4E-18
    """
    return decimal.localcontext(prec=DIGITS)
