"""Triton kernels of the negative log likelihood: one gathers and sums, one adds what is left, one fills and scatters.

Scores are (outer, C, inner) with any strides. The positions of a target are numbered through, position p = (o, s) being
o * inner + s; the first `batch` of them, `count` each, are losses of their own. What is hard here is that a target may
be anything: nothing is followed before it is known to be a class, what is no class and not ignored is NaN, and every
program says in WRONG whether it has seen one.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...gpu.arithmetic import divide


@triton.jit
def targets_at(T, position, there, ignore, C):
    """The targets of some positions: their classes, which count for something, and which of those are classes."""
    t = tl.load(T + position, mask=there, other=0).to(tl.int64)
    counts = there & (t != ignore)
    return t, counts, counts & (t >= 0) & (t < C)


@triton.jit
def rows_of(positions, inner, tiles, pid, ROWS: tl.constexpr, LAST: tl.constexpr):
    """The positions that a program takes, the two parts of their numbers, and which of them there are."""
    # One return: the compiler compares the types of all of them, even of those that a constant excludes.
    if LAST:
        p = pid * ROWS + tl.arange(0, ROWS)
        outer, side, there = p // inner, p % inner, p < positions
    else:
        side = (pid % tiles) * ROWS + tl.arange(0, ROWS)
        outer, there = pid // tiles + tl.zeros_like(side), side < inner
        p = outer * inner + side
    return p, outer, side, there


@triton.jit
def _store_sums(losses, weights, OUT, TOTAL, at, there, MEAN: tl.constexpr):
    """The loss of some batch indices, and their total weight."""
    tl.store(TOTAL + at, weights, mask=there)
    if OUT is not None:
        out = divide(losses, weights) if MEAN else losses
        tl.store(OUT + at, out.to(OUT.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["ignore"])
def nll_loss_forward(
    T, X, W, OUT, TOTAL, PARTIAL, WRONG, batch, count, parts, steps, C, inner, outer_stride, stride, inner_stride,
    ignore,
    GATHER: tl.constexpr, BATCHED: tl.constexpr, EACH: tl.constexpr, MEAN: tl.constexpr, DOUBLE: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """-w_t x_t of every position, or the sums of these and of w_t over one of the `parts` of a batch index.

    Without GATHER, X is the loss of every position. Without X, only the weights are summed. Where there is one part the
    results are stored, else the sums.
    """
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    pid = tl.program_id(0).to(tl.int64)
    part = pid % parts
    b = (pid // parts) * ROWS + tl.arange(0, ROWS)
    losses = tl.zeros((ROWS, BLOCK), ACC)
    weights = tl.zeros((ROWS, BLOCK), ACC)
    wrong = tl.zeros((ROWS, BLOCK), tl.int32)
    for step in range(0, steps):
        i = (part * steps + step) * BLOCK + tl.arange(0, BLOCK)
        p = (b * count)[:, None] + i[None, :]
        t, counts, known = targets_at(T, p, (b < batch)[:, None] & (i < count)[None, :], ignore, C)
        wrong += (counts & ~known).to(tl.int32)
        w = known.to(ACC)
        if W is not None:
            at = (b * C)[:, None] + t if BATCHED else t
            w = tl.load(W + at, mask=known, other=0.0).to(ACC)
        if X is not None:
            if GATHER:
                at = (p // inner) * outer_stride + t * stride + (p % inner) * inner_stride
                loss = -tl.load(X + at, mask=known, other=0.0).to(ACC)
                loss = loss * w if W is not None else loss
                loss = tl.where(known, loss, tl.where(counts, float("nan"), 0.0))
            else:
                loss = tl.load(X + p, mask=counts, other=0.0).to(ACC)
            losses += loss
            if EACH:
                tl.store(OUT + p, loss.to(OUT.dtype.element_ty), mask=(b < batch)[:, None] & (i < count)[None, :])
        weights += w
    if WRONG is not None:
        tl.store(WRONG + pid, tl.max(tl.max(wrong, 1), 0))
    if not EACH:
        if PARTIAL is not None:
            tl.store(PARTIAL + b * parts + part, tl.sum(losses, 1), mask=b < batch)
            tl.store(PARTIAL + (batch + b) * parts + part, tl.sum(weights, 1), mask=b < batch)
        else:
            _store_sums(tl.sum(losses, 1), tl.sum(weights, 1), OUT, TOTAL, b, b < batch, MEAN)


@triton.jit
def nll_loss_fold(
    PARTIAL, OUT, TOTAL, batch, parts,
    COUNT: tl.constexpr, MEAN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The results of one batch index from its partial sums; COUNT where the weights are ones."""
    pid = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    losses = tl.sum(tl.load(PARTIAL + pid * parts + i, mask=i < parts, other=0.0), 0)
    each = tl.load(PARTIAL + (batch + pid) * parts + i, mask=i < parts, other=0.0)
    # A partial count is exact. Their sum may be more than float32 holds, and is rounded once.
    weights = tl.sum(each.to(tl.int64), 0).to(losses.dtype) if COUNT else tl.sum(each, 0)
    _store_sums(losses, weights, OUT, TOTAL, pid, batch > pid, MEAN)


@triton.jit(do_not_specialize=["ignore"])
def nll_loss_backward(
    T, G, W, D, WRONG, positions, count, C, inner, tiles, slices, ignore,
    BATCHED: tl.constexpr, EACH: tl.constexpr, DOUBLE: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """-g w_t at the class t of every target and 0 at the other classes, every element of D stored once.

    A program takes one of the `slices` of the classes. G has an element per position where EACH, else per batch index.
    """
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    pid = tl.program_id(0).to(tl.int64)
    tile = pid // slices
    p, outer, side, there = rows_of(positions, inner, tiles, tile, ROWS, LAST)
    t, counts, known = targets_at(T, p, there, ignore, C)
    value = -tl.load(G + (p if EACH else p // count), mask=known, other=0.0).to(ACC)
    if W is not None:
        at = (p // count) * C + t if BATCHED else t
        value *= tl.load(W + at, mask=known, other=0.0).to(ACC)
    value = tl.where(known, value, 0.0)
    k = (pid % slices) * BLOCK + tl.arange(0, BLOCK)
    d = tl.where(k[None, :] == t[:, None], value[:, None], 0.0)
    wrong = counts & ~known
    d = tl.where(wrong[:, None], float("nan"), d)
    at = (outer * C * inner + side)[:, None] + (k * inner)[None, :]
    tl.store(D + at, d.to(D.dtype.element_ty), mask=there[:, None] & (k < C)[None, :])
    tl.store(WRONG + tile, tl.max(wrong.to(tl.int32), 0), mask=pid % slices == 0)
