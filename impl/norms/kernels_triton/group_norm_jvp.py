"""Triton kernels of group norm's tangent. Groups of x and of its tangent that fit into registers are read once.

Groups and memory are as in `group_norm`, letters and formulas as in `layer_norm_jvp`, with w, tw and tb per channel.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...gpu.arithmetic import number, reciprocal_sqrt
from .group_norm import of_channels, over_group
from .layer_norm import long_statistics, mean_of
from .layer_norm_jvp import long_pair


@triton.jit(do_not_specialize=["eps"])
def group_norm_jvp(
    X, T, W, TW, TB, D, DM, DR, M, groups, each, positions, length, eps,
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
    centred = tl.where(mask, x - mean_of(over_group(x), length, ACC)[:, None, None], 0.0)
    rstd = reciprocal_sqrt(mean_of(over_group(centred * centred), length, ACC) + number(eps, ACC))
    xh = centred * rstd[:, None, None]
    if T is not None:
        t = tl.load(T + at, mask=mask, other=0.0).to(ACC)
        bar = mean_of(over_group(t), length, ACC)
        t = tl.where(mask, t - bar[:, None, None], 0.0)
        slope = mean_of(over_group(t * xh), length, ACC)
        d = rstd[:, None, None] * (t - xh * slope[:, None, None])
        if W is not None:
            d *= of_channels(W, row, c, groups, each, there, ACC)
        if TW is not None:
            d += xh * of_channels(TW, row, c, groups, each, there, ACC)
        if DM is not None:
            tl.store(DM + row, bar, mask=there)
        if DR is not None:
            tl.store(DR + row, -rstd * (rstd * slope), mask=there)
    else:
        d = xh * of_channels(TW, row, c, groups, each, there, ACC)
    if TB is not None:
        d += of_channels(TB, row, c, groups, each, there, ACC)
    tl.store(D + at, d.to(D.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["eps"])
def group_norm_jvp_long(
    X, T, W, TW, TB, D, DM, DR, M, groups, each, positions, length, eps,
    DOUBLE: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Groups that do not fit, one to a program, read twice: for the statistics and for the results."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    row = tl.program_id(0).to(tl.int64)
    start = row * length
    if T is not None:
        mean, bar, variance, covariance = long_pair(X, T, start, length, ACC, CHANNELS * BLOCK)
    else:
        mean, variance = long_statistics(X, start, length, ACC, CHANNELS * BLOCK)
    rstd = reciprocal_sqrt(variance + number(eps, ACC))
    if T is not None:
        slope = covariance * rstd
        if DM is not None:
            tl.store(DM + row + tl.arange(0, 1), bar)
        if DR is not None:
            tl.store(DR + row + tl.arange(0, 1), -rstd * (rstd * slope))
    for first in range(0, each, CHANNELS):
        c = first + tl.arange(0, CHANNELS)
        at_c = (row % groups) * each + c
        for p_first in range(0, positions, BLOCK):
            p = p_first + tl.arange(0, BLOCK)
            at = start + c.to(tl.int64)[:, None] * positions + p[None, :]
            mask = (c < each)[:, None] & (p < positions)[None, :]
            xh = (tl.load(X + at, mask=mask, other=0.0).to(ACC) - mean) * rstd
            if T is not None:
                d = rstd * (tl.load(T + at, mask=mask, other=0.0).to(ACC) - bar - xh * slope)
                if W is not None:
                    d *= tl.load(W + at_c, mask=c < each, other=0.0).to(ACC)[:, None]
                if TW is not None:
                    d += xh * tl.load(TW + at_c, mask=c < each, other=0.0).to(ACC)[:, None]
            else:
                d = xh * tl.load(TW + at_c, mask=c < each, other=0.0).to(ACC)[:, None]
            if TB is not None:
                d += tl.load(TB + at_c, mask=c < each, other=0.0).to(ACC)[:, None]
            tl.store(D + at, d.to(D.dtype.element_ty), mask=mask)
