"""Attention as one operation, forward and backward, on CPUs and on devices.

Kernels of half types multiply in float32 and round the shares of the keys, and in the backward the cotangents of the
scores, to their dtype, because these are factors of further products. Where several heads of queries share one of keys,
a CPU adds the cotangents of each to what is stored in the dtype of the keys; devices store those of each, and add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ....reference.missing import NoReadingError
from .half_types import widen


def _store(x: Tensor, dtype: torch.dtype) -> Tensor:
    """A factor as the tensor cores, or those of a CPU, are given it."""
    return x.to(dtype).to(x.dtype)


def _share(x: Tensor, heads: int) -> Tensor:
    """Heads of keys or values for as many heads of queries."""
    x = widen(x)
    return x if x.shape[-3] == heads else x.repeat_interleave(heads // x.shape[-3], -3)


def _add_shared(x: Tensor, like: Tensor) -> Tensor:
    """The cotangents of heads of keys, of those of the heads of queries that share them."""
    if x.shape[-3] == like.shape[-3]:
        return x.to(like.dtype)
    parts: Tensor = x.unflatten(-3, (like.shape[-3], -1))
    if like.device.type != "cpu":
        return parts.to(like.dtype).sum(-3)
    total = parts.select(-3, 0).to(like.dtype)
    for i in range(1, parts.shape[-3]):
        total = (total.to(x.dtype) + parts.select(-3, i)).to(like.dtype)
    return total


def _scores(q: Tensor, k: Tensor, mask: Tensor | None, causal: bool, factor: float, dropout: float) -> Tensor:
    """The scaled products of queries and keys, −∞ where a query does not see a key."""
    if dropout > 0:
        raise NoReadingError("dropout within attention: what was drawn is not known")
    scores = q @ k.transpose(-1, -2) * factor
    if causal:
        visible = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~visible, -math.inf)
    if mask is None:
        return scores
    return scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + widen(mask)


def attend(
    q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, is_causal: bool = False,
    attn_mask: Tensor | None = None, scale: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The weighted values, and the logarithms of the sums of the weights; both 0 for a query that sees no key."""
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    scores = _scores(widen(q), _share(k, q.shape[-3]), attn_mask, is_causal, factor, dropout_p)
    shares = torch.ops.aten._safe_softmax(scores, -1)
    sums = torch.logsumexp(scores, -1)
    if attn_mask is not None:
        sums = torch.where((scores == -math.inf).all(-1), 0.0, sums)
    return (_store(shares, q.dtype) @ _share(v, q.shape[-3])).to(q.dtype), sums


def attend_backward(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, dropout_p: float, is_causal: bool,
    attn_mask: Tensor | None = None, scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The cotangents of queries, keys, values and of the mask, from what the forward has saved."""
    factor, heads = q.shape[-1] ** -0.5 if scale is None else scale, q.shape[-3]
    wide, own_q, own_k, own_v = widen(g), widen(q), _share(k, heads), _share(v, heads)
    scores = _scores(own_q, own_k, attn_mask, is_causal, factor, dropout_p)
    shares = torch.exp(scores - sums[..., : q.shape[-2]].unsqueeze(-1))
    along = (wide * widen(out)).sum(-1, keepdim=True)
    of_scores = shares * (wide @ own_v.transpose(-1, -2) - along)
    stored = _store(of_scores, q.dtype)
    of_q, of_k = stored @ own_k * factor, stored.transpose(-1, -2) @ own_q * factor
    of_v = _store(shares, q.dtype).transpose(-1, -2) @ wide
    return of_q.to(q.dtype), _add_shared(of_k, k), _add_shared(of_v, v), of_scores


def _flash_backward(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, ends_q: Any, ends_k: Any, max_q: int,
    max_k: int, dropout_p: float, is_causal: bool, *args: Any, scale: float | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    return attend_backward(g, q, k, v, out, sums, dropout_p, is_causal, None, scale)[:3]


def _with_bias(
    q: Tensor, k: Tensor, v: Tensor, attn_bias: Tensor | None, compute_log_sumexp: bool, dropout_p: float = 0.0,
    is_causal: bool = False, *args: Any, scale: float | None = None,
) -> Tensor:  # fmt: skip
    """The weighted values alone: how the sums of the weights are laid out in memory depends on the kernel."""
    return attend(q, k, v, dropout_p, is_causal, attn_bias, scale)[0]


def _efficient_backward(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, attn_bias: Tensor | None, out: Tensor, sums: Tensor, seed: Any,
    offset: Any, dropout_p: float, grad_input_mask: list[bool], is_causal: bool = False, *,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    *gradients, of_scores = attend_backward(g, q, k, v, out, sums, dropout_p, is_causal, attn_bias, scale)
    of_bias = None if attn_bias is None else of_scores.sum_to_size(attn_bias.shape).to(attn_bias.dtype)
    pairs = zip((*gradients, of_bias), grad_input_mask, strict=True)
    return tuple(gradient if is_asked else None for gradient, is_asked in pairs)


def _cudnn_backward(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, seed: Any, offset: Any,
    attn_bias: Tensor | None, ends_q: Any, ends_k: Any, max_q: int, max_k: int, dropout_p: float, is_causal: bool, *,
    scale: float | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    bias = attn_bias if attn_bias is not None and attn_bias.numel() else None
    return attend_backward(g, q, k, v, out, sums.reshape(q.shape[:-1]), dropout_p, is_causal, bias, scale)[:3]


STAND_INS: dict[str, Callable[..., Any]] = {
    "_scaled_dot_product_flash_attention_for_cpu": attend,
    "_scaled_dot_product_flash_attention_for_cpu_backward": lambda *args, **form: attend_backward(*args, **form)[:3],
    "_scaled_dot_product_flash_attention": lambda q, k, v, dropout_p=0.0, is_causal=False, *_, scale=None: attend(
        q, k, v, dropout_p, is_causal, None, scale
    ),
    "_scaled_dot_product_flash_attention_backward": _flash_backward,
    "_scaled_dot_product_efficient_attention": _with_bias,
    "_scaled_dot_product_efficient_attention_backward": _efficient_backward,
    "_scaled_dot_product_cudnn_attention": _with_bias,
    "_scaled_dot_product_cudnn_attention_backward": _cudnn_backward,
}
