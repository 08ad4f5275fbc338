"""What moves elements: tables, rotations, pools, caches, buffers."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import Tensor
from torch import randn as normal

from .problem import Problem, by_hand
from .ways import added, bf, but_last, halves, shifted


def _angles(x: Tensor) -> tuple[Tensor, Tensor]:
    n = x.shape[-1] // 2
    angles = torch.arange(x.shape[-2])[:, None] * 10000.0 ** (-torch.arange(n) / n)
    return torch.cos(angles).to(x.dtype), torch.sin(angles).to(x.dtype)


def _rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def _table() -> tuple[Tensor, ...]:
    x = normal(2, 9, 16)
    return (x.requires_grad_(), *_angles(x.detach()))


rope = Problem("rotary embedding, halves", _rope, _table)
rope.right(
    "turned half",
    lambda x, c, s: x * torch.cat([c, c], -1) + torch.cat([-x[..., 8:], x[..., :8]], -1) * torch.cat([s, s], -1),
)
rope.right(
    "backward by hand",
    by_hand(lambda x, c, s: (_rope(x, c, s), (c, s)), lambda t, g: (_rope(g, t[0], -t[1]), None, None)),
)
rope.wrong(
    "interleaved",
    lambda x, c, s: torch.stack([x[..., ::2] * c - x[..., 1::2] * s, x[..., 1::2] * c + x[..., ::2] * s], -1).flatten(
        -2
    ),
)
rope.wrong("turned the other way", lambda x, c, s: _rope(x, c, -s))
rope.wrong("place one late", lambda x, c, s: _rope(x, shifted(c), shifted(s)))
rope.wrong("sin in bfloat16", lambda x, c, s: _rope(x, c, bf(s)), dtypes=("float32",))
rope.wrong(
    "products stored in bfloat16",
    lambda x, c, s: torch.cat([bf(x[..., :8] * c) - bf(x[..., 8:] * s), bf(x[..., 8:] * c) + bf(x[..., :8] * s)], -1),
)
rope.wrong("second half lost", lambda x, c, s: torch.cat([_rope(x, c, s)[..., :8], x[..., 8:]], -1))
rope.wrong(
    "gradient turned the same way",
    by_hand(lambda x, c, s: (_rope(x, c, s), (c, s)), lambda t, g: (_rope(g, t[0], t[1]), None, None)),
)

pairs = Problem(
    "rotary embedding, pairs",
    lambda x, c, s: torch.stack([x[..., ::2] * c - x[..., 1::2] * s, x[..., 1::2] * c + x[..., ::2] * s], -1).flatten(
        -2
    ),
    _table,
)
pairs.right(
    "unflattened",
    lambda x, c, s: torch.stack(
        [
            x.unflatten(-1, (-1, 2))[..., 0] * c - x.unflatten(-1, (-1, 2))[..., 1] * s,
            x.unflatten(-1, (-1, 2))[..., 0] * s + x.unflatten(-1, (-1, 2))[..., 1] * c,
        ],
        -1,
    ).flatten(-2),
)
pairs.wrong("halves", _rope)
pairs.wrong(
    "sum for difference",
    lambda x, c, s: torch.stack([x[..., ::2] * c + x[..., 1::2] * s, x[..., 1::2] * c + x[..., ::2] * s], -1).flatten(
        -2
    ),
)

_TOKENS = torch.tensor([3, 0, 7, 3, 5, 1, 1])
table = Problem("embedding", lambda w: F.embedding(_TOKENS, w), lambda: (normal(9, 12),))
table.right("rows", lambda w: w[_TOKENS])
table.right("index_select", lambda w: torch.index_select(w, 0, _TOKENS))
table.wrong("token before", lambda w: w[(_TOKENS - 1).clamp_min(0)])
table.wrong("padding as zeros", lambda w: torch.where((_TOKENS == 0)[:, None], 0.0, w[_TOKENS]))
table.wrong(
    "gradient of repeated tokens once",
    by_hand(lambda w: (w[_TOKENS], (w,)), lambda s, g: torch.zeros_like(s[0]).index_put((_TOKENS,), g)),
)

_BAGS = torch.tensor([[0, 2, 5, 5], [1, 1, 8, 3], [4, 7, 6, 0]])
bag = Problem("embedding bag", lambda w: F.embedding_bag(_BAGS, w, mode="mean"), lambda: (normal(9, 12),))
bag.right("mean of rows", lambda w: w[_BAGS].mean(1))
bag.right("by halves", lambda w: (w[_BAGS[:, :2]].sum(1) + w[_BAGS[:, 2:]].sum(1)) / 4)
bag.right("the last first", lambda w: added(w[_BAGS[:, i]] for i in (3, 2, 1, 0)) * 0.25)
bag.wrong("sum", lambda w: w[_BAGS].sum(1))
bag.wrong("different tokens once", lambda w: torch.stack([w[row.unique()].mean(0) for row in _BAGS]))
bag.wrong("three tokens", lambda w: w[_BAGS[:, :3]].sum(1) / 4)
bag.wrong(
    "sums in bfloat16", lambda w: functools.reduce(lambda a, i: bf(a + w[_BAGS[:, i]]), range(4), 0.0 * w[:3]) / 4
)

_AT = torch.tensor([2, 0, 2, 4, 2, 1])
onto = Problem("index_add", lambda x, s: x.index_add(0, _AT, s), lambda: (normal(5, 7), normal(6, 7)))
onto.right(
    "one by one",
    lambda x, s: torch.stack([added([x[i], *(s[j] for j in range(6) if _AT[j] == i)]) for i in range(len(x))]),
)
onto.right("the last first", lambda x, s: x.index_add(0, _AT.flip(0), s.flip(0)))
onto.right("sources first", lambda x, s: torch.zeros_like(x).index_add(0, _AT, s) + x)
onto.wrong("repeated places once", lambda x, s: x.index_put((_AT,), x[_AT] + s))
onto.wrong("x left out", lambda x, s: torch.zeros_like(x).index_add(0, _AT, s))
onto.wrong("sums in bfloat16", lambda x, s: bf(bf(x.index_add(0, _AT[:3], s[:3])).index_add(0, _AT[3:], s[3:])))

pool = Problem("max pool", lambda x: F.max_pool2d(x, 2), lambda: (normal(2, 3, 6, 8),))
pool.right("unfolded", lambda x: x.unflatten(-1, (-1, 2)).amax(-1).unflatten(-2, (-1, 2)).amax(-2))
pool.wrong("mean", lambda x: F.avg_pool2d(x, 2))
pool.wrong("clamped at zero", lambda x: F.max_pool2d(x, 2).clamp_min(0))
pool.wrong("columns alone", lambda x: x.unflatten(-1, (-1, 2)).amax(-1)[..., ::2, :])

mean_pool = Problem("average pool", lambda x: F.avg_pool2d(x, 3, 1, 1), lambda: (normal(2, 3, 6, 8),))
mean_pool.right(
    "shifts",
    lambda x: (
        added(F.pad(x, (1,) * 4)[..., i : i + x.shape[-2], j : j + x.shape[-1]] for i in range(3) for j in range(3)) / 9
    ),
)
mean_pool.right(
    "rows, then columns",
    lambda x: (
        added(
            added(F.pad(x, (1,) * 4)[..., i : i + x.shape[-2], :] for i in range(3))[..., j : j + x.shape[-1]]
            for j in range(3)
        )
        / 9
    ),
)
mean_pool.wrong("padding not counted", lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False))
mean_pool.wrong("edge repeated", lambda x: F.avg_pool2d(F.pad(x, (1,) * 4, mode="replicate"), 3, 1))
mean_pool.wrong("over 8", lambda x: F.avg_pool2d(x, 3, 1, 1) * (9 / 8))
mean_pool.wrong(
    "rows stored in bfloat16",
    lambda x: (
        added(
            bf(added(F.pad(x, (1,) * 4)[..., i : i + x.shape[-2], :] for i in range(3)))[..., j : j + x.shape[-1]]
            for j in range(3)
        )
        / 9
    ),
)

upsample = Problem(
    "bilinear upsampling",
    lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False),
    lambda: (normal(1, 2, 4, 5),),
)


def _doubled(x: Tensor) -> Tensor:
    """Twice as long along the last axis: a quarter of one neighbour, three quarters of the other."""
    padded = F.pad(x, (1, 1), mode="replicate")
    left, mid, right = padded[..., :-2], padded[..., 1:-1], padded[..., 2:]
    return torch.stack([0.25 * left + 0.75 * mid, 0.75 * mid + 0.25 * right], -1).flatten(-2)


upsample.right(
    "axis after axis",
    lambda x: _doubled(_doubled(x[0]).transpose(-1, -2)).transpose(-1, -2)[None],
    why="neighbours of weight 0 at the edges keep NaN",
)
upsample.wrong("corners", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True))
upsample.wrong("nearest", lambda x: F.interpolate(x, scale_factor=2))

picked = Problem("top k, softmax", lambda x: torch.softmax(torch.topk(x, 3, -1).values, -1), lambda: (normal(7, 20),))
picked.right("sorted", lambda x: torch.softmax(torch.sort(x, -1, descending=True).values[..., :3], -1))
picked.wrong("softmax first", lambda x: torch.topk(torch.softmax(x, -1), 3, -1).values)
picked.wrong("smallest", lambda x: torch.softmax(torch.topk(x, 3, -1, largest=False).values, -1))
picked.wrong("four", lambda x: torch.softmax(torch.topk(x, 4, -1).values, -1)[..., :3])

joined = Problem("transpose and join", lambda a, b: torch.cat([a.T, b], 0), lambda: (normal(5, 7), normal(4, 5)))
joined.right("rows", lambda a, b: torch.stack([*a.unbind(1), *b.unbind(0)]))
joined.wrong("reshaped", lambda a, b: torch.cat([a.reshape(7, 5), b], 0))
joined.wrong("b first", lambda a, b: torch.cat([b, a.T], 0))
joined.wrong("last column lost", lambda a, b: but_last(torch.cat([a.T, b], 0)))
joined.wrong("through bfloat16", lambda a, b: bf(torch.cat([a.T, b], 0)), dtypes=("float32",))

shift = Problem(
    "token shift", lambda x, m: x * m + F.pad(x, (0, 0, 1, -1)) * (1 - m), lambda: (normal(2, 7, 6), torch.rand(6))
)
shift.right(
    "lerp", lambda x, m: F.pad(x, (0, 0, 1, -1)) + m * (x - F.pad(x, (0, 0, 1, -1))), why="b + m (a - b) rounds a - b"
)
shift.right("joined", lambda x, m: m * x + (1 - m) * torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1))
shift.wrong("token after", lambda x, m: x * m + F.pad(x, (0, 0, -1, 1)) * (1 - m))
shift.wrong("around", lambda x, m: x * m + x.roll(1, 1) * (1 - m))
shift.wrong("m turned", lambda x, m: x * (1 - m) + F.pad(x, (0, 0, 1, -1)) * m)

filled = Problem(
    "causal mask of scores",
    lambda s: s.masked_fill(torch.ones(s.shape[-2:]).triu(1).bool(), 0.0),
    lambda: (normal(3, 8, 8),),
)
filled.right("tril", torch.tril)
filled.wrong("diagonal, too", lambda s: torch.tril(s, -1))
filled.wrong("one above", lambda s: torch.tril(s, 1))
filled.wrong("triu", torch.triu)

lengths = Problem(
    "masked mean",
    lambda x: torch.where(_VALID[..., None], x, torch.zeros_like(x)).sum(1) / _VALID.sum(1, keepdim=True),
    lambda: (normal(3, 9, 5),),
)
_VALID = torch.arange(9) < torch.tensor([9, 5, 2])[:, None]
lengths.right("rows", lambda x: torch.stack([x[i, :n].mean(0) for i, n in enumerate((9, 5, 2))]))
lengths.right(
    "by halves", lambda x: torch.stack([halves(x.expand(-1, 9, -1)[i, :n].T) / n for i, n in enumerate((9, 5, 2))])
)
lengths.wrong("over all", lambda x: x.mean(1))
lengths.wrong("over nine", lambda x: torch.stack([x[i, :n].sum(0) / 9 for i, n in enumerate((9, 5, 2))]))
lengths.wrong("one more", lambda x: torch.stack([x[i, : n + 1].sum(0) / n for i, n in enumerate((9, 5, 2))]))
lengths.wrong(
    "sums in bfloat16",
    lambda x: torch.stack(
        [bf(bf(x[i, : n // 2].sum(0)) + x[i, n // 2 : n].sum(0)) / n for i, n in enumerate((9, 5, 2))]
    ),
)

# -------------------------------- what is written


def _write(cache: Tensor, k: Tensor, place: int = 4) -> Tensor:
    cache[:, place : place + k.shape[1]] = k
    return cache.sum(1)


def _returned(cache: Tensor, k: Tensor) -> Tensor:
    """The right result, and a cache that is left as it was."""
    return _write(cache.clone(), k)


cache = Problem("cache update in place", _write, lambda: (normal(2, 12, 6), normal(2, 3, 6)))
cache.right("copy_", lambda c, k: (c[:, 4:7].copy_(k), c.sum(1))[1])
cache.right("index_copy_", lambda c, k: c.index_copy_(1, torch.arange(4, 7), k).sum(1))
cache.wrong("cache untouched", _returned)
cache.wrong("one late", lambda c, k: _write(c, k, 5))
cache.wrong("last token lost", lambda c, k: _write(c, k[:, :-1]))
cache.wrong("written through bfloat16", lambda c, k: _write(c, bf(k)), dtypes=("float32",))


class Average(torch.nn.Module):
    """A moving average of means in a buffer, which the result is measured from."""

    def __init__(self, decay: float = 0.9, writes: bool = True, first: bool = True) -> None:
        super().__init__()
        self.register_buffer("average", torch.zeros(6))
        self.decay, self.writes, self.first = decay, writes, first

    def forward(self, x: Tensor) -> Tensor:
        before = self.average
        average = self.decay * before + (1 - self.decay) * x.mean(0)  # type: ignore[operator]
        if self.writes:
            with torch.no_grad():
                self.average.copy_(average)  # type: ignore[operator]
        return x - (average if self.first else before)


class Lerped(Average):
    def forward(self, x: Tensor) -> Tensor:
        average = self.average.lerp(x.mean(0), 1 - self.decay)  # type: ignore[operator]
        self.average.copy_(average.detach())  # type: ignore[operator]
        return x - average


average = Problem("moving average in a buffer", Average(), lambda: (normal(8, 6),))
average.right_module("lerp", Lerped)
average.right_module("the same in other words", Average)
average.wrong_module("decay of 0.99", lambda: Average(0.99))
average.wrong_module("not written", lambda: Average(writes=False))
average.wrong_module("measured from the one before", lambda: Average(first=False))

PROBLEMS = [
    rope, pairs, table, bag, onto, pool, mean_pool, upsample, picked, joined, shift, filled, lengths, cache, average,
]  # fmt: skip
