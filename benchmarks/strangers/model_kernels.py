"""More Triton kernels in the manner of models, each right and with faults: gradients, sums and choices of rows."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


def inputs(family="rows"):
    """The arguments of a family."""
    shapes = {"rows": [(6, 75)], "few": [(6, 5)], "pair": [(3, 70)] * 2, "scaled": [(6, 75), (75,)],
              "back": [(2, 40, 32)] * 4}  # fmt: skip
    dtype = torch.float16 if family == "back" else torch.float32
    return tuple(torch.randn(*shape).to(dtype) for shape in shapes[family])


@triton.jit
def _attention_backward(
    Q, K, V, G, DQ, DK, DV, n, scale, FAULT: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr
):
    """One program has a whole head: the probabilities again, and the three gradients."""
    i, w = tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    at = tl.program_id(0) * n * WIDTH + i[:, None] * WIDTH + w[None, :]
    mask, row = (i < n)[:, None], (i < n)[None, :]
    q, k = tl.load(Q + at, mask=mask, other=0.0), tl.load(K + at, mask=mask, other=0.0)
    v, g = tl.load(V + at, mask=mask, other=0.0), tl.load(G + at, mask=mask, other=0.0)
    scores = tl.where(row, tl.dot(q, tl.trans(k)) * scale, -float("inf"))
    p = tl.exp(scores - tl.max(scores, 1)[:, None])
    p = p / tl.sum(p, 1)[:, None]
    d = tl.dot(g, tl.trans(v))
    d = p * d if FAULT == "mean" else p * (d - tl.sum(p * d, 1)[:, None])
    d = (d * (1.0 if FAULT == "scale" else scale)).to(q.dtype)
    tl.store(DQ + at, tl.dot(d, k).to(q.dtype), mask=mask)
    tl.store(DK + at, tl.dot(d if FAULT == "transpose" else tl.trans(d), q).to(q.dtype), mask=mask)
    tl.store(DV + at, tl.dot(tl.trans(p).to(q.dtype), g).to(q.dtype), mask=mask)


@triton.jit
def _top_k(X, Y, n, count, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    row, k = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(X + row * n + k, mask=k < n, other=0.0 if FAULT == "padding" else -float("inf"))
    for place in range(count):
        rank = tl.where(x == x, x, float("inf"))  # NaN comes first, as in torch
        top = tl.max(rank, 0)
        first = tl.min(tl.where(rank == top, k, BLOCK), 0)
        tl.store(Y + row * count + place, tl.sum(tl.where(k == first, x, 0.0), 0))
        x = tl.where(rank == top if FAULT == "ties" else k == first, -float("inf"), x)


@triton.jit
def _layer_norm(X, W, Y, n, eps, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    row, k = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(X + row * n + k, mask=k < n, other=0.0)
    mean = tl.sum(x, 0) / n
    away = x - mean if FAULT == "mask" else tl.where(k < n, x - mean, 0.0)
    var = tl.sum(x * x, 0) / n - mean * mean if FAULT == "squares" else tl.sum(away * away, 0) / n
    tl.store(Y + row * n + k, away * tl.rsqrt(var + eps) * tl.load(W + k, mask=k < n), mask=k < n)


@triton.jit
def _swiglu(X, Y, Z, n, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(X + k, mask=k < n), tl.load(Y + k, mask=k < n)
    tl.store(Z + k, x * tl.sigmoid(y if FAULT else x) * y, mask=k < n)


@triton.jit
def _log_sum_exp(X, Y, n, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    top, total = -float("inf"), 0.0
    for first in range(0, n, BLOCK):
        k = first + tl.arange(0, BLOCK)
        x = tl.load(X + row * n + k, mask=k < n, other=-float("inf"))
        above = tl.maximum(top, tl.max(x, 0))
        total = total * (1.0 if FAULT else tl.exp(top - above)) + tl.sum(tl.exp(x - above), 0)
        top = above
    tl.store(Y + row, top + tl.log(total))


@triton.jit
def _transpose(X, Y, rows, columns, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (i[:, None] < rows) & (j[None, :] < columns)
    x = tl.load(X + i[:, None] * columns + j[None, :], mask=inside)
    tl.store(Y + j[None, :] * (columns if FAULT else rows) + i[:, None], x, mask=inside)


@triton.jit
def _difference(X, Y, n, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    row, k = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(X + row * n + k, mask=k < n)
    before = tl.load(X + row * n + k - 1, mask=(k < n) & (k > (-1 if FAULT else 0)), other=0.0)
    tl.store(Y + row * n + k, x - before, mask=k < n)


@triton.jit
def _variance(X, Y, n, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    row, k = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(X + row * n + k, mask=k < n, other=0.0)
    away = tl.where(k < n, x - tl.sum(x, 0) / n, 0.0)
    tl.store(Y + row, tl.sum(away * away, 0) / (n if FAULT else n - 1))


def _of_weights(fault):
    def candidate(x, w):
        x, n = x.contiguous(), x.shape[1]
        assert w.shape == (n,)
        y, block = torch.empty_like(x), triton.next_power_of_2(n)
        _layer_norm[(x.shape[0],)](x, w.contiguous(), y, n, 1e-6, FAULT=fault, BLOCK=block)
        return y

    return candidate


def _of_pairs(fault):
    def candidate(x, y):
        assert x.shape == y.shape
        x = x.contiguous()
        z = torch.empty_like(x)
        _swiglu[(triton.cdiv(x.numel(), 64),)](x, y.contiguous(), z, x.numel(), FAULT=fault, BLOCK=64)
        return z

    return candidate


def _of_differences(fault):
    def candidate(x):
        x = x.contiguous()
        y, block = torch.empty_like(x), triton.next_power_of_2(x.shape[1])
        _difference[(x.shape[0],)](x, y, x.shape[1], FAULT=fault, BLOCK=block)
        return y

    return candidate


def _of_row_results(kernel, fault, *more, width=0, block=0):
    """A kernel that gives `width` numbers of every row; 0 for one, in a vector."""

    def candidate(x):
        x = x.contiguous()
        rows, n = x.shape
        y = torch.empty((rows, width) if width else rows)
        kernel[(rows,)](x, y, n, *more, FAULT=fault, BLOCK=block or triton.next_power_of_2(n))
        return y

    return candidate


def _of_transposes(fault):
    def candidate(x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty(columns, rows)
        _transpose[(triton.cdiv(rows, 16), triton.cdiv(columns, 16))](x, y, rows, columns, FAULT=fault, BLOCK=16)
        return y

    return candidate


def _of_gradients(fault):
    def candidate(q, k, v, g):
        assert q.shape == k.shape == v.shape == g.shape
        heads, n, width = q.shape
        operands = [x.contiguous() for x in (q, k, v, g)]
        gradients = [torch.empty_like(operands[0]) for _ in range(3)]
        block = max(16, triton.next_power_of_2(n))
        _attention_backward[(heads,)](*operands, *gradients, n, width**-0.5, FAULT=fault, BLOCK=block, WIDTH=width)
        return tuple(gradients)

    return candidate


layer_norm, layer_norm_masks_nothing, layer_norm_by_squares = (_of_weights(fault) for fault in ("", "mask", "squares"))
swiglu, swiglu_of_the_other = _of_pairs(False), _of_pairs(True)
top_k, top_k_pads_by_zeros, top_k_drops_ties = (
    _of_row_results(_top_k, fault, 4, width=4) for fault in ("", "padding", "ties")
)
log_sum_exp, log_sum_exp_forgets = (_of_row_results(_log_sum_exp, fault, block=32) for fault in (False, True))
variance, variance_divides_by_n = _of_row_results(_variance, False), _of_row_results(_variance, True)
difference, difference_reads_before = _of_differences(False), _of_differences(True)
transpose, transpose_by_columns = _of_transposes(False), _of_transposes(True)
attention_backward, attention_backward_without_mean, attention_backward_unscaled, attention_backward_untransposed = (
    _of_gradients(fault) for fault in ("", "mean", "scale", "transpose")
)


def attention_backward_reference(q, k, v, g):
    p = torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1)
    d = g @ v.transpose(-1, -2)
    d = p * (d - (p * d).sum(-1, keepdim=True)) * q.shape[-1] ** -0.5
    return d @ k, d.transpose(-1, -2) @ q, p.transpose(-1, -2) @ g


def top_k_reference(x):
    return torch.topk(x, 4).values


def layer_norm_reference(x, w):
    return torch.nn.functional.layer_norm(x, x.shape[1:], w, eps=1e-6)


def swiglu_reference(x, y):
    return torch.nn.functional.silu(x) * y


def log_sum_exp_reference(x):
    return torch.logsumexp(x, -1)


def variance_reference(x):
    return x.var(-1)


def difference_reference(x):
    return torch.cat([x[:, :1], x[:, 1:] - x[:, :-1]], 1)


def transpose_reference(x):
    return x.T.contiguous()
