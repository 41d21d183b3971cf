"""Compute exactly with decimals of up to 38 digits.

Python's default context rounds to 28 digits; Spark's decimals have up to 38.
"""

from __future__ import annotations

import decimal
from contextlib import AbstractContextManager

DIGITS = 100
"""Enough digits for any sum of decimals of 38 digits over any feasible number of events."""


def exact_decimals() -> AbstractContextManager[decimal.Context]:
    """Compute sums of decimals without rounding, within this context.

    >>> with exact_decimals():
    ...     print(decimal.Decimal("1e19") + decimal.Decimal("4e-18") - decimal.Decimal("1e19"))
    4E-18
    """
    return decimal.localcontext(prec=DIGITS)
