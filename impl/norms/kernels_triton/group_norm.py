"""Triton kernels of group norm. Groups that fit into registers are read once, in both directions.

A group is a run of `each` channels times `positions` elements, contiguous in memory; M of them are numbered sample by
sample, `length` elements each. Letters, formulas and memory are those of `layer_norm`, with a group for a row, and with
w and the sums for d_w and d_b per channel. A channel of a sample belongs to one program, which leaves its two sums;
`partial_sums` adds them up over the samples.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...gpu.arithmetic import number, reciprocal_sqrt
from .layer_norm import long_statistics, mean_of


@triton.jit
def of_channels(P, row, c, groups, each, there, ACC: tl.constexpr):
    """A weight or bias (C,) for channels c of groups `row`, as (rows, channels, 1)."""
    at = (row % groups)[:, None] * each + c[None, :]
    return tl.load(P + at, mask=there[:, None] & (c < each)[None, :], other=0.0).to(ACC)[:, :, None]


@triton.jit
def over_group(t):
    """The sum of (rows, channels, positions) for each row."""
    return tl.sum(tl.sum(t, 2), 1)


@triton.jit(do_not_specialize=["eps"])
def group_norm_forward(
    X, W, B, OUT, MEAN, RSTD, M, groups, each, positions, length, eps,
    DOUBLE: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Groups that fit."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = row < M
    c = tl.arange(0, CHANNELS)
    p = tl.arange(0, BLOCK)
    at = row[:, None, None] * length + (c[:, None] * positions + p[None, :])[None, :, :]
    mask = there[:, None, None] & ((c < each)[:, None] & (p < positions)[None, :])[None, :, :]
    x = tl.load(X + at, mask=mask, other=0.0).to(ACC)
    mean = mean_of(over_group(x), length, ACC)
    centred = tl.where(mask, x - mean[:, None, None], 0.0)
    rstd = reciprocal_sqrt(mean_of(over_group(centred * centred), length, ACC) + number(eps, ACC))
    out = centred * rstd[:, None, None]
    if W is not None:
        out *= of_channels(W, row, c, groups, each, there, ACC)
    if B is not None:
        out += of_channels(B, row, c, groups, each, there, ACC)
    tl.store(OUT + at, out.to(OUT.dtype.element_ty), mask=mask)
    tl.store(MEAN + row, mean, mask=there)
    tl.store(RSTD + row, rstd, mask=there)


@triton.jit(do_not_specialize=["eps"])
def group_norm_forward_long(
    X, W, B, OUT, MEAN, RSTD, M, groups, each, positions, length, eps,
    DOUBLE: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Groups that do not fit, one to a program, read twice: for the statistics and for the results."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    row = tl.program_id(0).to(tl.int64)
    start = row * length
    mean, variance = long_statistics(X, start, length, ACC, CHANNELS * BLOCK)
    rstd = reciprocal_sqrt(variance + number(eps, ACC))
    for first in range(0, each, CHANNELS):
        c = first + tl.arange(0, CHANNELS)
        at_c = (row % groups) * each + c
        for p_first in range(0, positions, BLOCK):
            p = p_first + tl.arange(0, BLOCK)
            at = start + c.to(tl.int64)[:, None] * positions + p[None, :]
            mask = (c < each)[:, None] & (p < positions)[None, :]
            out = (tl.load(X + at, mask=mask, other=0.0).to(ACC) - mean) * rstd
            if W is not None:
                out *= tl.load(W + at_c, mask=c < each, other=0.0).to(ACC)[:, None]
            if B is not None:
                out += tl.load(B + at_c, mask=c < each, other=0.0).to(ACC)[:, None]
            tl.store(OUT + at, out.to(OUT.dtype.element_ty), mask=mask)
    tl.store(MEAN + row + tl.arange(0, 1), mean)
    tl.store(RSTD + row + tl.arange(0, 1), rstd)


@triton.jit
def group_norm_backward(
    G, X, MEAN, RSTD, W, GM, GR, D, DW, DB, M, groups, each, positions, length,
    NORMALIZED: tl.constexpr, DOUBLE: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Groups that fit."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = row < M
    c = tl.arange(0, CHANNELS)
    p = tl.arange(0, BLOCK)
    at = row[:, None, None] * length + (c[:, None] * positions + p[None, :])[None, :, :]
    mask = there[:, None, None] & ((c < each)[:, None] & (p < positions)[None, :])[None, :, :]
    at_c = row[:, None] * each + c[None, :]
    there_c = there[:, None] & (c < each)[None, :]
    dy = tl.load(G + at, mask=mask, other=0.0).to(ACC)
    if DB is not None:
        tl.store(DB + at_c, tl.sum(dy, 2).to(DB.dtype.element_ty), mask=there_c)
    if NORMALIZED:
        r = tl.load(RSTD + row, mask=there, other=0.0)
        m = tl.load(MEAN + row, mask=there, other=0.0)[:, None, None]
        x = tl.load(X + at, mask=mask, other=0.0).to(ACC)
        xh = tl.where(mask, (x - m) * r[:, None, None], 0.0)
    if DW is not None:
        tl.store(DW + at_c, tl.sum(dy * xh, 2).to(DW.dtype.element_ty), mask=there_c)
    if D is not None:
        g = dy
        if W is not None:
            g = dy * of_channels(W, row, c, groups, each, there, ACC)
        slope = mean_of(over_group(g * xh), length, ACC)
        g = tl.where(mask, g - mean_of(over_group(g), length, ACC)[:, None, None], 0.0)
        if GR is not None:
            slope += r * mean_of(tl.load(GR + row, mask=there, other=0.0), length, ACC)
        d = r[:, None, None] * (g - xh * slope[:, None, None])
        if GM is not None:
            d += mean_of(tl.load(GM + row, mask=there, other=0.0), length, ACC)[:, None, None]
        tl.store(D + at, d.to(D.dtype.element_ty), mask=mask)


@triton.jit
def group_norm_backward_long(
    G, X, MEAN, RSTD, W, GM, GR, D, DW, DB, M, groups, each, positions, length,
    NORMALIZED: tl.constexpr, DOUBLE: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Groups that do not fit, one to a program, read twice: for the sums and for d_x."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    row = tl.program_id(0).to(tl.int64)
    start = row * length
    r = tl.load(RSTD + row + tl.arange(0, 1))
    m = tl.load(MEAN + row + tl.arange(0, 1))
    of_g = tl.zeros((CHANNELS,), ACC)
    of_both = tl.zeros((CHANNELS,), ACC)
    for first in range(0, each, CHANNELS):
        c = first + tl.arange(0, CHANNELS)
        of_dy = tl.zeros((CHANNELS, BLOCK), ACC)
        of_dy_xh = tl.zeros((CHANNELS, BLOCK), ACC)
        for p_first in range(0, positions, BLOCK):
            p = p_first + tl.arange(0, BLOCK)
            at = start + c.to(tl.int64)[:, None] * positions + p[None, :]
            mask = (c < each)[:, None] & (p < positions)[None, :]
            dy = tl.load(G + at, mask=mask, other=0.0).to(ACC)
            of_dy += dy
            if NORMALIZED:
                xh = tl.where(mask, (tl.load(X + at, mask=mask, other=0.0).to(ACC) - m) * r, 0.0)
                of_dy_xh += dy * xh
        d_bias = tl.sum(of_dy, 1)
        d_weight = tl.sum(of_dy_xh, 1)
        if DB is not None:
            tl.store(DB + row * each + c, d_bias.to(DB.dtype.element_ty), mask=c < each)
        if DW is not None:
            tl.store(DW + row * each + c, d_weight.to(DW.dtype.element_ty), mask=c < each)
        if D is not None:
            if W is not None:
                w = tl.load(W + (row % groups) * each + c, mask=c < each, other=0.0).to(ACC)
                d_bias *= w
                d_weight *= w
            of_g += d_bias
            of_both += d_weight
    if D is not None:
        bar = mean_of(tl.sum(of_g, 0), length, ACC)
        slope = mean_of(tl.sum(of_both, 0), length, ACC)
        if GR is not None:
            slope += r * mean_of(tl.load(GR + row), length, ACC)
        for first in range(0, each, CHANNELS):
            c = first + tl.arange(0, CHANNELS)
            for p_first in range(0, positions, BLOCK):
                p = p_first + tl.arange(0, BLOCK)
                at = start + c.to(tl.int64)[:, None] * positions + p[None, :]
                mask = (c < each)[:, None] & (p < positions)[None, :]
                g = tl.load(G + at, mask=mask, other=0.0).to(ACC)
                if W is not None:
                    g *= tl.load(W + (row % groups) * each + c, mask=c < each, other=0.0).to(ACC)[:, None]
                d = r * (g - bar - (tl.load(X + at, mask=mask, other=0.0).to(ACC) - m) * r * slope)
                if GM is not None:
                    d += mean_of(tl.load(GM + row), length, ACC)
                tl.store(D + at, d.to(D.dtype.element_ty), mask=mask)
