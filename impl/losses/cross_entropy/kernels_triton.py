"""Triton kernels of cross entropy: from logits to losses, and from their cotangents to those of the logits.

Logits are (outer, C, inner) with any strides, the sums over C, and positions are numbered as in nll_loss. With LAST a
program takes positions that follow each other, else positions of one outer index, which lie side by side. No
log-probability is stored. Rows that do not fit into registers are read once forward, where the sum of exponentials is
rescaled as a larger logit comes ("online"), and twice backward.

Source: M. Milakov, N. Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867, algorithm 3.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...gpu.arithmetic import divide, exp, finite_top, number, online
from ..nll_loss.kernels_triton import rows_of, targets_at


@triton.jit
def _class_weights(W, p, k, mask, count, C, BATCHED: tl.constexpr):
    """The weights of some classes, for all rows or per row; 0 where there is no class."""
    if BATCHED:
        w = tl.load(W + ((p // count) * C)[:, None] + k[None, :], mask=mask, other=0.0)
    else:
        w = tl.load(W + k, mask=k < C, other=0.0)[None, :]
    return w


@triton.jit
def _target_weights(W, p, t, known, count, C, BATCHED: tl.constexpr):
    """The weight of every target."""
    at = (p // count) * C + t if BATCHED else t
    return tl.load(W + at, mask=known, other=0.0)


@triton.jit
def _store_losses(
    picked, smooth, W, OUT, WRONG, pid, p, there, t, counts, known, count, C, keep, share,
    SMOOTH: tl.constexpr, BATCHED: tl.constexpr,
):  # fmt: skip
    """The losses of rows: keep w_t (-z_t) - share Σ w z; 0 where ignored, and NaN where a target is no class."""
    loss = -picked
    if W is not None:
        loss *= _target_weights(W, p, t, known, count, C, BATCHED).to(loss.dtype)
    if SMOOTH:
        loss = loss * number(keep, loss.dtype) - smooth * number(share, loss.dtype)
    loss = tl.where(known, loss, tl.where(counts, float("nan"), 0.0))
    tl.store(OUT + p, loss.to(OUT.dtype.element_ty), mask=there)
    if WRONG is not None:
        tl.store(WRONG + pid, tl.max((counts & ~known).to(tl.int32), 0))


@triton.jit(do_not_specialize=["ignore", "keep", "share"])
def cross_entropy_forward(
    X, T, W, OUT, WRONG, positions, count, C, inner, tiles, outer_stride, stride, inner_stride, ignore, keep, share,
    SMOOTH: tl.constexpr, BATCHED: tl.constexpr, DOUBLE: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """Rows that fit."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    pid = tl.program_id(0).to(tl.int64)
    p, outer, side, there = rows_of(positions, inner, tiles, pid, ROWS, LAST)
    k = tl.arange(0, BLOCK)
    at = (outer * outer_stride + side * inner_stride)[:, None] + (k.to(tl.int64) * stride)[None, :]
    mask = there[:, None] & (k < C)[None, :]
    x = tl.load(X + at, mask=mask, other=float("-inf")).to(ACC)
    shifted = x - tl.max(x, 1)[:, None]
    lse = tl.log(tl.sum(exp(shifted), 1))
    t, counts, known = targets_at(T, p, there, ignore, C)
    picked = tl.sum(tl.where(k[None, :] == t[:, None], shifted, 0.0), 1) - lse
    smooth = picked
    if SMOOTH:
        z = tl.where(mask, shifted - lse[:, None], 0.0)
        smooth = tl.sum(z * _class_weights(W, p, k, mask, count, C, BATCHED).to(ACC) if W is not None else z, 1)
    _store_losses(
        picked, smooth, W, OUT, WRONG, pid, p, there, t, counts, known, count, C, keep, share, SMOOTH, BATCHED
    )  # fmt: skip


@triton.jit(do_not_specialize=["ignore", "keep", "share"])
def cross_entropy_forward_long(
    X, T, W, OUT, WRONG, positions, count, C, inner, tiles, outer_stride, stride, inner_stride, ignore, keep, share,
    SMOOTH: tl.constexpr, BATCHED: tl.constexpr, DOUBLE: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """Rows that do not fit, read once."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    pid = tl.program_id(0).to(tl.int64)
    p, outer, side, there = rows_of(positions, inner, tiles, pid, ROWS, LAST)
    start = outer * outer_stride + side * inner_stride
    top = tl.full((ROWS,), float("-inf"), ACC)
    total = tl.zeros((ROWS,), ACC)
    # Of the classes seen so far: Σ w (x - top), and Σ w.
    moment = tl.zeros((ROWS,), ACC)
    mass = tl.zeros((ROWS,), ACC)
    for first in range(0, C, BLOCK):
        k = first + tl.arange(0, BLOCK)
        mask = there[:, None] & (k < C)[None, :]
        at = start[:, None] + (k.to(tl.int64) * stride)[None, :]
        x = tl.load(X + at, mask=mask, other=float("-inf")).to(ACC)
        higher, total = online(top, total, x)
        if SMOOTH:
            shifted = x - finite_top(higher)[:, None]
            w = mask.to(ACC)
            if W is not None:
                w *= _class_weights(W, p, k, mask, count, C, BATCHED).to(ACC)
            moment += tl.where(top == float("-inf"), 0.0, top - higher) * mass
            moment += tl.sum(tl.where(mask, shifted * w, 0.0), 1)
            mass += tl.sum(w, 1)
        top = higher
    lse = tl.log(total)
    t, counts, known = targets_at(T, p, there, ignore, C)
    picked = tl.load(X + start + t * stride, mask=known, other=0.0).to(ACC) - top - lse
    _store_losses(
        picked, moment - lse * mass, W, OUT, WRONG, pid, p, there, t, counts, known, count, C, keep, share,
        SMOOTH, BATCHED,
    )  # fmt: skip


@triton.jit
def _terms_of(
    G, T, W, p, there, count, C, ignore, keep, share, mass, ACC: tl.constexpr,
    SMOOTH: tl.constexpr, BATCHED: tl.constexpr, EACH: tl.constexpr,
):  # fmt: skip
    """What the gradient of rows is made of: the target, and a, s/C g and a + Σ b as kernels_cpu has them."""
    t, counts, known = targets_at(T, p, there, ignore, C)
    g = tl.load(G + (p if EACH else p // count), mask=known, other=0.0).to(ACC)
    hit = g
    if W is not None:
        hit *= _target_weights(W, p, t, known, count, C, BATCHED).to(ACC)
    every = g
    scale = hit
    if SMOOTH:
        hit *= number(keep, ACC)
        every = g * number(share, ACC)
        scale = hit + every * mass
    return t, counts, known, hit, every, scale


@triton.jit
def _gradient(e, factor, hit, every, w, t, k, counts, known, SMOOTH: tl.constexpr):
    """p (a + Σ b) - b - a onehot, with p (a + Σ b) as e times a factor per row; 0 where ignored."""
    d = e * factor[:, None]
    if SMOOTH:
        d -= every[:, None] * w
    d = tl.where(k[None, :] == t[:, None], d - hit[:, None], d)
    return tl.where(known[:, None], d, tl.where(counts[:, None], float("nan"), 0.0))


@triton.jit(do_not_specialize=["ignore", "keep", "share"])
def cross_entropy_backward(
    G, X, T, W, D, WRONG, positions, count, C, inner, tiles, outer_stride, stride, inner_stride, ignore, keep, share,
    EACH: tl.constexpr, SMOOTH: tl.constexpr, BATCHED: tl.constexpr, DOUBLE: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """The gradient of rows that fit. G has an element per position where EACH, else per batch index."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    pid = tl.program_id(0).to(tl.int64)
    p, outer, side, there = rows_of(positions, inner, tiles, pid, ROWS, LAST)
    k = tl.arange(0, BLOCK)
    at = (outer * outer_stride + side * inner_stride)[:, None] + (k.to(tl.int64) * stride)[None, :]
    mask = there[:, None] & (k < C)[None, :]
    x = tl.load(X + at, mask=mask, other=float("-inf")).to(ACC)
    e = exp(x - tl.max(x, 1)[:, None])
    total = tl.sum(e, 1)
    w = 1.0
    mass = tl.zeros((ROWS,), ACC) + C
    if SMOOTH and W is not None:
        w = _class_weights(W, p, k, mask, count, C, BATCHED).to(ACC)
        mass = tl.sum(w, 1)
    t, counts, known, hit, every, scale = _terms_of(
        G, T, W, p, there, count, C, ignore, keep, share, mass, ACC, SMOOTH, BATCHED, EACH
    )
    d = _gradient(e, divide(scale, total), hit, every, w, t, k, counts, known, SMOOTH)
    at = (outer * C * inner + side)[:, None] + (k.to(tl.int64) * inner)[None, :]
    tl.store(D + at, d.to(D.dtype.element_ty), mask=mask)
    tl.store(WRONG + pid, tl.max((counts & ~known).to(tl.int32), 0))


@triton.jit(do_not_specialize=["ignore", "keep", "share"])
def cross_entropy_backward_long(
    G, X, T, W, D, WRONG, positions, count, C, inner, tiles, outer_stride, stride, inner_stride, ignore, keep, share,
    EACH: tl.constexpr, SMOOTH: tl.constexpr, BATCHED: tl.constexpr, DOUBLE: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """The same in rows that do not fit, read twice: the second time backwards, because their end was read last."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    pid = tl.program_id(0).to(tl.int64)
    p, outer, side, there = rows_of(positions, inner, tiles, pid, ROWS, LAST)
    start = outer * outer_stride + side * inner_stride
    top = tl.full((ROWS,), float("-inf"), ACC)
    total = tl.zeros((ROWS,), ACC)
    mass = tl.zeros((ROWS,), ACC)
    pieces = tl.cdiv(C, BLOCK)
    for piece in range(0, pieces):
        k = piece * BLOCK + tl.arange(0, BLOCK)
        mask = there[:, None] & (k < C)[None, :]
        at = start[:, None] + (k.to(tl.int64) * stride)[None, :]
        x = tl.load(X + at, mask=mask, other=float("-inf")).to(ACC)
        top, total = online(top, total, x)
        if SMOOTH and W is not None:
            mass += tl.sum(_class_weights(W, p, k, mask, count, C, BATCHED).to(ACC), 1)
    if W is None:
        mass += C
    t, counts, known, hit, every, scale = _terms_of(
        G, T, W, p, there, count, C, ignore, keep, share, mass, ACC, SMOOTH, BATCHED, EACH
    )
    factor = divide(scale, total)
    store = (outer * C * inner + side)[:, None]
    for piece in range(0, pieces):
        k = (pieces - 1 - piece) * BLOCK + tl.arange(0, BLOCK)
        mask = there[:, None] & (k < C)[None, :]
        at = start[:, None] + (k.to(tl.int64) * stride)[None, :]
        e = exp(tl.load(X + at, mask=mask, other=float("-inf")).to(ACC) - top[:, None])
        w = 1.0
        if SMOOTH and W is not None:
            w = _class_weights(W, p, k, mask, count, C, BATCHED).to(ACC)
        d = _gradient(e, factor, hit, every, w, t, k, counts, known, SMOOTH)
        tl.store(D + store + (k.to(tl.int64) * inner)[None, :], d.to(D.dtype.element_ty), mask=mask)
    tl.store(WRONG + pid, tl.max((counts & ~known).to(tl.int32), 0))
