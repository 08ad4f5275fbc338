"""Norms, and functions of rows that are near to them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch import rand as uniform
from torch import randn as normal

from .problem import Problem, by_hand
from .ways import SUMS, bf, but_last, compensated, shifted, tiles

EPS = 1e-5


def _mean(x: Tensor, total: Any = None) -> Tensor:
    return (x.sum(-1) if total is None else total(x)).unsqueeze(-1) / x.shape[-1]


def _normed(x: Tensor, w: Any = 1.0, b: Any = 0.0, eps: float = EPS, total: Any = None) -> Tensor:
    d = x - _mean(x, total)
    return d * torch.rsqrt(_mean(d * d, total) + eps) * w + b


def _chan(x: Tensor, w: Any = 1.0, b: Any = 0.0, size: int = 16) -> Tensor:
    """Mean and sum of squares of tiles, put together as Chan, Golub and LeVeque do."""
    count, mean, squares = 0, torch.zeros_like(x[..., :1]), torch.zeros_like(x[..., :1])
    for tile in x.split(size, -1):
        n, m = tile.shape[-1], _mean(tile)
        off, both = m - mean, count + n
        squares = squares + ((tile - m) ** 2).sum(-1, keepdim=True) + off * off * (count * n / both)
        mean, count = mean + off * (n / both), both
    return (x - mean) * torch.rsqrt(squares / count + EPS) * w + b


def _welford(x: Tensor, w: Any = 1.0, b: Any = 0.0) -> Tensor:
    return _chan(x, w, b, 1)


def _one_pass(x: Tensor, w: Any = 1.0, b: Any = 0.0) -> Tensor:
    mean = _mean(x)
    return (x - mean) * torch.rsqrt(_mean(x * x) - mean * mean + EPS) * w + b


def _unbiased(x: Tensor, w: Any = 1.0, b: Any = 0.0) -> Tensor:
    d = x - _mean(x)
    return d * torch.rsqrt((d * d).sum(-1, keepdim=True) / max(x.shape[-1] - 1, 1) + EPS) * w + b


layer = Problem(
    "layer norm", lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b), lambda: (normal(6, 65), normal(65), normal(65))
)
for title, total in SUMS.items():
    layer.right(f"sums {title}", lambda x, w, b, total=total: _normed(x, w, b, total=total))
layer.right("compensated sums", lambda x, w, b: _normed(x, w, b, total=compensated), dtypes=("float32",))
layer.right("Chan's pieces of 16", _chan)
layer.right("Welford", _welford)
layer.right(
    "quotient by the root", lambda x, w, b: (x - _mean(x)) / torch.sqrt(_mean((x - _mean(x)) ** 2) + EPS) * w + b
)
layer.wrong("mean of squares less square of the mean", _one_pass)
layer.wrong("n - 1", _unbiased)
layer.wrong(
    "eps beside the root", lambda x, w, b: (x - _mean(x)) / (torch.sqrt(_mean((x - _mean(x)) ** 2)) + EPS) * w + b
)
layer.wrong("eps of 1e-6", lambda x, w, b: _normed(x, w, b, 1e-6))
layer.wrong("eps of 1e-3", lambda x, w, b: _normed(x, w, b, 1e-3))
layer.wrong("no bias", lambda x, w, b: _normed(x, w))
layer.wrong(
    "mean in bfloat16", lambda x, w, b: (x - bf(_mean(x))) * torch.rsqrt(_mean((x - _mean(x)) ** 2) + EPS) * w + b
)
layer.wrong(
    "reciprocal in bfloat16", lambda x, w, b: (x - _mean(x)) * bf(torch.rsqrt(_mean((x - _mean(x)) ** 2) + EPS)) * w + b
)
layer.wrong("last column as it was", lambda x, w, b: but_last(_normed(x, w, b)))
layer.wrong("row before", lambda x, w, b: shifted(_normed(x, w, b)))
layer.wrong("weight on the mean, too", lambda x, w, b: _normed(x * w) + b)


def _layer_backward(of_mean: float = 1.0, of_square: float = 1.0, of_w: float = 1.0) -> Any:
    def forward(x: Tensor, w: Tensor, b: Tensor) -> Any:
        r = torch.rsqrt(_mean((x - _mean(x)) ** 2) + EPS)
        y = (x - _mean(x)) * r
        return y * w + b, (y, r, w)

    def backward(saved: Any, g: Tensor) -> Any:
        y, r, w = saved
        h = g * w
        return r * (h - of_mean * _mean(h) - of_square * y * _mean(h * y)), of_w * (g * y).sum(0), g.sum(0)

    return by_hand(forward, backward)


layer.right("backward by hand", _layer_backward())
layer.wrong("gradient without its mean", _layer_backward(of_mean=0.0))
layer.wrong("gradient without y mean(g y)", _layer_backward(of_square=0.0))
layer.wrong("gradient of w by 1.001", _layer_backward(of_w=1.001), dtypes=("float32",))

spelled = Problem("layer norm, spelled out", lambda x: _normed(x), lambda: (normal(6, 65) + 3.0,))
for title, total in SUMS.items():
    spelled.right(f"sums {title}", lambda x, total=total: _normed(x, total=total))
spelled.right("Chan's pieces of 16", _chan)
spelled.right("two halves merged", lambda x: _chan(x, size=33))
spelled.wrong("mean of squares less square of the mean", _one_pass)
spelled.wrong("n - 1", _unbiased)
spelled.wrong(
    "sum for the mean", lambda x: (x - x.sum(-1, keepdim=True)) * torch.rsqrt(_mean((x - _mean(x)) ** 2) + EPS)
)


def _root(x: Tensor, w: Any = 1.0, eps: float = 1e-6, total: Any = None) -> Tensor:
    return x * torch.rsqrt(_mean(x * x, total) + eps) * w


rms = Problem("rms norm", lambda x, w: F.rms_norm(x, x.shape[-1:], w, 1e-6), lambda: (normal(6, 130), normal(130)))
for title, total in SUMS.items():
    rms.right(f"sums {title}", lambda x, w, total=total: _root(x, w, total=total))
rms.right("root and quotient", lambda x, w: x / torch.sqrt(_mean(x * x) + 1e-6) * w)
rms.right(
    "length of the row",
    lambda x, w: x * torch.rsqrt(torch.linalg.vector_norm(x, dim=-1, keepdim=True) ** 2 / x.shape[-1] + 1e-6) * w,
    why="squares of large numbers overflow elsewhere",
)
rms.right("weight first", lambda x, w: (x * w) * torch.rsqrt(_mean(x * x) + 1e-6))
rms.wrong("weight plus one", lambda x, w: _root(x, w + 1.0))
rms.wrong("weight twice", lambda x, w: _root(x, w * w))
rms.wrong("eps of 1e-5", lambda x, w: _root(x, w, 1e-5))
rms.wrong("eps beside the root", lambda x, w: x / (torch.sqrt(_mean(x * x)) + 1e-6) * w)
rms.wrong("mean over 128", lambda x, w: x * torch.rsqrt((x * x)[..., :128].mean(-1, keepdim=True) + 1e-6) * w)
rms.wrong("sum of squares in bfloat16", lambda x, w: x * torch.rsqrt(bf(_mean(x * x)) + 1e-6) * w)
rms.wrong("x r stored in bfloat16", lambda x, w: bf(_root(x)) * w)
rms.wrong("r off by 2^-12", lambda x, w: _root(x, w) * (1 + 2.0**-12), dtypes=("float32",))
rms.wrong("first row for all", lambda x, w: _root(x, w)[:1].expand_as(x) * 1.0)


def _rms_backward(correction: float = 1.0, count: int = 0) -> Any:
    def forward(x: Tensor, w: Tensor) -> Any:
        r = torch.rsqrt(_mean(x * x) + 1e-6)
        return x * r * w, (x, r, w)

    def backward(saved: Any, g: Tensor) -> Any:
        x, r, w = saved
        h = g * w
        inner = (h * x).sum(-1, keepdim=True) / (x.shape[-1] - count)
        return r * h - correction * r**3 * x * inner, (g * x * r).sum(0)

    return by_hand(forward, backward)


rms.right("backward by hand", _rms_backward(), why="r cubed overflows elsewhere")
rms.wrong("gradient without its correction", _rms_backward(0.0))
rms.wrong("gradient over n - 1", _rms_backward(count=1))

added_rms = Problem(
    "residual and rms norm",
    lambda x, r, w: ((x + r) * torch.rsqrt(((x + r) ** 2).mean(-1, keepdim=True) + 1e-6) * w, x + r),
    lambda: (normal(5, 64), normal(5, 64), normal(64)),
)
added_rms.right("sums in tiles", lambda x, r, w: (_root(x + r, w, total=tiles), x + r))
added_rms.right("torch's own", lambda x, r, w: (F.rms_norm(x + r, (64,), w, 1e-6), x + r))
added_rms.wrong("norm of x alone", lambda x, r, w: (_root(x, w), x + r))
added_rms.wrong("residual returned as it was", lambda x, r, w: (_root(x + r, w), r * 1.0))
added_rms.wrong("residual returned normed", lambda x, r, w: (_root(x + r, w), _root(x + r, w)))
added_rms.wrong(
    "square of the sum rounded", lambda x, r, w: (bf(x + r) * torch.rsqrt(_mean(bf(x + r) ** 2) + 1e-6) * w, x + r)
)


def _group(x: Tensor, groups: int = 4, unbiased: int = 0, eps: float = EPS) -> Tensor:
    rows = x.reshape(x.shape[0], groups, -1)
    d = rows - _mean(rows)
    return (d * torch.rsqrt((d * d).sum(-1, keepdim=True) / max(rows.shape[-1] - unbiased, 1) + eps)).reshape(x.shape)


def _each(t: Tensor) -> Tensor:
    return t[:, None, None]


group = Problem(
    "group norm", lambda x, w, b: F.group_norm(x, 4, w, b), lambda: (normal(2, 8, 5, 3), normal(8), normal(8))
)
group.right("by rows", lambda x, w, b: _group(x) * _each(w) + _each(b))
group.right(
    "Chan's pieces", lambda x, w, b: _chan(x.reshape(x.shape[0], 4, -1), size=7).reshape(x.shape) * _each(w) + _each(b)
)
group.right("Welford", lambda x, w, b: _welford(x.reshape(x.shape[0], 4, -1)).reshape(x.shape) * _each(w) + _each(b))
group.wrong("2 groups", lambda x, w, b: _group(x, 2) * _each(w) + _each(b))
group.wrong("n - 1", lambda x, w, b: _group(x, unbiased=1) * _each(w) + _each(b))
group.wrong("one pass", lambda x, w, b: _one_pass(x.reshape(x.shape[0], 4, -1)).reshape(x.shape) * _each(w) + _each(b))
group.wrong("weights of the first group", lambda x, w, b: _group(x) * _each(w[:2].repeat(4)) + _each(b))
group.wrong(
    "channels interleaved",
    lambda x, w, b: (
        _group(x.unflatten(1, (4, 2)).transpose(1, 2).flatten(1, 2)).unflatten(1, (2, 4)).transpose(1, 2).flatten(1, 2)
        * _each(w)
        + _each(b)
    ),
)

instance = Problem("instance norm", lambda x: F.instance_norm(x), lambda: (normal(2, 3, 5, 7),))
instance.right("by rows", lambda x: _group(x, x.shape[1]))
instance.right("Chan's pieces", lambda x: _chan(x.flatten(2), size=7).reshape(x.shape))
instance.wrong(
    "over the batch",
    lambda x: (
        _group(x.transpose(0, 1).reshape(1, x.shape[1], -1), x.shape[1])
        .reshape(x.shape[1], x.shape[0], *x.shape[2:])
        .transpose(0, 1)
    ),
)
instance.wrong("n - 1", lambda x: _group(x, x.shape[1], 1))


class BatchNorm(torch.nn.Module):
    """Batch norm in training, which writes running statistics; `unbiased` and `kept` are for what goes wrong."""

    def __init__(self, momentum: float = 0.1, correction: int = 1, own: bool = False, writes: bool = True) -> None:
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(5))
        self.register_buffer("running_var", torch.ones(5))
        self.momentum, self.correction, self.own, self.writes = momentum, correction, own, writes

    def forward(self, x: Tensor) -> Tensor:
        mean, var = x.mean(0), x.var(0, correction=0)
        if self.writes:
            with torch.no_grad():
                self.running_mean.mul_(1 - self.momentum).add_(self.momentum * mean)  # type: ignore[operator]
                self.running_var.mul_(1 - self.momentum).add_(self.momentum * x.var(0, correction=self.correction))  # type: ignore[operator]
        return (x - mean) * torch.rsqrt(var + EPS)


class TorchBatchNorm(BatchNorm):
    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, self.running_mean, self.running_var, training=True)  # type: ignore[arg-type]


batch = Problem("batch norm with running statistics", TorchBatchNorm(), lambda: (2 * normal(9, 5) + 1,))
batch.right_module("spelled out", BatchNorm)
batch.wrong_module("running variance of n", lambda: BatchNorm(correction=0))
batch.wrong_module("momentum of 0.9", lambda: BatchNorm(0.9))
batch.wrong_module("statistics not written", lambda: BatchNorm(writes=False))

evaluated = Problem(
    "batch norm in evaluation", lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b),
    lambda: (normal(4, 5, 3), normal(5), uniform(5) + 0.1, normal(5), normal(5)),
)  # fmt: skip


def _last(t: Tensor) -> Tensor:
    return t[:, None]


evaluated.right("spelled out", lambda x, m, v, w, b: (x - _last(m)) * torch.rsqrt(_last(v) + EPS) * _last(w) + _last(b))
evaluated.right("quotient", lambda x, m, v, w, b: (x - _last(m)) / torch.sqrt(_last(v) + EPS) * _last(w) + _last(b))
evaluated.right(
    "scale and shift",
    lambda x, m, v, w, b: x * _last(w * torch.rsqrt(v + EPS)) + _last(b - m * w * torch.rsqrt(v + EPS)),
)
evaluated.wrong("no eps", lambda x, m, v, w, b: (x - _last(m)) * torch.rsqrt(_last(v)) * _last(w) + _last(b))
evaluated.wrong("statistics of the batch", lambda x, m, v, w, b: F.batch_norm(x, None, None, w, b, training=True))
evaluated.wrong("variance as deviation", lambda x, m, v, w, b: (x - _last(m)) / (_last(v) + EPS) * _last(w) + _last(b))

length = Problem("normalize", lambda x: F.normalize(x, dim=-1), lambda: (normal(7, 33),))
length.right(
    "by the root",
    lambda x: x / torch.sqrt((x * x).sum(-1, keepdim=True)).clamp_min(1e-12),
    why="squares of small and large numbers leave the range",
)
length.right("by the length", lambda x: x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min(1e-12))
length.wrong("eps in the root", lambda x: x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6))
length.wrong("sum of absolute values", lambda x: x / x.abs().sum(-1, keepdim=True).clamp_min(1e-12))
length.wrong("along the first axis", lambda x: F.normalize(x, dim=0))
length.wrong(
    "last column lost", lambda x: x / torch.linalg.vector_norm(x[..., :-1], dim=-1, keepdim=True).clamp_min(1e-12)
)

cosine = Problem(
    "cosine similarity", lambda a, b: F.cosine_similarity(a, b, dim=-1), lambda: (normal(7, 33), normal(7, 33))
)
cosine.right(
    "normalized first", lambda a, b: (F.normalize(a, dim=-1, eps=1e-8) * F.normalize(b, dim=-1, eps=1e-8)).sum(-1)
)
cosine.wrong("one length alone", lambda a, b: (F.normalize(a, dim=-1) * b).sum(-1))
cosine.wrong("eps of 5", lambda a, b: F.cosine_similarity(a, b, dim=-1, eps=5.0))
cosine.wrong("squared lengths", lambda a, b: (a * b).sum(-1) / ((a * a).sum(-1) * (b * b).sum(-1)))
cosine.wrong(
    "products in bfloat16",
    lambda a, b: (F.normalize(bf(a), dim=-1) * F.normalize(bf(b), dim=-1)).sum(-1),
    dtypes=("float32",),
)

variance = Problem("variance", lambda x: x.var(-1), lambda: (normal(6, 65) + 2.0,))
for title, total in SUMS.items():
    variance.right(f"sums {title}", lambda x, total=total: total((x - _mean(x, total)) ** 2) / (x.shape[-1] - 1))
variance.wrong("n", lambda x: ((x - _mean(x)) ** 2).mean(-1))
variance.wrong("one pass", lambda x: ((x * x).sum(-1) - x.sum(-1) ** 2 / x.shape[-1]) / (x.shape[-1] - 1))
variance.wrong("deviation", lambda x: x.std(-1))

weighted = Problem(
    "weight norm",
    lambda v, g, x: F.linear(x, g * v / torch.linalg.vector_norm(v, dim=1, keepdim=True)),
    lambda: (normal(5, 16), normal(5, 1), normal(4, 16)),
)
weighted.right("length last", lambda v, g, x: F.linear(x, v) * (g / torch.linalg.vector_norm(v, dim=1, keepdim=True)).T)
weighted.wrong("length of all", lambda v, g, x: F.linear(x, g * v / torch.linalg.vector_norm(v)))
weighted.wrong("no g", lambda v, g, x: F.linear(x, v / torch.linalg.vector_norm(v, dim=1, keepdim=True)))

PROBLEMS = [layer, spelled, rms, added_rms, group, instance, batch, evaluated, length, cosine, variance, weighted]
