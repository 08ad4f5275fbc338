"""Triton kernels of layer norm's tangent. Rows of x and of its tangent t that fit into registers are read once.

Letters and memory are those of `layer_norm`; tw and tb are tangents of weight and bias, bar is the mean over a row. D,
DM and DR are what the kernels write, the tangents of output, mean and r. As in `expressions`:

    d out = r (t - bar(t) - xh c) w + xh tw + tb,   d mean = bar(t),   d r = -r^2 c,   c = bar((t - bar(t)) xh).

Operands that a call does not have are None, as are results that nobody wants; one of t and tw is there.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...gpu.arithmetic import divide, number, reciprocal_sqrt
from .layer_norm import long_statistics, mean_of


@triton.jit
def long_pair(X, T, start, length, ACC: tl.constexpr, BLOCK: tl.constexpr):
    """Of `length` elements of x and t from `start` on, read in pieces: means, variance of x, covariance; each in a
    block of one element.

    Products about the means of pieces are combined as squares are in `long_statistics`.
    """
    total = tl.zeros((1,), ACC)
    total_t = tl.zeros((1,), ACC)
    mean = tl.zeros((1,), ACC)
    bar = tl.zeros((1,), ACC)
    squares = tl.zeros((1,), ACC)
    products = tl.zeros((1,), ACC)
    for first in range(0, length, BLOCK):
        k = first + tl.arange(0, BLOCK)
        mask = k < length
        x = tl.load(X + start + k, mask=mask, other=0.0).to(ACC)
        t = tl.load(T + start + k, mask=mask, other=0.0).to(ACC)
        count = tl.full((1,), tl.minimum(length - first, BLOCK), ACC)
        before = tl.full((1,), first, ACC)
        part = tl.sum(x, 0)
        part_t = tl.sum(t, 0)
        own = divide(part, count)
        own_t = divide(part_t, count)
        centred = tl.where(mask, x - own, 0.0)
        centred_t = tl.where(mask, t - own_t, 0.0)
        # The first piece has nothing before it: the factor 0 comes before a product that may overflow.
        apart = own - mean
        apart_t = own_t - bar
        ahead = divide(apart * before, before + count)
        squares += tl.sum(centred * centred, 0) + ahead * apart * count
        products += tl.sum(centred * centred_t, 0) + ahead * apart_t * count
        mean += divide(apart * count, before + count)
        bar += divide(apart_t * count, before + count)
        total += part
        total_t += part_t
    return (
        mean_of(total, length, ACC), mean_of(total_t, length, ACC),
        mean_of(squares, length, ACC), mean_of(products, length, ACC),
    )  # fmt: skip


@triton.jit(do_not_specialize=["eps"])
def layer_norm_jvp(
    X, T, W, TW, TB, D, DM, DR, M, N, eps, DOUBLE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Rows that fit."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    first = tl.program_id(0).to(tl.int64) * ROWS
    start = first * N
    row = tl.arange(0, ROWS)
    k = tl.arange(0, BLOCK)
    at = row[:, None] * N + k[None, :]
    there = row < M - first
    mask = there[:, None] & (k < N)[None, :]
    x = tl.load(X + start + at, mask=mask, other=0.0).to(ACC)
    centred = tl.where(mask, x - mean_of(tl.sum(x, 1), N, ACC)[:, None], 0.0)
    rstd = reciprocal_sqrt(mean_of(tl.sum(centred * centred, 1), N, ACC) + number(eps, ACC))
    xh = centred * rstd[:, None]
    if T is not None:
        t = tl.load(T + start + at, mask=mask, other=0.0).to(ACC)
        bar = mean_of(tl.sum(t, 1), N, ACC)
        t = tl.where(mask, t - bar[:, None], 0.0)
        slope = mean_of(tl.sum(t * xh, 1), N, ACC)
        d = rstd[:, None] * (t - xh * slope[:, None])
        if W is not None:
            d *= tl.load(W + k, mask=k < N, other=0.0).to(ACC)[None, :]
        if TW is not None:
            d += xh * tl.load(TW + k, mask=k < N, other=0.0).to(ACC)[None, :]
        if DM is not None:
            tl.store(DM + first + row, bar, mask=there)
        if DR is not None:
            # One factor r at a time: r^2 alone may leave the range that the product stays in.
            tl.store(DR + first + row, -rstd * (rstd * slope), mask=there)
    else:
        d = xh * tl.load(TW + k, mask=k < N, other=0.0).to(ACC)[None, :]
    if TB is not None:
        d += tl.load(TB + k, mask=k < N, other=0.0).to(ACC)[None, :]
    tl.store(D + start + at, d.to(D.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["eps"])
def layer_norm_jvp_long(
    X, T, W, TW, TB, D, DM, DR, M, N, eps, DOUBLE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Rows that do not fit, one to a program, read twice: for the statistics and for the results."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    row = tl.program_id(0).to(tl.int64)
    start = row * N
    if T is not None:
        mean, bar, variance, covariance = long_pair(X, T, start, N, ACC, BLOCK)
    else:
        mean, variance = long_statistics(X, start, N, ACC, BLOCK)
    rstd = reciprocal_sqrt(variance + number(eps, ACC))
    if T is not None:
        slope = covariance * rstd
        if DM is not None:
            tl.store(DM + row + tl.arange(0, 1), bar)
        if DR is not None:
            tl.store(DR + row + tl.arange(0, 1), -rstd * (rstd * slope))
    for first in range(0, N, BLOCK):
        k = first + tl.arange(0, BLOCK)
        xh = (tl.load(X + start + k, mask=k < N, other=0.0).to(ACC) - mean) * rstd
        if T is not None:
            d = rstd * (tl.load(T + start + k, mask=k < N, other=0.0).to(ACC) - bar - xh * slope)
            if W is not None:
                d *= tl.load(W + k, mask=k < N, other=0.0).to(ACC)
            if TW is not None:
                d += xh * tl.load(TW + k, mask=k < N, other=0.0).to(ACC)
        else:
            d = xh * tl.load(TW + k, mask=k < N, other=0.0).to(ACC)
        if TB is not None:
            d += tl.load(TB + k, mask=k < N, other=0.0).to(ACC)
        tl.store(D + start + k, d.to(D.dtype.element_ty), mask=k < N)
