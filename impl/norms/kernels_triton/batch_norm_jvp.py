"""Triton kernels of batch norm's tangent, in the tiles of the forward kernels.

Letters and formulas are those of `layer_norm_jvp`, over a channel and not over a row. A channel of x and of its tangent
t that fits into one tile is read once. Otherwise every tile yields sums of its part of a line, and products about the
part's own means; these are combined in a fixed order, and x and t are read again:

    n cov = Σ C_i + Σ n_i (mean_i - mean) (bar_i - bar).

Source: T. F. Chan, G. H. Golub, R. J. LeVeque, Updating formulae and a pairwise algorithm for computing sample
variances, COMPSTAT 1982, eq. 2.1 for any number of parts, with a product of two in place of a square.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...gpu.arithmetic import divide, number, reciprocal_sqrt
from .batch_norm import of_channel, part_of, size_of, tile_of


@triton.jit(do_not_specialize=["count", "eps"])
def batch_norm_jvp_whole(
    X, T, W, TW, TB, D, DM, DS, samples, lines, length, over, tiles, count, eps,
    DOUBLE: tl.constexpr, LAST: tl.constexpr, LINES: tl.constexpr, SAMPLES: tl.constexpr, POSITIONS: tl.constexpr,
):  # fmt: skip
    """The tangents of output, mean and 1 / sqrt(variance + eps), of channels that fit into a tile."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    at, mask, line, there, _ = tile_of(samples, lines, length, over, tiles, LAST, LINES, SAMPLES, POSITIONS)
    n = number(count, ACC)
    x = tl.load(X + at, mask=mask, other=0.0).to(ACC)
    centred = tl.where(mask, x - divide(tl.sum(x, 1), n)[:, None], 0.0)
    invstd = reciprocal_sqrt(divide(tl.sum(centred * centred, 1), n) + number(eps, ACC))
    xh = centred * invstd[:, None]
    if T is not None:
        t = tl.load(T + at, mask=mask, other=0.0).to(ACC)
        bar = divide(tl.sum(t, 1), n)
        t = tl.where(mask, t - bar[:, None], 0.0)
        slope = divide(tl.sum(t * xh, 1), n)
        if DM is not None:
            tl.store(DM + line, bar, mask=there)
        if DS is not None:
            # One factor at a time: their square alone may leave the range that the product stays in.
            tl.store(DS + line, -invstd * (invstd * slope), mask=there)
        d = invstd[:, None] * (t - xh * slope[:, None])
        if W is not None:
            d *= of_channel(W, line, there, ACC)
        if TW is not None:
            d += xh * of_channel(TW, line, there, ACC)
    else:
        d = xh * of_channel(TW, line, there, ACC)
    if TB is not None:
        d += of_channel(TB, line, there, ACC)
    tl.store(D + at, d.to(D.dtype.element_ty), mask=mask)


@triton.jit
def batch_norm_jvp_moments(
    X, T, SUM, SQUARES, MOVED, PRODUCTS, samples, lines, length, over, tiles,
    DOUBLE: tl.constexpr, LAST: tl.constexpr, LINES: tl.constexpr, SAMPLES: tl.constexpr, POSITIONS: tl.constexpr,
):  # fmt: skip
    """Of every piece of a line, into (pieces, lines): sums of x and of t, squares and products about their means."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    at, mask, line, there, piece = tile_of(samples, lines, length, over, tiles, LAST, LINES, SAMPLES, POSITIONS)
    place = piece * lines + line
    size = size_of(piece, samples, length, over, SAMPLES, POSITIONS).to(ACC)
    x = tl.load(X + at, mask=mask, other=0.0).to(ACC)
    total = tl.sum(x, 1)
    centred = tl.where(mask, x - divide(total, size)[:, None], 0.0)
    tl.store(SUM + place, total, mask=there)
    tl.store(SQUARES + place, tl.sum(centred * centred, 1), mask=there)
    if T is not None:
        t = tl.load(T + at, mask=mask, other=0.0).to(ACC)
        moved = tl.sum(t, 1)
        t = tl.where(mask, t - divide(moved, size)[:, None], 0.0)
        tl.store(MOVED + place, moved, mask=there)
        tl.store(PRODUCTS + place, tl.sum(centred * t, 1), mask=there)


@triton.jit(do_not_specialize=["count", "eps"])
def batch_norm_jvp_combine(
    SUM, SQUARES, MOVED, PRODUCTS, MEAN, INVSTD, BAR, SLOPE, DS, channels, each, pieces, samples, length, over,
    count, eps,
    DOUBLE: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr, SAMPLES: tl.constexpr, POSITIONS: tl.constexpr,
):  # fmt: skip
    """Mean and 1 / sqrt(variance + eps) of channels from these; and of t bar(t), bar((t - bar(t)) xh) and -r^2 times
    that.
    """
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    channel = tl.program_id(0).to(tl.int64) * CHANNELS + tl.arange(0, CHANNELS)
    there = channel < channels
    n = number(count, ACC)
    total = tl.zeros((CHANNELS, BLOCK), ACC)
    moved = tl.zeros((CHANNELS, BLOCK), ACC)
    for first in range(0, pieces * each, BLOCK):
        at, mask, piece = part_of(first, each, pieces, channel, channels, BLOCK)
        total += tl.load(SUM + at, mask=mask, other=0.0)
        if MOVED is not None:
            moved += tl.load(MOVED + at, mask=mask, other=0.0)
    mean = divide(tl.sum(total, 1), n)
    bar = divide(tl.sum(moved, 1), n)
    squares = tl.zeros((CHANNELS, BLOCK), ACC)
    products = tl.zeros((CHANNELS, BLOCK), ACC)
    for first in range(0, pieces * each, BLOCK):
        at, mask, piece = part_of(first, each, pieces, channel, channels, BLOCK)
        size = size_of(piece, samples, length, over, SAMPLES, POSITIONS).to(ACC)[None, :]
        off = divide(tl.load(SUM + at, mask=mask, other=0.0), size) - mean[:, None]
        squares += tl.where(mask, tl.load(SQUARES + at, mask=mask, other=0.0) + size * (off * off), 0.0)
        if MOVED is not None:
            off_t = divide(tl.load(MOVED + at, mask=mask, other=0.0), size) - bar[:, None]
            own = tl.load(PRODUCTS + at, mask=mask, other=0.0)
            products += tl.where(mask, own + size * (off * off_t), 0.0)
    invstd = reciprocal_sqrt(divide(tl.sum(squares, 1), n) + number(eps, ACC))
    tl.store(MEAN + channel, mean, mask=there)
    tl.store(INVSTD + channel, invstd, mask=there)
    if BAR is not None:
        slope = divide(tl.sum(products, 1), n) * invstd
        tl.store(BAR + channel, bar, mask=there)
        tl.store(SLOPE + channel, slope, mask=there)
        if DS is not None:
            tl.store(DS + channel, -invstd * (invstd * slope), mask=there)


@triton.jit(do_not_specialize=["eps"])
def batch_norm_jvp_apply(
    X, T, MEAN, SCALE, BAR, SLOPE, W, TW, TB, D, samples, lines, length, over, tiles, each, eps,
    CONSTANT: tl.constexpr, DOUBLE: tl.constexpr, LAST: tl.constexpr, LINES: tl.constexpr, SAMPLES: tl.constexpr,
    POSITIONS: tl.constexpr,
):  # fmt: skip
    """The tangent of the output from statistics, of which SCALE is as in `batch_norm_apply`.

    CONSTANT statistics do not move: t r w + xh tw + tb. BAR and SLOPE are None then, and x is read for tw alone.
    """
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    at, mask, line, there, _ = tile_of(samples, lines, length, over, tiles, LAST, LINES, SAMPLES, POSITIONS)
    channel = line // each
    scale = of_channel(SCALE, channel, there, ACC)
    if CONSTANT:
        scale = reciprocal_sqrt(scale + number(eps, ACC))
    if not CONSTANT or TW is not None:
        x = tl.load(X + at, mask=mask, other=0.0).to(ACC)
        xh = (x - of_channel(MEAN, channel, there, ACC)) * scale
    if T is not None:
        d = tl.load(T + at, mask=mask, other=0.0).to(ACC)
        if not CONSTANT:
            d = d - of_channel(BAR, channel, there, ACC) - xh * of_channel(SLOPE, channel, there, ACC)
        d *= scale
        if W is not None:
            d *= of_channel(W, channel, there, ACC)
        if TW is not None:
            d += xh * of_channel(TW, channel, there, ACC)
    else:
        d = xh * of_channel(TW, channel, there, ACC)
    if TB is not None:
        d += of_channel(TB, channel, there, ACC)
    tl.store(D + at, d.to(D.dtype.element_ty), mask=mask)
