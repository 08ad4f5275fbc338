"""x * y + z with a single rounding, as hardware computes it, for arrays of float32 and float64.

Source: S. Boldo, G. Melquiond, Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to odd,
IEEE Transactions on Computers 57(4), 2008.
"""

from __future__ import annotations

from typing import Any

import gmpy2
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating[Any]]

#: binary64 with its subnormal numbers: gmpy2 counts exponents of mantissas in [1/2, 1).
_BINARY64 = {"precision": 53, "emin": -1073, "emax": 1024, "subnormalize": True}


def fma(x: Array, y: Array, z: Array) -> Array:
    """x * y + z, rounded once to the nearest even number.

    Args:
        x, y, z: arrays that broadcast, all of float32 or all of float64.

    Returns:
        An array of their common shape and dtype.
    """
    if z.dtype == np.float32:
        return _of_float32(x, y, z)
    with gmpy2.context(**_BINARY64), np.errstate(all="ignore"):
        results = np.asarray(_OF_NUMBERS(x, y, z))
    return results.astype(np.float64)


def _of_float32(x: Array, y: Array, z: Array) -> Array:
    """In float64, where the product is exact, and the sum is rounded to odd.

    A number whose last bit says whether anything was cut off behind it rounds to float32 as the exact sum does, because
    float64 has more than two bits beyond those of float32.
    """
    with np.errstate(all="ignore"):
        product, term = x.astype(np.float64) * y, z.astype(np.float64)
        total = np.asarray(product + term)
        part = total - product
        cut = (product - (total - part)) + (term - part)  # what the sum lost, exactly (Knuth's TwoSum)
        odd = np.where(cut > 0, np.nextafter(total, np.inf), np.nextafter(total, -np.inf))
        even = (total.view(np.int64) & 1) == 0
        return np.asarray(np.where(even & (cut != 0) & np.isfinite(total), odd, total)).astype(np.float32)


def _of_numbers(x: float, y: float, z: float) -> float:
    return float(gmpy2.fma(gmpy2.mpfr(x), gmpy2.mpfr(y), gmpy2.mpfr(z)))


_OF_NUMBERS: Any = np.frompyfunc(_of_numbers, 3, 1)
