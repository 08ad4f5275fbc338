"""Triton kernels of batch norm, backward, in the tiles of the forward kernels.

With xh = (x - mean) invstd, the sums Σ g and Σ g xh over a channel are the gradients of bias and weight, and

    d_input = (g - Σ g / n - xh Σ g xh / n) invstd weight + grad_mean / n - xh invstd² grad_invstd / n.

A channel that fits into one tile is read once. Otherwise every tile yields its part of the sums, which are added in a
fixed order; then g and x are read again. Constant statistics are no functions of x, so that d_input = g invstd weight
needs no sums and is written on the way.

Source: S. Ioffe, C. Szegedy, Batch Normalization, arXiv:1502.03167, section 3.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...gpu.arithmetic import divide, number, reciprocal_sqrt
from .batch_norm import of_channel, part_of, tile_of


@triton.jit
def _input_gradient(g, normalized, of_g, of_product, invstd, W, GM, GS, channel, there, n, ACC: tl.constexpr):
    """d_input, from the means of g and of g xh per channel; GM and GS are cotangents of mean and invstd."""
    d = (g - of_g - normalized * of_product) * invstd
    if W is not None:
        d *= of_channel(W, channel, there, ACC)
    # The cotangent goes in first. invstd^3 alone leaves the range of float32 where the standard deviation exceeds about
    # 4e12, and the product with the cotangent need not.
    if GS is not None:
        d -= normalized * (invstd * (invstd * divide(of_channel(GS, channel, there, ACC), n)))
    if GM is not None:
        d += divide(of_channel(GM, channel, there, ACC), n)
    return d


@triton.jit
def _store_sums(DW, DB, channel, there, of_product, of_g):
    """The gradients of weight and bias, those that are wanted."""
    if DW is not None:
        tl.store(DW + channel, of_product.to(DW.dtype.element_ty), mask=there)
    if DB is not None:
        tl.store(DB + channel, of_g.to(DB.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["count"])
def batch_norm_backward_whole(
    G, X, MEAN, INVSTD, W, GM, GS, D, DW, DB, samples, lines, length, over, tiles, count,
    DOUBLE: tl.constexpr, LAST: tl.constexpr, LINES: tl.constexpr, SAMPLES: tl.constexpr, POSITIONS: tl.constexpr,
):  # fmt: skip
    """All gradients, of channels that fit into a tile."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    at, mask, line, there, _ = tile_of(samples, lines, length, over, tiles, LAST, LINES, SAMPLES, POSITIONS)
    n = number(count, ACC)
    g = tl.load(G + at, mask=mask, other=0.0).to(ACC)
    x = tl.load(X + at, mask=mask, other=0.0).to(ACC)
    invstd = of_channel(INVSTD, line, there, ACC)
    normalized = tl.where(mask, (x - of_channel(MEAN, line, there, ACC)) * invstd, 0.0)
    of_g, of_product = tl.sum(g, 1), tl.sum(g * normalized, 1)
    _store_sums(DW, DB, line, there, of_product, of_g)
    if D is not None:
        of_g, of_product = divide(of_g, n)[:, None], divide(of_product, n)[:, None]
        d = _input_gradient(g, normalized, of_g, of_product, invstd, W, GM, GS, line, there, n, ACC)
        tl.store(D + at, d.to(D.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["eps"])
def batch_norm_backward_sums(
    G, X, MEAN, SCALE, W, D, SUM, PRODUCT, samples, lines, length, over, tiles, each, eps,
    CONSTANT: tl.constexpr, DOUBLE: tl.constexpr, LAST: tl.constexpr, LINES: tl.constexpr, SAMPLES: tl.constexpr,
    POSITIONS: tl.constexpr,
):  # fmt: skip
    """Σ g and Σ g xh of every piece of a line, into (pieces, lines), those that are wanted.

    SCALE is as in `batch_norm_apply`. Of CONSTANT statistics d_input is written, too, where it is wanted.
    """
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    at, mask, line, there, piece = tile_of(samples, lines, length, over, tiles, LAST, LINES, SAMPLES, POSITIONS)
    channel = line // each
    g = tl.load(G + at, mask=mask, other=0.0).to(ACC)
    scale = of_channel(SCALE, channel, there, ACC)
    if CONSTANT:
        scale = reciprocal_sqrt(scale + number(eps, ACC))
    if SUM is not None:
        tl.store(SUM + piece * lines + line, tl.sum(g, 1), mask=there)
    if PRODUCT is not None:
        x = tl.load(X + at, mask=mask, other=0.0).to(ACC)
        normalized = tl.where(mask, (x - of_channel(MEAN, channel, there, ACC)) * scale, 0.0)
        tl.store(PRODUCT + piece * lines + line, tl.sum(g * normalized, 1), mask=there)
    if D is not None:
        d = g * scale
        if W is not None:
            d *= of_channel(W, channel, there, ACC)
        tl.store(D + at, d.to(D.dtype.element_ty), mask=mask)


@triton.jit
def batch_norm_backward_combine(
    SUM, PRODUCT, SUMS, DW, DB, channels, each, pieces,
    DOUBLE: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sums of channels from those of pieces: (2, channels) as they are, and rounded to the parameters' gradients."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    channel = tl.program_id(0).to(tl.int64) * CHANNELS + tl.arange(0, CHANNELS)
    there = channel < channels
    of_g, of_product = tl.zeros((CHANNELS, BLOCK), ACC), tl.zeros((CHANNELS, BLOCK), ACC)
    for first in range(0, pieces * each, BLOCK):
        at, mask, _ = part_of(first, each, pieces, channel, channels, BLOCK)
        of_g += tl.load(SUM + at, mask=mask, other=0.0)
        if PRODUCT is not None:
            of_product += tl.load(PRODUCT + at, mask=mask, other=0.0)
    of_g, of_product = tl.sum(of_g, 1), tl.sum(of_product, 1)
    _store_sums(DW, DB, channel, there, of_product, of_g)
    if SUMS is not None:
        tl.store(SUMS + channel, of_g, mask=there)
        tl.store(SUMS + channels + channel, of_product, mask=there)


@triton.jit(do_not_specialize=["count"])
def batch_norm_backward_apply(
    G, X, MEAN, INVSTD, SUMS, W, GM, GS, D, samples, lines, length, over, tiles, each, channels, count,
    DOUBLE: tl.constexpr, LAST: tl.constexpr, LINES: tl.constexpr, SAMPLES: tl.constexpr, POSITIONS: tl.constexpr,
):  # fmt: skip
    """d_input from the sums of `batch_norm_backward_combine`."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    at, mask, line, there, _ = tile_of(samples, lines, length, over, tiles, LAST, LINES, SAMPLES, POSITIONS)
    channel = line // each
    n = number(count, ACC)
    g = tl.load(G + at, mask=mask, other=0.0).to(ACC)
    x = tl.load(X + at, mask=mask, other=0.0).to(ACC)
    invstd = of_channel(INVSTD, channel, there, ACC)
    normalized = (x - of_channel(MEAN, channel, there, ACC)) * invstd
    of_g = divide(of_channel(SUMS, channel, there, ACC), n)
    of_product = divide(of_channel(SUMS + channels, channel, there, ACC), n)
    d = _input_gradient(g, normalized, of_g, of_product, invstd, W, GM, GS, channel, there, n, ACC)
    tl.store(D + at, d.to(D.dtype.element_ty), mask=mask)
