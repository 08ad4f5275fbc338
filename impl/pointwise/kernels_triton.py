"""Triton kernels of log-sigmoid: every element is read once and nothing is kept."""

from __future__ import annotations

import triton
import triton.language as tl

from ..gpu.arithmetic import divide, exp, log1p


@triton.jit
def log_sigmoid_forward(X, Y, n, DOUBLE: tl.constexpr, BLOCK: tl.constexpr):
    """min(x, 0) - log(1 + e^-|x|)."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + at, mask=at < n, other=0.0).to(ACC)
    y = tl.minimum(x, 0.0) - log1p(exp(-tl.abs(x)))
    tl.store(Y + at, y.to(Y.dtype.element_ty), mask=at < n)


@triton.jit
def log_sigmoid_backward(G, X, D, n, DOUBLE: tl.constexpr, BLOCK: tl.constexpr):
    """g / (1 + e^x) by z = e^-|x|, which never overflows: g (z / (1 + z)), and g / (1 + z) where x < 0.

    There the quotient is the last rounding: as a factor of g it would be one rounding more than the contract allows.
    """
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(G + at, mask=at < n, other=0.0).to(ACC)
    x = tl.load(X + at, mask=at < n, other=0.0).to(ACC)
    z = exp(-tl.abs(x))
    quotient = divide(tl.where(x < 0.0, g, z), 1.0 + z)
    d = tl.where(x < 0.0, quotient, g * quotient)
    tl.store(D + at, d.to(D.dtype.element_ty), mask=at < n)
