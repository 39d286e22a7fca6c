"""Fused multiply-add in float32, one rounding, on any machine."""

import numpy as np
import numpy.typing as npt


@np.errstate(over="ignore", invalid="ignore")  # infinities, as machines give them
def fma(a: npt.ArrayLike, b: npt.ArrayLike, c: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """float32(a * b + c), rounded once; arrays of float32 that broadcast.

    The product of two float32 is exact in float64. Its sum with c is rounded to odd (Boldo and
    Melquiond, 2008): 53 bits >= 2 * 24 + 2, so rounding that to float32 gives the right result.
    """
    product = np.asarray(a, np.float64) * np.asarray(b, np.float64)
    c = np.asarray(c, np.float64)
    total = np.asarray(product + c)
    virtual = total - product  # Knuth's TwoSum: total + error is the exact sum
    error = (product - (total - virtual)) + (c - virtual)
    bits = np.atleast_1d(total).view(np.int64).reshape(total.shape)
    even = np.isfinite(total) & (error != 0) & (bits & 1 == 0)
    towards = np.where((error > 0) == (total > 0), 1, -1)
    odd = np.asarray(bits + np.where(even, towards, 0))
    return np.atleast_1d(odd).view(np.float64).reshape(total.shape).astype(np.float32)
