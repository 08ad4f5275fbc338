"""What kernels of linear attention mean: a state that every step of a sequence changes, in plain PyTorch.

Shapes: queries, keys and values (batch, steps, heads, width); gates are logarithms. All is computed in float32, but for
what kernels store, or hand to a product of matrices, in the dtype of the operands.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def gated(q: Tensor, k: Tensor, v: Tensor, g: Tensor, scale: float, u: Tensor | None = None) -> Tensor:
    """S = diag(exp(g)) S + k v, and q S of each step; with `u` a step reads diag(u) k v and what was before it."""
    dtype, (q, k, v, g) = q.dtype, (t.float() for t in (q, k, v, g.expand_as(k)))
    state, outputs = q.new_zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3]), []
    for t in range(q.shape[1]):
        new = k[:, t, :, :, None] * v[:, t, :, None, :]
        current = None if u is None else state + u.float()[None, :, :, None] * new
        state = state * g[:, t, :, :, None].exp() + new
        outputs.append((q[:, t, :, None, :] @ (state if current is None else current))[:, :, 0] * scale)
    return torch.stack(outputs, 1).to(dtype)


def delta(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, scale: float, g: Tensor | None = None) -> Tensor:
    """S = exp(g) S, then S + k beta (v - k S), and q S of each step."""
    dtype, (q, k, v, beta) = q.dtype, (t.float() for t in (q, k, v, beta))
    state, outputs = q.new_zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3]), []
    for t in range(q.shape[1]):
        state = state if g is None else state * g.float()[:, t, :, :, None].exp()
        recall = (k[:, t, :, None, :] @ state)[:, :, 0]
        new = (beta[:, t, :, None] * (v[:, t] - recall)).to(dtype).float()
        state = state + k[:, t, :, :, None] * new[:, :, None, :]
        outputs.append((q[:, t, :, None, :] @ state)[:, :, 0] * scale)
    return torch.stack(outputs, 1).to(dtype)


def running(x: Tensor, g: Tensor) -> Tensor:
    """h = exp(g) h + x of each step; shapes (batch, steps, width)."""
    state, outputs = torch.zeros_like(x[:, 0], dtype=torch.float32), []
    for t in range(x.shape[1]):
        state = state * g[:, t].float().exp() + x[:, t].float()
        outputs.append(state)
    return torch.stack(outputs, 1).to(x.dtype)


def attention(q: Tensor, k: Tensor, v: Tensor, g: Tensor | None = None) -> Tensor:
    """Causal attention, whose scores have the sums of the gates between key and query added."""
    dtype, (q, k, v) = q.dtype, (t.float().transpose(1, 2) for t in (q, k, v))
    scores = (q @ k.mT).to(dtype).float() / math.sqrt(q.shape[-1])
    if g is not None:
        sums = g.float().cumsum(1).transpose(1, 2)
        scores = scores + sums[..., :, None] - sums[..., None, :]
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    weights = scores.masked_fill(later, -math.inf).softmax(-1).to(dtype).float()
    return (weights @ v).transpose(1, 2).to(dtype)


def retention_gates(heads: int) -> Tensor:
    """log(1 - 2^(-5 - h)) of each head, (heads, 1)."""
    return torch.log(1 - torch.exp2(-5.0 - torch.arange(heads)))[:, None]
