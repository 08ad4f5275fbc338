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

#: Up to this exponent no part of a product or of its halves over- or underflows.
_MODERATE = 480
#: A power of two below every digit of a product of two numbers in [1/2, 1).
_BELOW = 200
_SMALLEST_NORMAL = 2.0**-1022
#: The bits of float64 behind those of float32, and what they are in the middle of two numbers.
_BEHIND, _MIDDLE = (1 << 29) - 1, 1 << 28
#: binary64 with its subnormal numbers: gmpy2 counts exponents of mantissas in [1/2, 1).
_BINARY64 = {"precision": 53, "emin": -1073, "emax": 1024, "subnormalize": True}


def fma(x: Array, y: Array, z: Array) -> Array:
    """x * y + z, rounded once to the nearest even number.

    Args:
        x, y, z: arrays that broadcast, all of float32 or all of float64.

    Returns:
        An array of their common shape and dtype.
    """
    return _of_float32(x, y, z) if z.dtype == np.float32 else _of_float64(x, y, z)


def fma_to_odd(x: Array, y: Array, z: Array) -> Array:
    """x * y + z of float32, rounded to odd: a narrower format then rounds it as the exact value.

    Args:
        x, y, z: arrays that broadcast, of float32.
    """
    with np.errstate(all="ignore"):
        exact = _odd_sum(x.astype(np.float64) * y, z.astype(np.float64))
        nearest = exact.astype(np.float32)
        inexact = (nearest != exact) & np.isfinite(exact)
        cut = np.where(np.abs(nearest) > np.abs(exact), np.nextafter(nearest, np.float32(0)), nearest)
        bits = np.asarray(cut).view(np.int32)
        return np.where(inexact, bits | 1, nearest.view(np.int32)).astype(np.int32).view(np.float32)


def _of_float32(x: Array, y: Array, z: Array) -> Array:
    """In float64, where the product is exact, and the sum is rounded to odd.

    A number whose last bit says whether anything was cut off behind it rounds to float32 as the exact sum does, because
    float64 has more than two bits beyond those of float32. Only in the middle of two numbers of float32 it matters.
    """
    with np.errstate(all="ignore"):
        product, term = x.astype(np.float64) * y, z.astype(np.float64)
        total = np.asarray(product + term)
        nearest = total.astype(np.float32)
        subnormal = (np.abs(nearest) <= np.finfo(np.float32).tiny) & (total != 0)
        doubtful = subnormal | ((total.view(np.int64) & _BEHIND) == _MIDDLE)
        if doubtful.any():
            nearest = np.where(doubtful, _odd_sum(product, term).astype(np.float32), nearest)
        return nearest


def _of_float64(x: Array, y: Array, z: Array) -> Array:
    """By Boldo and Melquiond: what product and sum lose is added to odd; at extreme exponents scaled first."""
    x, y, z = np.broadcast_arrays(x, y, z)
    with np.errstate(all="ignore"):
        product = x * y
        results = _moderate(x, y, z, product)
        plain = (product == 0) & ((x == 0) | (y == 0)) | ~np.isfinite(x) | ~np.isfinite(y) | ~np.isfinite(z)
        # A finite product that float64 cannot hold does not meet an infinite term.
        results[plain] = np.where(np.isinf(z) & np.isfinite(x) & np.isfinite(y), z, product + z)[plain]
        reach = np.max([np.abs(np.frexp(each)[1]) for each in (x, y, z, product)], axis=0)
        extreme = np.flatnonzero((reach > _MODERATE) & ~plain)
        if extreme.size:
            results.flat[extreme] = _scaled(x.flat[extreme], y.flat[extreme], z.flat[extreme])
    return results


def _moderate(x: Array, y: Array, z: Array, product: Array) -> Array:
    """x * y + z where no part over- or underflows; `product` is x * y, rounded."""
    first, second = _two_sum(z, _lost_by_product(x, y, product))
    high, low = _two_sum(product, first)
    return np.asarray(high + _odd_sum(second, low))


def _scaled(x: Array, y: Array, z: Array) -> Array:
    """x * y + z of finite numbers, neither x nor y zero, as 2^k times a result of moderate numbers."""
    (a, of_a), (b, of_b) = np.frexp(x), np.frexp(y)
    power = of_a + of_b
    away = np.where(z == 0, 0, np.frexp(z)[1] - power)
    # So far below the product that it only says on which side of a number of float64, or of a middle, the sum lies.
    term = np.where(away < -_MODERATE, np.copysign(2.0**-_BELOW, z), np.ldexp(z, -power))
    results = np.ldexp(_moderate(a, b, np.where(away > _MODERATE, 0.0, term), a * b), power)
    results = np.where(away > _MODERATE, z, results)  # the product is far below the last digit of z
    # A subnormal number, which was rounded twice, and its neighbour above are computed exactly.
    small = np.flatnonzero((np.abs(results) <= _SMALLEST_NORMAL) & (away <= _MODERATE))
    if small.size:
        with gmpy2.context(**_BINARY64):
            results[small] = _OF_NUMBERS(x[small], y[small], z[small])
    return np.asarray(results)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """A sum and what it lost, exactly (Knuth)."""
    total = np.asarray(a + b)
    part = total - a
    return total, np.asarray((a - (total - part)) + (b - part))


def _lost_by_product(x: Array, y: Array, product: Array) -> Array:
    """What a product of float64 lost, exactly (Dekker), of operands of moderate exponents."""
    (x_high, x_low), (y_high, y_low) = (_halves(each) for each in (x, y))
    return ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low


def _halves(x: Array) -> tuple[Array, Array]:
    """A float64 number as two of 26 bits (Veltkamp)."""
    moved = x * np.float64(2**27 + 1)
    high = moved - (moved - x)
    return high, x - high


def _odd_sum(a: Array, b: Array) -> Array:
    """A sum of float64, of which the last bit is set where anything was cut off behind it."""
    total, cut = _two_sum(a, b)
    odd = np.where(cut > 0, np.nextafter(total, np.inf), np.nextafter(total, -np.inf))
    even = (total.view(np.int64) & 1) == 0
    return np.asarray(np.where(even & (cut != 0) & np.isfinite(total), odd, total))


_OF_NUMBERS: Any = np.frompyfunc(lambda x, y, z: float(gmpy2.fma(gmpy2.mpfr(x), gmpy2.mpfr(y), gmpy2.mpfr(z))), 3, 1)
