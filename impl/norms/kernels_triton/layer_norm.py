"""Triton kernels of layer norm, and of RMS norm, which has no mean.

Rows that fit into registers are read once, in both directions.

Letters: x in rows of N elements with mean m, r = 1/√(var + eps), xh = (x - m) r, g = dy w, bar = mean over the row, dm
and ds the cotangents of mean and r. Backward, as ATen has it from any mean and r that it is given:

    d_x = r (g - bar(g) - xh (bar(g xh) + r ds / N)) + dm / N,   d_w = Σ dy xh,   d_b = Σ dy.

A norm without a MEAN has m = 0, and no bar(g) nor dm in these. Its x may be the sum of X and a residual R, which is
rounded to its dtype and stored as SUM; what comes through SUM itself is GX.

The variance is that of the centred row. A program of the backward kernel goes over many rows with its own sums for d_w
and d_b, which `partial_sums` adds up. Operands that a call does not have are None, as are results that nobody wants.

In memory x, dy and whatever is shaped as they are have M rows, in backward M to a slice, contiguous. Of w and b there
are N elements; of m, r, their cotangents and tangents one to a row, in ACC: float64 with DOUBLE, else float32. The host
decides which rows fit: ROWS of them go to a program, in a block of BLOCK elements, N or more. Of a longer row a program
takes BLOCK elements at a time. The two forward kernels get the same operands, as do those of the tangent; so the one
for longer rows has some, M and ROWS, that it does not read.

What is hard here: the mean of a row with an infinity is that infinity, or NaN where both are there. So means come from
plain sums, and only variances of pieces are combined, for which see `long_statistics`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...gpu.arithmetic import divide, number, reciprocal_sqrt


@triton.jit
def mean_of(total, length, ACC: tl.constexpr):
    """A sum over `length` elements, an int, as a mean."""
    return divide(total, tl.full((1,), length, ACC))


@triton.jit
def long_statistics(X, start, length, ACC: tl.constexpr, BLOCK: tl.constexpr):
    """Mean and variance of `length` elements from `start` on, read in pieces, each in a block of one element.

    The squares about the means of pieces are combined by equation 2.1b of T. F. Chan, G. H. Golub, R. J. LeVeque,
    Updating formulae and a pairwise algorithm for computing sample variances (1979).
    """
    total = tl.zeros((1,), ACC)
    mean = tl.zeros((1,), ACC)
    squares = tl.zeros((1,), ACC)
    for first in range(0, length, BLOCK):
        k = first + tl.arange(0, BLOCK)
        mask = k < length
        x = tl.load(X + start + k, mask=mask, other=0.0).to(ACC)
        count = tl.full((1,), tl.minimum(length - first, BLOCK), ACC)
        before = tl.full((1,), first, ACC)
        part = tl.sum(x, 0)
        own = divide(part, count)
        centred = tl.where(mask, x - own, 0.0)
        # The first piece has nothing before it: the factor 0 comes before the square, which may overflow.
        apart = own - mean
        squares += tl.sum(centred * centred, 0) + divide(apart * before, before + count) * apart * count
        mean += divide(apart * count, before + count)
        total += part
    return mean_of(total, length, ACC), mean_of(squares, length, ACC)


@triton.jit
def read_row(X, R, at, mask, ACC: tl.constexpr):
    """Elements of x, or of the sum of x and the residual, rounded to their dtype."""
    x = tl.load(X + at, mask=mask, other=0.0).to(ACC)
    if R is not None:
        x = (x + tl.load(R + at, mask=mask, other=0.0).to(ACC)).to(X.dtype.element_ty).to(ACC)
    return x


@triton.jit
def long_mean_square(X, R, start, length, ACC: tl.constexpr, BLOCK: tl.constexpr):
    """The mean of squares of `length` elements from `start` on, read in pieces, in a block of one element."""
    squares = tl.zeros((BLOCK,), ACC)
    for first in range(0, length, BLOCK):
        k = first + tl.arange(0, BLOCK)
        x = read_row(X, R, start + k, k < length, ACC)
        squares += x * x
    return mean_of(tl.sum(squares, 0), length, ACC)


@triton.jit(do_not_specialize=["eps"])
def layer_norm_forward(
    X, R, W, B, OUT, SUM, MEAN, RSTD, M, N, eps, DOUBLE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
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
    centred = read_row(X, R, start + at, mask, ACC)
    if SUM is not None:
        tl.store(SUM + start + at, centred.to(SUM.dtype.element_ty), mask=mask)
    if MEAN is not None:
        mean = mean_of(tl.sum(centred, 1), N, ACC)
        centred = tl.where(mask, centred - mean[:, None], 0.0)
    rstd = reciprocal_sqrt(mean_of(tl.sum(centred * centred, 1), N, ACC) + number(eps, ACC))
    out = centred * rstd[:, None]
    if W is not None:
        out *= tl.load(W + k, mask=k < N, other=0.0).to(ACC)[None, :]
    if B is not None:
        out += tl.load(B + k, mask=k < N, other=0.0).to(ACC)[None, :]
    tl.store(OUT + start + at, out.to(OUT.dtype.element_ty), mask=mask)
    if MEAN is not None:
        tl.store(MEAN + first + row, mean, mask=there)
    tl.store(RSTD + first + row, rstd, mask=there)


@triton.jit(do_not_specialize=["eps"])
def layer_norm_forward_long(
    X, R, W, B, OUT, SUM, MEAN, RSTD, M, N, eps, DOUBLE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Rows that do not fit, one to a program, read twice: for the statistics and for the results."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    row = tl.program_id(0).to(tl.int64)
    if MEAN is not None:
        mean, variance = long_statistics(X, row * N, N, ACC, BLOCK)
        tl.store(MEAN + row + tl.arange(0, 1), mean)
    else:
        variance = long_mean_square(X, R, row * N, N, ACC, BLOCK)
    rstd = reciprocal_sqrt(variance + number(eps, ACC))
    for first in range(0, N, BLOCK):
        k = first + tl.arange(0, BLOCK)
        x = read_row(X, R, row * N + k, k < N, ACC)
        if SUM is not None:
            tl.store(SUM + row * N + k, x.to(SUM.dtype.element_ty), mask=k < N)
        if MEAN is not None:
            x -= mean
        out = x * rstd
        if W is not None:
            out *= tl.load(W + k, mask=k < N, other=0.0).to(ACC)
        if B is not None:
            out += tl.load(B + k, mask=k < N, other=0.0).to(ACC)
        tl.store(OUT + row * N + k, out.to(OUT.dtype.element_ty), mask=k < N)
    tl.store(RSTD + row + tl.arange(0, 1), rstd)


@triton.jit
def layer_norm_slopes(G, X, MEAN, RSTD, W, GR, BAR, SLOPE, M, N, w_step, DOUBLE: tl.constexpr, BLOCK: tl.constexpr):
    """Of rows that do not fit: bar(g), and the bracket that d_x multiplies by xh."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    row = tl.program_id(0).to(tl.int64) + tl.arange(0, 1)
    r = tl.load(RSTD + row)
    if MEAN is not None:
        m = tl.load(MEAN + row)
    of_g = tl.zeros((BLOCK,), ACC)
    of_both = tl.zeros((BLOCK,), ACC)
    for first in range(0, N, BLOCK):
        k = first + tl.arange(0, BLOCK)
        g = tl.load(G + row * N + k, mask=k < N, other=0.0).to(ACC)
        if W is not None:
            g *= tl.load(W + row // M * w_step + k, mask=k < N, other=0.0).to(ACC)
        x = tl.load(X + row * N + k, mask=k < N, other=0.0).to(ACC)
        if MEAN is not None:
            x -= m
        xh = tl.where(k < N, x * r, 0.0)
        of_g += g
        of_both += g * xh
    if BAR is not None:
        tl.store(BAR + row, mean_of(tl.sum(of_g, 0), N, ACC))
    slope = mean_of(tl.sum(of_both, 0), N, ACC)
    if GR is not None:
        slope += r * mean_of(tl.load(GR + row), N, ACC)
    tl.store(SLOPE + row, slope)


@triton.jit
def layer_norm_backward(
    G, X, MEAN, RSTD, W, GM, GR, GX, BAR, SLOPE, D, DW, DB, M, N, parts, span, steps, columns, w_step,
    NORMALIZED: tl.constexpr, DOUBLE: tl.constexpr, WHOLE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """`steps` times ROWS rows to a program; a slice is M rows with a weight and sums of its own.

    Rows that fit are WHOLE. Of others a program takes BLOCK columns, and BAR and SLOPE are from `layer_norm_slopes`.
    """
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    row = tl.arange(0, ROWS)
    k = tl.arange(0, BLOCK)
    part = tl.program_id(0).to(tl.int64)
    if not WHOLE:
        k = (part % columns) * BLOCK + k
        part = part // columns
        row = row.to(tl.int64)
    s = part // parts
    if W is not None:
        w = tl.load(W + s * w_step + k, mask=k < N, other=0.0).to(ACC)[None, :]
    if DW is not None:
        d_weight = tl.zeros((ROWS, BLOCK), ACC)
    if DB is not None:
        d_bias = tl.zeros((ROWS, BLOCK), ACC)
    at = row[:, None] * N + k[None, :]
    first = (part % parts) * ROWS
    # Loads run two rounds ahead; those of three operands of whole rows one, for what is loaded is in shared memory.
    stages: tl.constexpr = 2 if WHOLE and GX is not None else 3
    for _ in tl.range(0, steps, num_stages=stages):
        there = row < M - first
        mask = there[:, None] & (k < N)[None, :]
        at_row = s * M + first + row
        start = (s * M + first) * N
        dy = tl.load(G + start + at, mask=mask, other=0.0).to(ACC)
        if NORMALIZED:
            r = tl.load(RSTD + at_row, mask=there, other=0.0)[:, None]
            x = tl.load(X + start + at, mask=mask, other=0.0).to(ACC)
            if MEAN is not None:
                x -= tl.load(MEAN + at_row, mask=there, other=0.0)[:, None]
            xh = tl.where(mask, x * r, 0.0)
        if D is not None:
            g = dy
            if W is not None:
                g = dy * w
            if WHOLE:
                # bar(g xh) with the g that is not centred yet: xh of a mean that is not the row's do not add up to 0.
                slope = mean_of(tl.sum(g * xh, 1), N, ACC)[:, None]
                if MEAN is not None:
                    g = tl.where(mask, g - mean_of(tl.sum(g, 1), N, ACC)[:, None], 0.0)
                if GR is not None:
                    # One factor r at a time: r^2 alone underflows long before r ds / N does.
                    slope += r * mean_of(tl.load(GR + at_row, mask=there, other=0.0), N, ACC)[:, None]
            else:
                if BAR is not None:
                    g -= tl.load(BAR + at_row, mask=there, other=0.0)[:, None]
                slope = tl.load(SLOPE + at_row, mask=there, other=0.0)[:, None]
            d = r * (g - xh * slope)
            if GM is not None:
                d += mean_of(tl.load(GM + at_row, mask=there, other=0.0), N, ACC)[:, None]
            if GX is not None:
                d += tl.load(GX + start + at, mask=mask, other=0.0).to(ACC)
            tl.store(D + start + at, d.to(D.dtype.element_ty), mask=mask)
        if DW is not None:
            d_weight += dy * xh
        if DB is not None:
            d_bias += dy
        first += span
    if DW is not None:
        tl.store(DW + part * N + k, tl.sum(d_weight, 0).to(DW.dtype.element_ty), mask=k < N)
    if DB is not None:
        tl.store(DB + part * N + k, tl.sum(d_bias, 0).to(DB.dtype.element_ty), mask=k < N)
