"""Arithmetic of the Triton kernels: exponential, logarithm, square root and rounding, as accurate as CUDA's own.

What is hard here: in single precision Triton makes `exp` of the hardware's 2^x, whose argument x log2(e) is rounded
first. The error of the result grows with |x|, to 63 ulp between -87 and 88. So the exponential is reduced here by hand.
In double precision Triton calls CUDA's accurate functions.
"""

from __future__ import annotations

import triton
import triton.language as tl

# log2(e); and log(2) in two parts, of which the first has so few bits that its products with small integers are exact.
_LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)
_LN2_HIGH: tl.constexpr = tl.constexpr(0.693359375)
_LN2_LOW: tl.constexpr = tl.constexpr(-2.12194440054690583e-4)


@triton.jit
def exp(x):
    """e^x to 2 ulp, subnormal results included; float32 or float64."""
    if x.dtype == tl.float64:
        return tl.exp(x)
    else:  # noqa: RET505 (Triton compiles what stands after a `return` within an `if`, too)
        # Beyond these bounds the result is 0 or infinity whatever the rest says. NaN passes the comparisons unchanged.
        reduced = tl.where(x < -104.0, -104.0, tl.where(x > 89.0, 89.0, x))
        power = tl.floor(tl.fma(reduced, _LOG2_E, 0.5))
        rest = tl.fma(-power, _LN2_LOW, tl.fma(-power, _LN2_HIGH, reduced))
        # The power of two is applied in two halves, because 2^power alone is no normal number where the result is tiny.
        half = tl.floor(power * 0.5)
        return tl.exp2(rest * _LOG2_E) * tl.exp2(half) * tl.exp2(power - half)


@triton.jit
def log1p(z):
    """log(1 + z) for z >= 0, to 2 ulp or so; float32 or float64."""
    # The rounding error of 1 + z is made good by the factor z / ((1 + z) - 1), as long as that is no 0 / 0.
    above = 1.0 + z
    exact = above - 1.0
    return tl.where(exact == 0.0, z, tl.where(above == z, tl.log(above), tl.log(above) * (z / exact)))


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
def finite_top(top):
    """What the exponents of rows are taken from: the largest element, or 0 where all is -inf so far.

    The difference of two infinities would be a NaN.
    """
    return tl.where(top == float("-inf"), 0.0, top)


@triton.jit
def online(top, total, x):
    """Of rows: the largest element and the sum of exponentials from it, once the elements x (rows, block) are added.

    The sum is rescaled where a larger element comes. Source: M. Milakov, N. Gimelshein, Online normalizer calculation
    for softmax, arXiv:1805.02867, algorithm 3.
    """
    higher = tl.maximum(top, tl.max(x, 1))
    # As long as all is -inf there is nothing to rescale.
    total *= tl.where(top == higher, 1.0, exp(top - higher))
    return higher, total + tl.sum(exp(x - finite_top(higher)[:, None]), 1)


@triton.jit
def number(value, ACC: tl.constexpr):
    """What `launching.as_operand` made of a Python float, in the dtype of the sums."""
    return value.to(tl.int64).to(tl.float64, bitcast=True) if tl.float64 == ACC else value
