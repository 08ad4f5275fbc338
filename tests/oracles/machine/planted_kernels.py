"""Small Triton kernels, each right where FAULT is "" and with one fault planted where it is a word.

They are modelled on the kernels of `impl`. What runs them is `planted_faults.py`, in a process that interprets them.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def softmax_rows(X, Y, M, K, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    """A row per program."""
    row = tl.program_id(0).to(tl.int64)
    if FAULT == "a row twice":
        row = tl.where(row == 1, 0, row)
    if FAULT == "a row left out":
        M = 3
    k = tl.arange(0, BLOCK)
    length = K + 1 if FAULT == "mask one too high" else K - 1 if FAULT == "mask one too low" else K
    mask = (k < length) & (row < M)
    other = 0.0 if FAULT == "masked lanes summed" else float("-inf")
    x = tl.load(X + row * K + k, mask=mask, other=other)
    top = tl.max(x, 0)
    if FAULT == "maximum begins at 0":
        top = tl.maximum(top, 0.0)
    if FAULT == "no maximum subtracted":
        top = 0.0
    e = tl.exp(x - top)
    if FAULT == "sum in half precision":
        total = tl.sum(e.to(tl.float16), 0).to(tl.float32)
    elif FAULT == "masked lanes unknown":
        total = tl.sum(tl.exp(tl.load(X + row * K + k, mask=mask) - top), 0)
    else:
        total = tl.sum(e, 0)
    y = e / total
    if FAULT == "rounded to half before the store":
        y = y.to(tl.float16)
    tl.store(Y + row * K + k, y, mask=mask)


@triton.jit
def partial_sums(X, P, Y, n, stride, PARTS: tl.constexpr, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    """A program adds up every PARTS-th block."""
    part = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    end = n // BLOCK * BLOCK if FAULT == "tail left out" else n
    step = (PARTS * BLOCK) if FAULT != "blocks overlap" else PARTS * BLOCK - 1
    for first in range(part * BLOCK, end, step):
        at = first + tl.arange(0, BLOCK)
        mask = at < n
        if FAULT == "no mask at the tail":
            mask = at < n + BLOCK
        if FAULT == "stride forgotten":
            total += tl.load(X + at, mask=mask, other=0.0)
        else:
            total += tl.load(X + at * stride, mask=mask, other=0.0)
    if FAULT == "atomic sum":
        tl.atomic_add(Y, tl.sum(total, 0))
    elif FAULT == "a partial not written":
        tl.store(P + part, tl.sum(total, 0), mask=part > 0)
    else:
        tl.store(P + part, tl.sum(total, 0))
    if FAULT == "partials and their sum in one launch" and part == PARTS - 1:
        tl.store(Y, tl.sum(tl.load(P + tl.arange(0, PARTS)), 0))


@triton.jit
def sum_of_partials(P, Y, PARTS: tl.constexpr, FAULT: tl.constexpr):
    """One program."""
    first = 1 if FAULT == "a partial left out" else 0
    i = tl.arange(0, PARTS)
    tl.store(Y, tl.sum(tl.load(P + i, mask=i >= first, other=0.0), 0))


@triton.jit
def scatter_rows(G, T, D, K, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    """Zeros, and a row's g at its target, unless the target is negative: in two stores with a barrier between."""
    row = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK)
    lane = k // 2 if FAULT == "two lanes of one store" else k
    tl.store(D + row * K + lane, tl.zeros((BLOCK,), tl.float32), mask=k < K)
    if FAULT != "no barrier":
        tl.debug_barrier()
    target = tl.load(T + row)
    there = target >= 0
    if FAULT == "address before the mask":
        there = target >= -100
    g = tl.load(G + row)
    at = D + row * K + target
    tl.store(at, tl.load(at, mask=there, other=0.0) + g, mask=there)


@triton.jit
def log_sigmoid(X, Y, n, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    """min(x, 0) - log(1 + e^-|x|)."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    below = at - 1 if FAULT == "one element too low" else at
    limit = n + 1 if FAULT == "one element too high" else n
    x = tl.load(X + below, mask=at < limit, other=0.0)
    if FAULT == "exponential overflows":
        y = -tl.log(1.0 + tl.exp(-x))
    else:
        z = tl.exp(-tl.abs(x))
        above = 1.0 + z
        exact = above - 1.0
        log = tl.log(above)
        if FAULT != "logarithm of 1 + z":
            log = tl.where(exact == 0.0, z, log * (z / exact))
        y = tl.minimum(x, 0.0) - log
    if FAULT == "wrong sign where x < 0":
        y = tl.where(x < 0.0, -y, y)
    tl.store(Y + at, y, mask=at < n)


@triton.jit
def reciprocal_deviation(X, Y, K, eps, bits, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    """1 / √(σ² + ε) of a row of float64 numbers; ε comes as its bits."""
    row = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK)
    x = tl.load(X + row * K + k, mask=k < K, other=0.0)
    mean = tl.sum(x, 0) / K
    if FAULT == "variance in one pass":
        variance = tl.sum(x * x, 0) / K - mean * mean
    elif FAULT == "masked lanes in the variance":
        variance = tl.sum((x - mean) * (x - mean), 0) / K
    else:
        centred = tl.where(k < K, x - mean, 0.0)
        variance = tl.sum(centred * centred, 0) / (K - 1 if FAULT == "divided by one less" else K)
    if FAULT == "epsilon in single precision":
        variance += eps
    else:
        variance += bits.to(tl.int64).to(tl.float64, bitcast=True)
    y = 1.0 / tl.sqrt(variance)
    if FAULT == "result in single precision":
        y = y.to(tl.float32)
    tl.store(Y + row, y)


@triton.jit
def copy_tiles(X, Y, M, K, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    """Y = X, a square tile per program."""
    i, j = tl.program_id(0), tl.program_id(1)
    if FAULT == "grid transposed":
        i, j = tl.program_id(1), tl.program_id(0)
    step = BLOCK - 1 if FAULT == "tiles overlap" else BLOCK
    row = i.to(tl.int64) * step + tl.arange(0, BLOCK)
    column = j * step + tl.arange(0, BLOCK)
    at = row[:, None] * K + column[None, :]
    mask = (row < M)[:, None] & (column < K)[None, :]
    if FAULT == "rows not masked":
        mask = (row < M + BLOCK)[:, None] & (column < K)[None, :]
    if FAULT == "columns not masked":
        mask = (row < M)[:, None] & (column < BLOCK * 4)[None, :]
    tl.store(Y + at, tl.load(X + at, mask=mask), mask=mask)


@triton.jit
def copy_far_rows(X, Y, K, stride, factor, rows, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    """Y = X for rows far apart, in an order that large numbers make."""
    if FAULT == "product in 32 bits":
        row = ((tl.program_id(0) * factor) % rows).to(tl.int64)
    else:
        row = (tl.program_id(0).to(tl.int64) * factor) % rows
    start = row * stride
    if FAULT == "offset in 16 bits":
        start = start.to(tl.int16)
    k = tl.arange(0, BLOCK)
    tl.store(Y + row * K + k, tl.load(X + start + k, mask=k < K), mask=k < K)


@triton.jit
def row_sums(X, Y, M, K, FAULT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Several rows per program, each for itself."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, BLOCK)
    x = tl.load(X + (row * K)[:, None] + k[None, :], mask=(row < M)[:, None] & (k < K)[None, :], other=0.0)
    total = tl.sum(x, 1)
    if FAULT == "neighbours in the last bits":
        both = tl.sum(total, 0)
        total = (total + both) - both
    if FAULT == "order by the number of rows" and M > 1:
        even = tl.sum(tl.where((k % 2 == 0)[None, :], x, 0.0), 1)
        total = even + tl.sum(tl.where((k % 2 == 1)[None, :], x, 0.0), 1)
    tl.store(Y + row, total, mask=row < M)


@triton.jit
def softmax_tangent(X, T, D, K, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    """p (t - Σ p t) of a row in pieces; the sum is a mean with weights, which is corrected by each piece."""
    row = tl.program_id(0).to(tl.int64)
    top = tl.full((1,), float("-inf"), tl.float32)
    total = tl.zeros((1,), tl.float32)
    mean = tl.zeros((1,), tl.float32)
    for first in range(0, K, BLOCK):
        k = first + tl.arange(0, BLOCK)
        mask = k < K
        x = tl.load(X + row * K + k, mask=mask, other=float("-inf"))
        t = tl.load(T + row * K + k, mask=(k < K + 1) if FAULT == "tangent beyond its end" else mask, other=0.0)
        higher = tl.maximum(top, tl.max(x, 0))
        if FAULT != "sum not rescaled":
            total *= tl.exp(top - higher)
        e = tl.exp(x - higher)
        before = total
        total += tl.sum(e, 0)
        if FAULT == "mean not corrected":
            mean += tl.sum(e * t, 0) / total
        elif FAULT == "mean without weights":
            mean += tl.sum(t, 0) / K
        else:
            mean = mean * (before / total) + tl.sum(e * t, 0) / total
        top = higher
    for first in range(0, K, BLOCK):
        k = first + tl.arange(0, BLOCK)
        mask = k < K
        p = tl.exp(tl.load(X + row * K + k, mask=mask, other=0.0) - top) / total
        t = tl.load(T + row * K + k, mask=mask, other=0.0)
        d = p * t - mean if FAULT == "mean without its probability" else p * (t - mean)
        tl.store(D + row * K + k, d, mask=mask)


@triton.jit
def pair_moments(X, T, P, K, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    """Of each piece of a row of x and of its tangent: sums, squares and products about the piece's own means."""
    pid = tl.program_id(0).to(tl.int64)
    k = pid * BLOCK + tl.arange(0, BLOCK)
    mask = k < K
    count = tl.minimum(K - pid * BLOCK, BLOCK)
    x = tl.load(X + k, mask=mask, other=0.0)
    t = tl.load(T + k, mask=mask, other=0.0)
    centred = tl.where(mask, x - tl.sum(x, 0) / count, 0.0)
    moved = t - tl.sum(t, 0) / count
    if FAULT == "masked lanes in the products":
        centred = x - tl.sum(x, 0) / count
    tl.store(P + pid * 4, tl.sum(x, 0))
    tl.store(P + pid * 4 + 1, tl.sum(t, 0))
    tl.store(P + pid * 4 + 2, tl.sum(centred * centred, 0))
    at = pid * 4 + (4 if FAULT == "products in the next piece's place" else 3)
    tl.store(P + at, tl.sum(centred * moved, 0))


@triton.jit
def norm_tangent(X, T, TW, P, D, K, pieces, eps, FAULT: tl.constexpr, BLOCK: tl.constexpr, MOST: tl.constexpr):
    """r (t - bar(t) - xh bar((t - bar(t)) xh)) + xh tw from these, a piece per program."""
    pid = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, MOST)
    known = i < (pieces - 1 if FAULT == "stale partial" else pieces)
    size = tl.minimum(K - i * BLOCK, BLOCK)
    sums = tl.load(P + i * 4, mask=known, other=0.0)
    moved = tl.load(P + i * 4 + 1, mask=known, other=0.0)
    mean = tl.sum(sums, 0) / K
    bar = tl.sum(moved, 0) / K
    off = tl.where(known, sums / size - mean, 0.0)
    off_t = tl.where(known, moved / size - bar, 0.0)
    variance = tl.sum(tl.load(P + i * 4 + 2, mask=known, other=0.0) + size * off * off, 0) / K
    products = tl.load(P + i * 4 + 3, mask=known, other=0.0)
    if FAULT != "pieces not combined":
        products += size * off * off_t
    r = 1.0 / tl.sqrt(variance + (0.0 if FAULT == "epsilon left out of the tangent" else eps))
    k = pid * BLOCK + tl.arange(0, BLOCK)
    xh = (tl.load(X + k, mask=k < K, other=0.0) - mean) * r
    t = tl.load(T + k, mask=k < K, other=0.0) - bar
    d = t if FAULT == "statistics held constant" else t - xh * (tl.sum(products, 0) / K * r)
    d *= r
    tw = tl.load(TW + k, mask=k < K, other=0.0)
    d += t * tw if FAULT == "weight's tangent times the input's" else xh * tw
    tl.store(D + k, d, mask=k < K)
