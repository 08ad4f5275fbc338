"""Kernels with one fault each, as Triton has them, and one without; compiled by `compiled_kernels.py`."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def sound(X, Y, n, scale, BLOCK: tl.constexpr):
    """Twice as much."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + at, tl.load(X + at, mask=at < n, other=0.0) * scale, mask=at < n)


@triton.jit
def double_constant(X, Y, n, scale, BLOCK: tl.constexpr):
    """The factor is a number of double precision, and so is the product."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + at, mask=at < n, other=0.0) * tl.full((1,), 0.1, tl.float64)
    tl.store(Y + at, x.to(tl.float32), mask=at < n)


@triton.jit
def approximate(X, Y, n, scale, BLOCK: tl.constexpr):
    """The exponential that Triton makes of the hardware's."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + at, tl.exp(tl.load(X + at, mask=at < n, other=0.0)), mask=at < n)


@triton.jit
def spilling(X, Y, n, scale, BLOCK: tl.constexpr):
    """A row of more elements than the block's registers hold."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + at, mask=at < n, other=0.0)
    mean = tl.sum(x, 0) / n
    spread = tl.sum((x - mean) * (x - mean), 0)
    tl.store(Y + at, (x - mean) * spread, mask=at < n)


@triton.jit
def strided(X, Y, n, scale, BLOCK: tl.constexpr):
    """Every third element."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + at * 3, tl.load(X + at * 3, mask=at < n, other=0.0) * scale, mask=at < n)


@triton.jit
def shared(X, Y, n, scale, BLOCK: tl.constexpr):
    """A square block of which the transpose is stored: it passes through shared memory as a whole."""
    k = tl.arange(0, BLOCK)
    square = tl.load(X + k[:, None] * BLOCK + k[None, :])
    tl.store(Y + k[:, None] * BLOCK + k[None, :], tl.trans(square) * scale)
