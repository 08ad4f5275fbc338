"""Softmax, attention and norms by other formulas than those of torch."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor
from torch.nn import functional as F

from .orders import Way, in_float64, in_turn

# -------------------------------- softmax and what is made of it


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def softmax_by_lse(x: Tensor) -> Tensor:
    return torch.exp(x - torch.logsumexp(x, -1, keepdim=True))


def softmax_in_two_passes(x: Tensor) -> Tensor:
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e * (1 / e.sum(-1, keepdim=True))


def _running(x: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The largest, and the sum of exponentials above it, kept along chunks."""
    most, total = torch.full_like(x[..., :1], -math.inf), torch.zeros_like(x[..., :1])
    for part in x.split(size, -1):
        larger = torch.maximum(most, part.amax(-1, keepdim=True))
        total = total * torch.exp(most - larger) + torch.exp(part - larger).sum(-1, keepdim=True)
        most = larger
    return most, total


def softmax_online(x: Tensor, size: int = 1) -> Tensor:
    most, total = _running(x, size)
    return torch.exp(x - most) / total


def lse_of_chunks(x: Tensor, size: int = 16) -> Tensor:
    """logsumexp of the logsumexp of chunks."""
    return torch.logsumexp(torch.stack([part.logsumexp(-1) for part in x.split(size, -1)], -1), -1)


def lse_online(x: Tensor) -> Tensor:
    most, total = _running(x, 8)
    return (most + torch.log(total))[..., 0]


def scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(scores(q, k), -1) @ v


def attention_of_splits(q: Tensor, k: Tensor, v: Tensor, size: int) -> Tensor:
    """Split-KV: chunks of keys each give a result and a logsumexp, by which the results are merged."""
    parts = []
    for keys, values in zip(k.split(size, -2), v.split(size, -2), strict=True):
        s = scores(q, keys)
        parts.append((torch.softmax(s, -1) @ values, s.logsumexp(-1, keepdim=True)))
    lse = torch.logsumexp(torch.cat([each for _, each in parts], -1), -1, keepdim=True)
    return functools.reduce(torch.add, (out * torch.exp(each - lse) for out, each in parts))


def attention_merged_in_turn(q: Tensor, k: Tensor, v: Tensor, size: int = 8) -> Tensor:
    out, lse = torch.zeros(()), torch.full((*q.shape[:-1], 1), -math.inf, dtype=q.dtype)
    for keys, values in zip(k.split(size, -2), v.split(size, -2), strict=True):
        s = scores(q, keys)
        own = s.logsumexp(-1, keepdim=True)
        both = torch.logaddexp(lse, own)
        out = out * torch.exp(lse - both) + torch.softmax(s, -1) @ values * torch.exp(own - both)
        lse = both
    return out


def attention_online(q: Tensor, k: Tensor, v: Tensor, size: int = 8) -> Tensor:
    """FlashAttention: the sum of rows of v is scaled whenever the largest score changes, and divided at last."""
    most = torch.full((*q.shape[:-1], 1), -math.inf, dtype=q.dtype)
    total, out = torch.zeros_like(most), torch.zeros_like(q @ k.transpose(-1, -2) @ v)
    for keys, values in zip(k.split(size, -2), v.split(size, -2), strict=True):
        s = scores(q, keys)
        larger = torch.maximum(most, s.amax(-1, keepdim=True))
        p, decay = torch.exp(s - larger), torch.exp(most - larger)
        total, out, most = total * decay + p.sum(-1, keepdim=True), out * decay + p @ values, larger
    return out / total


def attention_by_lse(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return softmax_by_lse(scores(q, k)) @ v


def attention_divided_last(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    s = scores(q, k)
    p = torch.exp(s - s.amax(-1, keepdim=True))
    return (p @ v) / p.sum(-1, keepdim=True)


ATTENTION: dict[str, Way] = {
    **{f"split in chunks of {n}": functools.partial(attention_of_splits, size=n) for n in (4, 8, 16, 32)},
    "merged in turn": attention_merged_in_turn,
    "online": attention_online,
    "by lse": attention_by_lse,
    "divided last": attention_divided_last,
    "in float64": in_float64(attention),
    "sdpa": F.scaled_dot_product_attention,
    "keys scaled": lambda q, k, v: torch.softmax(q @ (k / math.sqrt(q.shape[-1])).transpose(-1, -2), -1) @ v,
}


# -------------------------------- norms


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, 1e-5)


def _normed(x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return (x - mean) * torch.rsqrt(var + 1e-5) * weight + bias


def norm_in_two_passes(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    return _normed(x, mean, (x - mean).square().mean(-1, keepdim=True), weight, bias)


def norm_of_shifted(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """One pass over what is left when the first element is taken off."""
    shifted = x - x[..., :1]
    mean = shifted.mean(-1, keepdim=True)
    var = (shifted.square().mean(-1, keepdim=True) - mean.square()).clamp_min(0)
    return _normed(shifted, mean, var, weight, bias)


def norm_of_shifted_twice(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return norm_in_two_passes(x - x[..., :1], weight, bias)


def norm_by_welford(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    mean, squares = torch.zeros_like(x[..., 0]), torch.zeros_like(x[..., 0])
    for count, term in enumerate(x.unbind(-1), 1):
        off = term - mean
        mean = mean + off / count
        squares = squares + off * (term - mean)
    return _normed(x, mean[..., None], squares[..., None] / x.shape[-1], weight, bias)


def norm_of_parts(x: Tensor, weight: Tensor, bias: Tensor, size: int = 12) -> Tensor:
    """Mean and squares of parts, merged by Chan, Golub and LeVeque."""
    count, mean, squares = 0, torch.zeros(()), torch.zeros(())
    for part in x.split(size, -1):
        own, own_mean = part.shape[-1], part.mean(-1, keepdim=True)
        off = own_mean - mean
        squares = (
            squares + (part - own_mean).square().sum(-1, keepdim=True) + off.square() * (count * own / (count + own))
        )
        mean, count = mean + off * (own / (count + own)), count + own
    return _normed(x, mean, squares / count, weight, bias)


def norm_folded(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """One product and one sum for each element, as group norm does on CPUs."""
    mean = x.mean(-1, keepdim=True)
    scale = torch.rsqrt((x - mean).square().mean(-1, keepdim=True) + 1e-5) * weight
    return x * scale + (bias - mean * scale)


NORMS: dict[str, Way] = {
    "two passes": norm_in_two_passes,
    "shifted, one pass": norm_of_shifted,
    "shifted, two passes": norm_of_shifted_twice,
    "Welford": norm_by_welford,
    "merged parts": norm_of_parts,
    "folded": norm_folded,
    "in float64": in_float64(layer_norm),
}


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight


RMS: dict[str, Way] = {
    "weight first": lambda x, w: x * (w * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)),
    "divided": lambda x, w: x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w,
    "by length": lambda x, w: (
        x * w * torch.rsqrt(torch.linalg.vector_norm(x, dim=-1, keepdim=True).square() / x.shape[-1] + 1e-6)
    ),
    "in turn": lambda x, w: x * torch.rsqrt(in_turn(x.square())[..., None] / x.shape[-1] + 1e-6) * w,
    "of torch": lambda x, w: F.rms_norm(x, x.shape[-1:], w, 1e-6),
}


def group_norm(x: Tensor) -> Tensor:
    return F.group_norm(x, 4, eps=1e-5)


def group_norm_by_rows(x: Tensor) -> Tensor:
    rows = x.reshape(x.shape[0] * 4, -1)
    return F.layer_norm(rows, rows.shape[-1:], eps=1e-5).reshape(x.shape)


def group_norm_by_var_mean(x: Tensor) -> Tensor:
    rows = x.reshape(x.shape[0], 4, -1)
    var, mean = torch.var_mean(rows, -1, correction=0, keepdim=True)
    return ((rows - mean) / torch.sqrt(var + 1e-5)).reshape(x.shape)
