"""Triton kernels of softmax and log-softmax, along any dim; a row is read once where it fits into registers.

A tensor is seen as (outer, length, inner), the sums over `length`. Where inner is 1 a program takes rows that follow
each other, else rows that lie side by side. Rows that do not fit are read twice: once for the largest element and the
sum of exponentials, which is rescaled where a larger element comes ("online"), and once for the results.

Source: M. Milakov, N. Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867, algorithm 3.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ..gpu.arithmetic import divide, exp, online


@triton.jit
def _rows_of(rows, K, inner, tiles, ROWS: tl.constexpr, LAST: tl.constexpr, DENSE: tl.constexpr):
    """Where the program's rows begin, and which of them there are."""
    # A product of two of these operands would have 32 bits. So each product begins with a number of 64.
    pid = tl.program_id(0).to(tl.int64)
    if LAST:
        row = pid * ROWS + tl.arange(0, ROWS)
        return row * K, row < rows
    if not DENSE:
        row = pid * ROWS + tl.arange(0, ROWS)
        return (row // inner) * K * inner + row % inner, row < rows
    side = (pid % tiles) * ROWS + tl.arange(0, ROWS)
    return (pid // tiles) * K * inner + side, side < inner


@triton.jit
def _piece(start, there, first, K, inner, LAST: tl.constexpr, BLOCK: tl.constexpr):
    """Where a piece of the program's rows is, and which of its elements there are."""
    k = first + tl.arange(0, BLOCK)
    at = start[:, None] + (k if LAST else k.to(tl.int64) * inner)[None, :]
    return at, there[:, None] & (k < K)[None, :]


@triton.jit
def softmax_forward(
    X, Y, rows, K, inner, tiles,
    LOG: tl.constexpr, DOUBLE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, LAST: tl.constexpr,
    DENSE: tl.constexpr,
):  # fmt: skip
    """Rows that fit."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    start, there = _rows_of(rows, K, inner, tiles, ROWS, LAST, DENSE)
    k = tl.arange(0, BLOCK)
    # A row is added to the pointer, not to each offset, and where programs take one row each no mask asks whether it
    # exists, for all do: of the longest rows a thread needs every register.
    along = (k if LAST else k.to(tl.int64) * inner)[None, :]
    mask = (k < K)[None, :] if ROWS == 1 else there[:, None] & (k < K)[None, :]
    x = tl.load(X + start[:, None] + along, mask=mask, other=float("-inf")).to(ACC)
    shifted = x - tl.max(x, 1)[:, None]
    e = exp(shifted)
    total = tl.sum(e, 1)[:, None]
    y = shifted - tl.log(total) if LOG else divide(e, total)
    tl.store(Y + start[:, None] + along, y.to(Y.dtype.element_ty), mask=mask)


@triton.jit
def softmax_forward_long(
    X, Y, rows, K, inner, tiles,
    LOG: tl.constexpr, DOUBLE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, LAST: tl.constexpr,
    DENSE: tl.constexpr,
):  # fmt: skip
    """Rows that do not fit, read twice."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    start, there = _rows_of(rows, K, inner, tiles, ROWS, LAST, DENSE)
    top = tl.full((ROWS,), float("-inf"), ACC)
    total = tl.zeros((ROWS,), ACC)
    for first in range(0, K, BLOCK):
        at, mask = _piece(start, there, first, K, inner, LAST, BLOCK)
        x = tl.load(X + at, mask=mask, other=float("-inf")).to(ACC)
        top, total = online(top, total, x)
    for first in range(0, K, BLOCK):
        at, mask = _piece(start, there, first, K, inner, LAST, BLOCK)
        shifted = tl.load(X + at, mask=mask, other=0.0).to(ACC) - top[:, None]
        y = shifted - tl.log(total)[:, None] if LOG else divide(exp(shifted), total[:, None])
        tl.store(Y + at, y.to(Y.dtype.element_ty), mask=mask)


@triton.jit
def softmax_backward(
    G, Y, D, rows, K, inner, tiles,
    LOG: tl.constexpr, DOUBLE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, LAST: tl.constexpr,
    DENSE: tl.constexpr,
):  # fmt: skip
    """d = y (g - Σ y g), or g - e^y Σ g of log-softmax, in rows that fit."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    start, there = _rows_of(rows, K, inner, tiles, ROWS, LAST, DENSE)
    at, mask = _piece(start, there, 0, K, inner, LAST, BLOCK)
    g = tl.load(G + at, mask=mask, other=0.0).to(ACC)
    y = tl.load(Y + at, mask=mask, other=0.0).to(ACC)
    d = g - exp(y) * tl.sum(g, 1)[:, None] if LOG else y * (g - tl.sum(y * g, 1)[:, None])
    tl.store(D + at, d.to(D.dtype.element_ty), mask=mask)


@triton.jit
def softmax_backward_long(
    G, Y, D, rows, K, inner, tiles,
    LOG: tl.constexpr, DOUBLE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, LAST: tl.constexpr,
    DENSE: tl.constexpr,
):  # fmt: skip
    """The same in rows that do not fit."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    start, there = _rows_of(rows, K, inner, tiles, ROWS, LAST, DENSE)
    total = tl.zeros((ROWS,), ACC)
    for first in range(0, K, BLOCK):
        at, mask = _piece(start, there, first, K, inner, LAST, BLOCK)
        g = tl.load(G + at, mask=mask, other=0.0).to(ACC)
        if not LOG:
            g *= tl.load(Y + at, mask=mask, other=0.0).to(ACC)
        total += tl.sum(g, 1)
    for first in range(0, K, BLOCK):
        at, mask = _piece(start, there, first, K, inner, LAST, BLOCK)
        g = tl.load(G + at, mask=mask, other=0.0).to(ACC)
        y = tl.load(Y + at, mask=mask, other=0.0).to(ACC)
        d = g - exp(y) * total[:, None] if LOG else y * (g - total[:, None])
        tl.store(D + at, d.to(D.dtype.element_ty), mask=mask)


@triton.jit
def softmax_jvp(
    X, T, D, rows, K, inner, tiles,
    LOG: tl.constexpr, DOUBLE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, LAST: tl.constexpr,
    DENSE: tl.constexpr,
):  # fmt: skip
    """p (t - Σ p t) for the probabilities p of x, or t - Σ p t of log-softmax, in rows that fit."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    start, there = _rows_of(rows, K, inner, tiles, ROWS, LAST, DENSE)
    at, mask = _piece(start, there, 0, K, inner, LAST, BLOCK)
    x = tl.load(X + at, mask=mask, other=float("-inf")).to(ACC)
    t = tl.load(T + at, mask=mask, other=0.0).to(ACC)
    e = exp(x - tl.max(x, 1)[:, None])
    p = divide(e, tl.sum(e, 1)[:, None])
    d = t - tl.sum(p * t, 1)[:, None]
    if not LOG:
        d *= p
    tl.store(D + at, d.to(D.dtype.element_ty), mask=mask)


@triton.jit
def softmax_jvp_long(
    X, T, D, rows, K, inner, tiles,
    LOG: tl.constexpr, DOUBLE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, LAST: tl.constexpr,
    DENSE: tl.constexpr,
):  # fmt: skip
    """The same in rows that do not fit. Σ p t is a mean with weights, which is corrected by each piece of the row."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    start, there = _rows_of(rows, K, inner, tiles, ROWS, LAST, DENSE)
    top = tl.full((ROWS,), float("-inf"), ACC)
    total = tl.zeros((ROWS,), ACC)
    mean = tl.zeros((ROWS,), ACC)
    for first in range(0, K, BLOCK):
        at, mask = _piece(start, there, first, K, inner, LAST, BLOCK)
        x = tl.load(X + at, mask=mask, other=float("-inf")).to(ACC)
        t = tl.load(T + at, mask=mask, other=0.0).to(ACC)
        higher = tl.maximum(top, tl.max(x, 1))
        # As long as all is -inf there is nothing to rescale, and the difference of two infinities would be a NaN.
        total *= tl.where(top == higher, 1.0, exp(top - higher))
        e = exp(x - tl.where(higher == float("-inf"), 0.0, higher)[:, None])
        before = total
        total += tl.sum(e, 1)
        # A total of 0 has no weights yet. Each weight is at most 1, so no sum leaves the range of a mean that does not.
        weighed = mean * divide(before, total) + tl.sum(divide(e, total[:, None]) * t, 1)
        mean = tl.where(total == 0.0, 0.0, weighed)
        top = higher
    # A row of nothing but -inf has no probabilities at all.
    mean = tl.where(total == 0.0, float("nan"), mean)
    for first in range(0, K, BLOCK):
        at, mask = _piece(start, there, first, K, inner, LAST, BLOCK)
        d = tl.load(T + at, mask=mask, other=0.0).to(ACC) - mean[:, None]
        if not LOG:
            x = tl.load(X + at, mask=mask, other=0.0).to(ACC)
            d *= divide(exp(x - top[:, None]), total[:, None])
        tl.store(D + at, d.to(D.dtype.element_ty), mask=mask)
