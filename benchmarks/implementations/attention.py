"""Attention, with masks of many kinds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch import randn as normal

from .problem import Problem, by_hand
from .ways import added, bf, shifted, split

INF = float("inf")
Scores = Callable[..., Tensor]


def product(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5


def places(s: Tensor) -> tuple[Tensor, Tensor]:
    """The places of queries and of keys; the last query is at the last key."""
    rows, columns = s.shape[-2:]
    return torch.arange(columns - rows, columns)[:, None], torch.arange(columns)[None]


def causal(s: Tensor, value: float = -INF, shift: int = 0) -> Tensor:
    i, j = places(s)
    return s.masked_fill(j > i + shift, value)


def window(s: Tensor, size: int = 5) -> Tensor:
    i, j = places(s)
    return s.masked_fill((j > i) | (j <= i - size), -INF)


# -------------------------------- right ways from scores to outputs


def by_parts(s: Tensor, v: Tensor) -> Tensor:
    p = torch.exp(s - s.detach().amax(-1, keepdim=True))
    return (p / p.sum(-1, keepdim=True)) @ v


def divided_last(s: Tensor, v: Tensor) -> Tensor:
    p = torch.exp(s - s.detach().amax(-1, keepdim=True))
    return (p @ v) / p.sum(-1, keepdim=True)


def online(s: Tensor, v: Tensor, size: int = 8, last_first: bool = False, through: Any = lambda o: o) -> Tensor:
    """Tile of keys after tile, with the largest score and the sum so far."""
    parts = list(zip(s.split(size, -1), v.split(size, -2), strict=True))
    most, total, o = (
        torch.full_like(s[..., :1], -INF),
        torch.zeros_like(s[..., :1]),
        torch.zeros_like(s[..., :1] * v[..., :1, :]),
    )
    for tile, values in reversed(parts) if last_first else parts:
        larger = torch.maximum(most, tile.detach().amax(-1, keepdim=True))
        shift = torch.where(larger == -INF, 0.0, larger)
        p, scale = torch.exp(tile - shift), torch.exp(most - shift)
        total, o, most = total * scale + p.sum(-1, keepdim=True), through(o * scale + p @ values), larger
    return o / total


def last_first(s: Tensor, v: Tensor) -> Tensor:
    return online(s, v, 16, last_first=True)


def values_split(s: Tensor, v: Tensor) -> Tensor:
    return split(torch.softmax(s, -1), v, size=8)


def two_merged(s: Tensor, v: Tensor) -> Tensor:
    """Keys in two halves, merged by their largest scores."""
    halves = list(zip(s.chunk(2, -1), v.chunk(2, -2), strict=True))
    most = s.detach().amax(-1, keepdim=True)
    p = [torch.exp(tile - most) for tile, _ in halves]
    total = added(part.sum(-1, keepdim=True) for part in p)
    return added(part @ values for part, (_, values) in zip(p, halves, strict=True)) / total


def powers_of_two(s: Tensor, v: Tensor) -> Tensor:
    p = torch.exp2((s - s.detach().amax(-1, keepdim=True)) * math.log2(math.e))
    return (p @ v) / p.sum(-1, keepdim=True)


WAYS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "exponentials over their sum": by_parts, "divided last": divided_last, "online, tiles of 8": online,
    "online, last tile first": last_first, "values split": values_split, "two halves merged": two_merged,
}  # fmt: skip

# -------------------------------- wrong ways from scores to outputs


def not_rescaled(s: Tensor, v: Tensor) -> Tensor:
    """Online, without the correction of what was summed before."""
    most, total, o = torch.full_like(s[..., :1], -INF), torch.zeros_like(s[..., :1]), 0.0
    for tile, values in zip(s.split(8, -1), v.split(8, -2), strict=True):
        most = torch.maximum(most, tile.amax(-1, keepdim=True))
        p = torch.exp(tile - torch.where(most == -INF, 0.0, most))
        total, o = total + p.sum(-1, keepdim=True), o + p @ values
    return torch.as_tensor(o / total)


def in_bfloat16(s: Tensor, v: Tensor) -> Tensor:
    return online(s, v, through=bf)


def twice(s: Tensor, v: Tensor) -> Tensor:
    """Probabilities rounded as exponentials and once more as quotients."""
    p = bf(torch.exp(s - s.amax(-1, keepdim=True)))
    return bf(p / p.sum(-1, keepdim=True)) @ v


def unshifted(s: Tensor, v: Tensor) -> Tensor:
    p = torch.exp(s)
    return (p / p.sum(-1, keepdim=True)) @ v


def last_key_lost(s: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(s[..., :-1], -1) @ v[..., :-1, :] if s.shape[-1] > 1 else v * 0.0


def sum_with_one(s: Tensor, v: Tensor) -> Tensor:
    p = torch.exp(s - s.detach().amax(-1, keepdim=True))
    return p @ v / (1e-3 + p.sum(-1, keepdim=True))


def stale(s: Tensor, v: Tensor) -> Tensor:
    y = torch.softmax(s, -1) @ v
    return torch.cat([y[..., :1, :], y[..., :-1, :]], -2) if y.shape[-2] > 1 else y * 0.9


FAULTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "not rescaled": not_rescaled, "accumulator in bfloat16": in_bfloat16, "p rounded twice": twice,
    "largest score not subtracted": unshifted, "last key lost": last_key_lost, "1e-3 in the sum": sum_with_one,
    "row before": stale,
}  # fmt: skip


def attention(
    name: str, scores: Scores, shapes: tuple[tuple[int, ...], ...], faults: tuple[str, ...], *more: Any
) -> Problem:
    """A problem softmax(scores(q, k, *more)) v, with the ways that all of them have, and some of the faults."""

    def spec(q: Tensor, k: Tensor, v: Tensor, *others: Tensor) -> Tensor:
        return torch.softmax(scores(q, k, *others), -1) @ v

    problem = Problem(name, spec, lambda: (*(normal(shape) for shape in shapes), *(draw() for draw in more)))
    for title, way in WAYS.items():
        problem.right(title, lambda q, k, v, *others, way=way: way(scores(q, k, *others), v))
    for title in faults:
        problem.wrong(title, lambda q, k, v, *others, way=FAULTS[title]: way(scores(q, k, *others), v))
    return problem


_SHAPES = ((2, 3, 17, 16), (2, 3, 17, 16), (2, 3, 17, 16))


def _softmax_of(scores: Scores) -> Callable[..., Tensor]:
    return lambda q, k, v, *more: torch.softmax(scores(q, k, *more), -1) @ v


full = attention("attention", product, _SHAPES, tuple(FAULTS))
full.right("torch's own", F.scaled_dot_product_attention)
full.right("scale on q", _softmax_of(lambda q, k: (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)))
full.right("powers of two", lambda q, k, v: powers_of_two(product(q, k), v), allows="exp2")
full.wrong("scale of d + 1", _softmax_of(lambda q, k: q @ k.transpose(-1, -2) * (q.shape[-1] + 1) ** -0.5))
full.wrong("keys in bfloat16", _softmax_of(lambda q, k: product(q, bf(k))))
full.wrong("scale twice", _softmax_of(lambda q, k: product(q, k) * q.shape[-1] ** -0.5))
full.wrong("batches swapped", lambda q, k, v: _softmax_of(product)(q, k, v).flip(0))
full.wrong("queries as keys", lambda q, k, v: _softmax_of(product)(k, q, v))


def _flash(power: float = -0.5, correction: float = 1.0, of_k: float = 1.0) -> Any:
    """Attention with the backward of flash kernels: probabilities anew, and the row sum of o times its cotangent."""

    def forward(q: Tensor, k: Tensor, v: Tensor) -> Any:
        o = online(product(q, k), v)
        return o, (q, k, v, o, torch.logsumexp(product(q, k), -1, keepdim=True))

    def backward(saved: Any, g: Tensor) -> Any:
        q, k, v, o, lse = saved
        p, scale = torch.exp(product(q, k) - lse), q.shape[-1] ** power
        ds = p * (g @ v.transpose(-1, -2) - correction * (g * o).sum(-1, keepdim=True)) * scale
        return ds @ k, of_k * ds.transpose(-1, -2) @ q, p.transpose(-1, -2) @ g

    return by_hand(forward, backward)


full.right("backward of flash kernels", _flash())
full.wrong("gradient without its row sum", _flash(correction=0.0))
full.wrong("gradient without the scale", _flash(power=0.0))
full.wrong("gradient of k by 1.01", _flash(of_k=1.01))

masked = attention(
    "causal attention",
    lambda q, k: causal(product(q, k)),
    _SHAPES,
    ("not rescaled", "accumulator in bfloat16", "p rounded twice", "row before"),
)
masked.right("torch's own", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
masked.right(
    "rows that are short",
    lambda q, k, v: torch.cat(
        [by_parts(product(q[..., i : i + 1, :], k[..., : i + 1, :]), v[..., : i + 1, :]) for i in range(q.shape[-2])],
        -2,
    ),
)
masked.right("mask of finfo.min", _softmax_of(lambda q, k: causal(product(q, k), torch.finfo(q.dtype).min)))
masked.wrong("mask one late", _softmax_of(lambda q, k: causal(product(q, k), shift=1)))
masked.wrong("mask leaks at the edge of a tile", _softmax_of(lambda q, k: _leaking(product(q, k))))
masked.wrong("no mask", _softmax_of(product))
masked.wrong("mask of zero", _softmax_of(lambda q, k: causal(product(q, k), 0.0)))
masked.wrong("mask of -10", _softmax_of(lambda q, k: causal(product(q, k), -10.0)))
masked.wrong(
    "7 in all rows but the last", lambda q, k, v: _sevens(_softmax_of(lambda q, k: causal(product(q, k)))(q, k, v))
)
masked.wrong("scale of d + 1", _softmax_of(lambda q, k: causal(q @ k.transpose(-1, -2) * (q.shape[-1] + 1) ** -0.5)))


def _leaking(s: Tensor) -> Tensor:
    i, j = places(s)
    return s.masked_fill((j > i) & ~((i % 8 == 7) & (j == i + 1)), -INF)


def _sevens(y: Tensor) -> Tensor:
    return torch.where(torch.arange(y.shape[-2])[:, None] < y.shape[-2] - 1, 7.0, y)


sliding = attention(
    "sliding window", lambda q, k: window(product(q, k)), _SHAPES, ("not rescaled", "accumulator in bfloat16")
)
sliding.wrong("window of 4", _softmax_of(lambda q, k: window(product(q, k), 4)))
sliding.wrong("window of 6", _softmax_of(lambda q, k: window(product(q, k), 6)))
sliding.wrong("causal alone", _softmax_of(lambda q, k: causal(product(q, k))))
sliding.wrong("7 in all rows but the last", lambda q, k, v: _sevens(sliding.spec(q, k, v)))


def _capped(s: Tensor, cap: float = 3.0) -> Tensor:
    return cap * torch.tanh(s / cap)


softcap = attention(
    "attention with a soft cap",
    lambda q, k: causal(_capped(product(q, k))),
    _SHAPES,
    ("accumulator in bfloat16", "p rounded twice"),
)
softcap.right(
    "2 sigmoid(2x) - 1",
    _softmax_of(lambda q, k: causal(3.0 * (2.0 * torch.sigmoid(product(q, k) / 1.5) - 1.0))),
    why="2 sigmoid(2x) - 1 loses digits near 0",
)
softcap.wrong("no cap", _softmax_of(lambda q, k: causal(product(q, k))))
softcap.wrong("cap of 3.03", _softmax_of(lambda q, k: causal(_capped(product(q, k), 3.03))))
softcap.wrong("cap after the mask", _softmax_of(lambda q, k: _capped(causal(product(q, k)))))

_PAD = torch.tensor([[True] * 17, [True] * 11 + [False] * 6])[:, None, None]


def _padded(title: str, value: float) -> Problem:
    def scores(q: Tensor, k: Tensor) -> Tensor:
        s = product(q, k)
        return s.masked_fill(~_PAD, value if value == -INF else max(value, torch.finfo(s.dtype).min))

    problem = attention(f"padding by {title}", scores, _SHAPES, ("accumulator in bfloat16", "p rounded twice"))
    problem.wrong("no mask", _softmax_of(product))
    problem.wrong("padding one late", _softmax_of(lambda q, k: product(q, k).masked_fill(~_PAD.roll(1, -1), -INF)))
    problem.wrong("padded keys count as zeros", _softmax_of(lambda q, k: product(q, k).masked_fill(~_PAD, 0.0)))
    return problem


padded = [_padded("-inf", -INF), _padded("-1e9", -1e9), _padded("finfo.min", torch.finfo(torch.float32).min)]

biased = attention(
    "attention with a bias",
    lambda q, k, b: product(q, k) + b,
    _SHAPES,
    ("p rounded twice", "last key lost"),
    lambda: normal(3, 17, 17),
)
biased.right("torch's own", lambda q, k, v, b: F.scaled_dot_product_attention(q, k, v, attn_mask=b))
biased.wrong("bias scaled", _softmax_of(lambda q, k, b: (q @ k.transpose(-1, -2) + b) * q.shape[-1] ** -0.5))
biased.wrong("bias transposed", _softmax_of(lambda q, k, b: product(q, k) + b.transpose(-1, -2)))
biased.wrong("bias in bfloat16", _softmax_of(lambda q, k, b: product(q, k) + bf(b)), dtypes=("float32",))

masks = attention(
    "attention with a mask as argument",
    lambda q, k, m: product(q, k) + m,
    _SHAPES,
    ("p rounded twice", "accumulator in bfloat16"),
    lambda: causal(torch.zeros(17, 17), -1e9),
)
masks.right("torch's own", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m))
masks.wrong("mask ignored", lambda q, k, v, m: _softmax_of(product)(q, k, v))
masks.wrong("mask transposed", _softmax_of(lambda q, k, m: product(q, k) + m.transpose(-1, -2)))
masks.wrong("7 in all rows but the last", lambda q, k, v, m: _sevens(masks.spec(q, k, v, m)))

_GROUPED = ((2, 4, 9, 16), (2, 2, 13, 16), (2, 2, 13, 16))


def _grouped_scores(q: Tensor, k: Tensor) -> Tensor:
    return causal(product(q.unflatten(1, (2, 2)), k.unsqueeze(2)))


def _grouped_spec(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = (t.repeat_interleave(2, 1) for t in (k, v))
    return torch.softmax(causal(product(q, k)), -1) @ v


grouped = Problem("grouped queries", _grouped_spec, lambda: tuple(map(normal, _GROUPED)))
for title, way in WAYS.items():
    grouped.right(title, lambda q, k, v, way=way: way(_grouped_scores(q, k), v.unsqueeze(2)).flatten(1, 2))
grouped.wrong(
    "heads repeated in the other order", lambda q, k, v: masked.spec(q, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1))
)
grouped.wrong("the first group for all", lambda q, k, v: masked.spec(q, k[:, :1], v[:, :1]))
grouped.wrong(
    "mask from the first key on",
    lambda q, k, v: by_parts(
        _grouped_scores(q, k).masked_fill(torch.ones(9, 13).triu(1).bool(), -INF), v.unsqueeze(2)
    ).flatten(1, 2),
)
grouped.wrong("p rounded twice", lambda q, k, v: twice(_grouped_scores(q, k), v.unsqueeze(2)).flatten(1, 2))
grouped.wrong(
    "accumulator in bfloat16", lambda q, k, v: in_bfloat16(_grouped_scores(q, k), v.unsqueeze(2)).flatten(1, 2)
)

decode = attention(
    "one query, a long cache",
    product,
    ((2, 3, 1, 16), (2, 3, 131, 16), (2, 3, 131, 16)),
    ("not rescaled", "accumulator in bfloat16", "last key lost", "p rounded twice"),
)
decode.right("online, tiles of 64", lambda q, k, v: online(product(q, k), v, 64))
decode.right("each tile by log-sum-exp, merged", lambda q, k, v: _merged_by_lse(product(q, k), v))
decode.wrong("tail of 128 lost", lambda q, k, v: by_parts(product(q, k[..., :128, :]), v[..., :128, :]))
decode.wrong(
    "tiles merged by their mean",
    lambda q, k, v: (
        added(by_parts(s, w) for s, w in zip(product(q, k).split(33, -1), v.split(33, -2), strict=True)) / 4
    ),
)
decode.wrong("scale of d + 1", _softmax_of(lambda q, k: q @ k.transpose(-1, -2) * (q.shape[-1] + 1) ** -0.5))
decode.wrong("values of the batch before", lambda q, k, v: by_parts(product(q, k), shifted(v)))


def _merged_by_lse(s: Tensor, v: Tensor) -> Tensor:
    """Tiles of keys, each with an output and a log-sum-exp, merged as split-KV kernels do."""
    parts = list(zip(s.split(33, -1), v.split(33, -2), strict=True))
    lse = torch.stack([torch.logsumexp(tile, -1, keepdim=True) for tile, _ in parts])
    weights = torch.exp(lse - torch.logsumexp(lse, 0))
    return added(w * (torch.softmax(tile, -1) @ values) for w, (tile, values) in zip(weights, parts, strict=True))


PROBLEMS = [full, masked, sliding, softcap, *padded, biased, masks, grouped, decode]
