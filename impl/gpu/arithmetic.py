"""Arithmetic of the Triton kernels: exponential, logarithm, square root and rounding, as accurate as CUDA's own.

What is hard here: in single precision Triton makes `exp` of the hardware's 2^x, whose argument x log2(e) is rounded
first. The error of the result grows with |x|, to 63 ulp between -87 and 88. And the hardware's 2^x is promised to 2 ulp
alone (PTX ISA, ex2.approx.ftz.f32), which every GPU may use as it likes. So the exponential is made here of sums,
products and bits, which round alike on every GPU and in Triton's interpreter. In double precision, and for the
logarithm, Triton calls CUDA's accurate functions, whose errors the CUDA C++ Programming Guide documents.
"""

from __future__ import annotations

import triton
import triton.language as tl

# log2(e); and log(2) in two parts, of which the first has so few bits that its products with small integers are exact.
_LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)
_LN2_HIGH: tl.constexpr = tl.constexpr(0.693359375)
_LN2_LOW: tl.constexpr = tl.constexpr(-2.12194440054690583e-4)
# A sum with 1.5 2^23 is rounded to an integer, which is the difference of the bits of the sum and of this number.
_TO_INTEGER: tl.constexpr = tl.constexpr(12582912.0)
_TO_INTEGER_BITS: tl.constexpr = tl.constexpr(0x4B400000)


@triton.jit
def times_power_of_two(x, power):
    """x 2^power for an integer of the width of x: from -252 to 254 in float32, from -2044 to 2046 in float64.

    The powers are made of bits, because the hardware's 2^x is promised to be exact for no x.
    """
    # Two halves, because 2^power alone is no normal number where the result is tiny.
    half = power >> 1
    bias, digits = (1023, 52) if x.dtype == tl.float64 else (127, 23)
    first = ((half + bias) << digits).to(x.dtype, bitcast=True)
    return x * first * ((power - half + bias) << digits).to(x.dtype, bitcast=True)


@triton.jit
def exp(x):
    """e^x: float32 to 0.9 ulp, which is the largest error of all arguments, and float64 to 1 ulp."""
    if x.dtype == tl.float64:
        return tl.exp(x)
    else:  # noqa: RET505 (Triton compiles what stands after a `return` within an `if`, too)
        # Beyond these bounds the result is 0 or infinity whatever the rest says. NaN passes the comparisons unchanged.
        reduced = tl.where(x < -104.0, -104.0, tl.where(x > 89.0, 89.0, x))
        shifted = tl.fma(reduced, _LOG2_E, _TO_INTEGER)
        whole = shifted - _TO_INTEGER
        rest = tl.fma(-whole, _LN2_LOW, tl.fma(-whole, _LN2_HIGH, reduced))
        # (e^r - 1 - r) / r^2 for |r| <= log(2) / 2, fitted for the least largest relative error of e^r, 0.05 2^-24.
        series = tl.fma(tl.fma(0.0013814539415761828, rest, 0.00836874544620514), rest, 0.04166838899254799)
        series = tl.fma(tl.fma(series, rest, 0.1666652113199234), rest, 0.4999999403953552)
        significand = tl.fma(tl.fma(series, rest, 1.0), rest, 1.0)
        return times_power_of_two(significand, shifted.to(tl.int32, bitcast=True) - _TO_INTEGER_BITS)


@triton.jit
def reciprocal_sqrt(x):
    """1 / √x, both steps rounded correctly."""
    # There are no functions of these names for doubles, whose plain ones round correctly.
    return 1.0 / tl.sqrt(x) if x.dtype == tl.float64 else tl.div_rn(1.0, tl.sqrt_rn(x))


@triton.jit
def divide(x, y):
    """x / y, rounded correctly."""
    return x / y if x.dtype == tl.float64 else tl.div_rn(x, y)


@triton.jit
def log1p(z):
    """log(1 + z) for 0 <= z <= 1 with a relative error of 3.3 u, of which u is a rounding; float32 or float64.

    The logarithm is documented to 1 ulp (CUDA C++ Programming Guide), which is 2 u, and the sum adds a rounding.
    """
    # The rounding error of 1 + z is computed exactly, and changes the logarithm by its quotient by the sum.
    above = 1.0 + z
    logarithm = tl.log(above) + divide(z - (above - 1.0), above)
    # For z near u the sum may be rounded to 1 + 2 z. Its logarithm is then twice the result, and so is the error, so
    # small z takes the series z - z^2 / 2.
    small = 2.0**-28 if z.dtype == tl.float64 else 2.0**-13
    return tl.where(z < small, tl.fma(-0.5 * z, z, z), logarithm)


@triton.jit
def finite_top(top):
    """What is subtracted from the exponents of rows: the largest element so far, or 0 where all elements are -inf.

    Without the 0, -inf - (-inf) would be a NaN.
    """
    return tl.where(top == float("-inf"), 0.0, top)


@triton.jit
def online(top, total, x):
    """The largest element m of each row and the sum of e^(x - m), both (rows,), after the block x (rows, block).

    The sum is rescaled where the block has a larger element. Source: M. Milakov, N. Gimelshein, Online normalizer
    calculation for softmax, arXiv:1805.02867, algorithm 3.
    """
    higher = tl.maximum(top, tl.max(x, 1))
    # Where the largest element stays the same, also at -inf, the sum is not rescaled: -inf - (-inf) would be a NaN.
    total *= tl.where(top == higher, 1.0, exp(top - higher))
    return higher, total + tl.sum(exp(x - finite_top(higher)[:, None]), 1)


@triton.jit
def number(value, ACC: tl.constexpr):
    """The Python float that `launching.as_operand` encoded, in the dtype of the sums."""
    return value.to(tl.int64).to(tl.float64, bitcast=True) if tl.float64 == ACC else value
