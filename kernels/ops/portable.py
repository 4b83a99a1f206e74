"""``multiply_add`` and ``polynomial`` of portable.h in NumPy, bit for bit.

NumPy has no fused multiply-add. It is made of exact sums and products and of a sum that is rounded to odd: S.
Boldo, G. Melquiond: Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to odd,
IEEE Trans. Computers 57, 2008.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def polynomial(x: Array, coefficients: Array) -> Array:
    """Return a polynomial by Horner's scheme.

    Args:
        x: any shape.
        coefficients: from the highest on, each of a shape that broadcasts with x, and not ().
    """
    return functools.reduce(lambda total, lower: multiply_add(total, x, lower), coefficients)


def multiply_add(a: Array, b: Array, c: Array) -> Array:
    """Return a * b + c, rounded once.

    The three have one type. float32: any numbers. float64: finite ones, b up to 2^1000, c not the largest;
    the sign of 0 and the last bit of a result below 1e-270 may be others.
    """
    if b.dtype == np.float32:  # in float64 the product is exact
        return _sum_to_odd(a.astype(np.float64) * b, c).astype(np.float32)
    product = a * b
    # Its error (T. J. Dekker, Numer. Math. 18, 1971): a is cut to 26 digits and 27 are left, which cannot
    # overflow; b is rounded to 26 digits and 26 are left.
    a_high = (a.view(np.int64) & -(1 << 27)).view(np.float64)
    b_high = (b.view(np.int64) + (1 << 26) & -(1 << 27)).view(np.float64)
    a_low, b_low = a - a_high, b - b_high
    error = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    upper, lowest = _exact_sum(c, error)
    upper, lower = _exact_sum(product, upper)
    return upper + _sum_to_odd(lower, lowest)


def _exact_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Return a + b, rounded, and the error."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


def _sum_to_odd(a: Array, b: Array) -> Array:
    """Return a + b in float64; of the two neighbours of an inexact sum the one whose last bit is set."""
    total, error = _exact_sum(a, b)
    inexact = np.abs(error) > 0  # False for NaN
    towards_0 = total.view(np.int64) - (inexact & ((error < 0) != (total < 0)))
    result: Array = (towards_0 | inexact).view(np.float64)
    return result
