"""Losses."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch import rand as uniform
from torch import randn as normal

from .problem import Problem, by_hand
from .ways import SUMS, added, bf, halves, tiles


def _classes(x: Tensor) -> Tensor:
    return (torch.arange(x.shape[0]) * 7) % x.shape[-1]


def _picked(x: Tensor) -> Tensor:
    return x.gather(-1, _classes(x)[:, None]).squeeze(-1)


def _lse(x: Tensor, total: Any = None) -> Tensor:
    top = x.detach().amax(-1, keepdim=True)
    p = torch.exp(x - top)
    return top.squeeze(-1) + torch.log(p.sum(-1) if total is None else total(p))


def _negative(x: Tensor, total: Any = None) -> Tensor:
    """-log softmax at the classes, shifted by the largest logit."""
    top = x.detach().amax(-1, keepdim=True)
    p = torch.exp(x - top)
    return torch.log(p.sum(-1) if total is None else total(p)) - _picked(x - top)


ce = Problem("cross entropy", lambda x: F.cross_entropy(x, _classes(x)), lambda: (normal(12, 50) * 2,))
for title, total in SUMS.items():
    ce.right(f"sums {title}", lambda x, total=total: _negative(x, total).mean())
ce.right("mean by halves", lambda x: halves(_negative(x)) / x.shape[0])
ce.right(
    "log-sum-exp less logit",
    lambda x: (_lse(x) - _picked(x)).mean(),
    why="lse - x[t] loses digits where both are large",
)
ce.wrong("sum", lambda x: _negative(x).sum())
ce.wrong("n - 1", lambda x: _negative(x).sum() / max(x.shape[0] - 1, 1))
ce.wrong("class after", lambda x: F.cross_entropy(x, (_classes(x) + 1) % x.shape[-1]))
ce.wrong("last row lost", lambda x: _negative(x)[:-1].sum() / x.shape[0])
ce.wrong("log of softmax and 1e-8", lambda x: -torch.log(_picked(torch.softmax(x, -1)) + 1e-8).mean())
ce.wrong("logits in bfloat16", lambda x: _negative(bf(x)).mean(), dtypes=("float32",))
ce.wrong("lse in bfloat16", lambda x: (bf(_lse(x)) - _picked(x)).mean())
ce.wrong("off by 1e-5", lambda x: _negative(x).mean() * (1 + 1e-5), dtypes=("float32",))


def _ce_backward(one: float = 1.0, over_n: bool = True, rounded: bool = False) -> Any:
    def forward(x: Tensor) -> Any:
        return _negative(x).mean(), (x,)

    def backward(saved: Any, g: Tensor) -> Any:
        x = saved[0]
        p = torch.softmax(x, -1)
        p = bf(p) if rounded else p
        d = p - one * F.one_hot(_classes(x), x.shape[-1])
        return g * (d / x.shape[0] if over_n else d)

    return by_hand(forward, backward)


ce.right("backward by hand", _ce_backward())
ce.wrong("gradient without its one", _ce_backward(0.0))
ce.wrong("gradient without 1/n", _ce_backward(over_n=False))
ce.wrong("probabilities in bfloat16 in backward", _ce_backward(rounded=True))

smooth = Problem(
    "label smoothing", lambda x: F.cross_entropy(x, _classes(x), label_smoothing=0.1), lambda: (normal(12, 50) * 2,)
)
smooth.right("by parts", lambda x: (0.9 * _negative(x) - 0.1 * torch.log_softmax(x, -1).mean(-1)).mean())
smooth.right(
    "by distribution",
    lambda x: -((0.9 * F.one_hot(_classes(x), 50).to(x.dtype) + 0.1 / 50) * torch.log_softmax(x, -1)).sum(-1).mean(),
    why="sums products with the one-hot row, too",
)
smooth.wrong("no smoothing", lambda x: F.cross_entropy(x, _classes(x)))
smooth.wrong("0.11", lambda x: F.cross_entropy(x, _classes(x), label_smoothing=0.11))
smooth.wrong("over K - 1", lambda x: (0.9 * _negative(x) - 0.1 / 49 * torch.log_softmax(x, -1).sum(-1)).mean())
smooth.wrong(
    "others alone", lambda x: (0.9 * _negative(x) - 0.1 / 49 * (torch.log_softmax(x, -1).sum(-1) + _negative(x))).mean()
)

ignored = Problem(
    "cross entropy with an ignored class",
    lambda x: F.cross_entropy(x, _classes(x), ignore_index=0),
    lambda: (normal(15, 14) * 2,),
)
ignored.right(
    "by a mask",
    lambda x: (_negative(x) * (_classes(x) != 0)).sum() / (_classes(x) != 0).sum(),
    why="a product with 0 keeps NaN",
)
ignored.right(
    "by a choice",
    lambda x: (
        torch.where(_classes(x) != 0, _negative(x), 0.0 * x.detach()[:, 0].isnan()).sum() / (_classes(x) != 0).sum()
    ),
)
ignored.wrong("over all rows", lambda x: torch.where(_classes(x) != 0, _negative(x), torch.zeros_like(x[:, 0])).mean())
ignored.wrong("not ignored", lambda x: F.cross_entropy(x, _classes(x)))

fused = Problem(
    "linear and cross entropy",
    lambda x, w: F.cross_entropy(x @ w.T, _classes(x @ w.T)),
    lambda: (normal(12, 33), normal(40, 33) * 0.3),
)
fused.right(
    "chunks of rows", lambda x, w: added(_negative_of(x, w, i).sum() for i in range(0, x.shape[0], 5)) / x.shape[0]
)
fused.right("chunks of classes", lambda x, w: _negative(torch.cat([x @ part.T for part in w.split(16)], -1)).mean())
fused.wrong(
    "chunks averaged",
    lambda x, w: added(_negative_of(x, w, i).mean() for i in range(0, x.shape[0], 5)) / -(-x.shape[0] // 5),
)
fused.wrong("logits in bfloat16", lambda x, w: _negative(bf(x @ w.T)).mean())
fused.wrong("classes of the chunk", lambda x, w: added(_negative(part @ w.T).sum() for part in x.split(5)) / x.shape[0])


def _negative_of(x: Tensor, w: Tensor, first: int) -> Tensor:
    logits = x[first : first + 5] @ w.T
    classes = _classes(x @ w.T)[first : first + 5]
    return -torch.log_softmax(logits, -1).gather(-1, classes[:, None])


kl = Problem(
    "kl divergence",
    lambda a, b: F.kl_div(torch.log_softmax(a, -1), torch.softmax(b, -1), reduction="batchmean"),
    lambda: (normal(6, 30), normal(6, 30)),
)
kl.right(
    "spelled out",
    lambda a, b: (torch.softmax(b, -1) * (torch.log_softmax(b, -1) - torch.log_softmax(a, -1))).sum() / a.shape[0],
)
kl.wrong("turned", lambda a, b: F.kl_div(torch.log_softmax(b, -1), torch.softmax(a, -1), reduction="batchmean"))
kl.wrong("mean over all", lambda a, b: F.kl_div(torch.log_softmax(a, -1), torch.softmax(b, -1), reduction="mean"))
kl.wrong("cross entropy", lambda a, b: -(torch.softmax(b, -1) * torch.log_softmax(a, -1)).sum() / a.shape[0])

bce = Problem(
    "binary cross entropy with logits",
    F.binary_cross_entropy_with_logits,
    lambda: (normal(12, 9) * 2, (uniform(12, 9) < 0.5).float()),
)
bce.right("maximum form", lambda x, y: (x.clamp_min(0) - x * y + torch.log1p(torch.exp(-x.abs()))).mean())
bce.right("softplus", lambda x, y: (F.softplus(x) - x * y).mean(), why="softplus(x) - x y cancels")
bce.right(
    "backward by hand",
    by_hand(
        lambda x, y: ((x.clamp_min(0) - x * y + torch.log1p(torch.exp(-x.abs()))).mean(), (x, y)),
        lambda s, g: (g * (torch.sigmoid(s[0]) - s[1]) / s[0].numel(), -g * s[0] / s[0].numel()),
    ),
)
bce.wrong(
    "log of sigmoid", lambda x, y: -(y * torch.log(torch.sigmoid(x)) + (1 - y) * torch.log(1 - torch.sigmoid(x))).mean()
)
bce.wrong("log(1 + exp)", lambda x, y: (torch.log(1 + torch.exp(x)) - x * y).mean())
bce.wrong("labels turned", lambda x, y: F.binary_cross_entropy_with_logits(x, 1 - y))
bce.wrong("sum", lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="sum"))
bce.wrong(
    "gradient without y",
    by_hand(
        lambda x, y: (F.binary_cross_entropy_with_logits(x, y), (x, y)),
        lambda s, g: (g * torch.sigmoid(s[0]) / s[0].numel(), -g * s[0] / s[0].numel()),
    ),
)

huber = Problem("huber", F.huber_loss, lambda: (normal(12, 9) * 2, normal(12, 9)))
huber.right(
    "where",
    lambda a, b: torch.where((a - b).abs() <= 1, 0.5 * (a - b) ** 2, (a - b).abs() - 0.5).mean(),
    why="the square overflows in the branch that is not taken",
)
huber.wrong("no half", lambda a, b: torch.where((a - b).abs() <= 1, (a - b) ** 2, (a - b).abs() - 0.5).mean())
huber.wrong("delta of 1.1", lambda a, b: F.huber_loss(a, b, delta=1.1))
huber.wrong("smooth l1 with beta 0.9", lambda a, b: F.smooth_l1_loss(a, b, beta=0.9))
huber.wrong("squares", F.mse_loss)

mse = Problem("mean squared error", F.mse_loss, lambda: (normal(13, 9), normal(13, 9)))
for title, total in SUMS.items():
    mse.right(f"sums {title}", lambda a, b, total=total: total(((a - b) ** 2).reshape(-1)) / a.numel())
mse.right("rows first", lambda a, b: ((a - b) ** 2).mean(-1).mean())
mse.wrong("expanded", lambda a, b: (a * a - 2 * a * b + b * b).mean())
mse.wrong("half", lambda a, b: 0.5 * F.mse_loss(a, b))
mse.wrong("rows summed", lambda a, b: ((a - b) ** 2).sum(-1).mean())
mse.wrong("differences in bfloat16", lambda a, b: (bf(a - b) ** 2).mean())
mse.wrong("absolute", F.l1_loss)
mse.wrong("sum in bfloat16", lambda a, b: added(bf(t) for t in ((a - b) ** 2).mean(-1).unbind(0)) / a.shape[0])

focal = Problem(
    "focal loss",
    lambda x, y: ((1 - torch.exp(-_bce(x, y))) ** 2 * _bce(x, y)).mean(),
    lambda: (normal(12, 9), (uniform(12, 9) < 0.3).float()),
)
focal.right(
    "sums in tiles", lambda x, y: tiles(((1 - torch.exp(-_bce(x, y))) ** 2 * _bce(x, y)).reshape(-1)) / x.numel()
)
focal.wrong("gamma of 1", lambda x, y: ((1 - torch.exp(-_bce(x, y))) * _bce(x, y)).mean())
focal.wrong("p for 1 - p", lambda x, y: (torch.exp(-_bce(x, y)) ** 2 * _bce(x, y)).mean())


def _bce(x: Tensor, y: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(x, y, reduction="none")


infonce = Problem(
    "contrastive loss",
    lambda a, b: F.cross_entropy(a @ b.T / 0.5, torch.arange(9)),
    lambda: (normal(9, 16) * 0.5, normal(9, 16) * 0.5),
)
infonce.right(
    "by parts",
    lambda a, b: (torch.logsumexp(a @ b.T / 0.5, -1) - (a @ b.T / 0.5).diagonal()).mean(),
    why="lse - x[t] loses digits where both are large",
)
infonce.right("log softmax", lambda a, b: -torch.log_softmax(a @ b.T / 0.5, -1).diagonal().mean())
infonce.wrong("columns", lambda a, b: F.cross_entropy(b @ a.T / 0.5, torch.arange(9)))
infonce.wrong("temperature of 1", lambda a, b: F.cross_entropy(a @ b.T, torch.arange(9)))
infonce.wrong(
    "the pair left out of the sum",
    lambda a, b: (
        torch.logsumexp((a @ b.T * 2).masked_fill(torch.eye(9).bool(), -1e9), -1) - (a @ b.T * 2).diagonal()
    ).mean(),
)
infonce.wrong("scores in bfloat16", lambda a, b: F.cross_entropy(bf(a @ b.T) / 0.5, torch.arange(9)))

dpo = Problem(
    "preference loss",
    lambda a, b, c, d: -F.logsigmoid(0.1 * ((a - b) - (c - d))).mean(),
    lambda: tuple(normal(31) for _ in range(4)),
)
dpo.right(
    "softplus",
    lambda a, b, c, d: F.softplus(-0.1 * ((a - b) - (c - d))).mean(),
    why="torch's softplus is linear from 20 on",
)
dpo.wrong("other order", lambda a, b, c, d: -F.logsigmoid(0.1 * ((a - c) + (b - d))).mean())
dpo.wrong("no beta", lambda a, b, c, d: -F.logsigmoid((a - b) - (c - d)).mean())
dpo.wrong("sigmoid", lambda a, b, c, d: -torch.sigmoid(0.1 * ((a - b) - (c - d))).mean())

z = Problem("z loss", lambda x: 1e-2 * torch.logsumexp(x, -1).square().mean(), lambda: (normal(12, 30),))
z.right("sums in tiles", lambda x: 1e-2 * (_lse(x, tiles) ** 2).mean())
z.wrong("no square", lambda x: 1e-2 * torch.logsumexp(x, -1).mean())
z.wrong("square of the mean", lambda x: 1e-2 * torch.logsumexp(x, -1).mean().square())
z.wrong("1e-2 as bfloat16", lambda x: 0.01001 * torch.logsumexp(x, -1).square().mean())

hinge = Problem("hinge loss", lambda x, y: F.relu(1 - x * y).mean(), lambda: (normal(40), torch.sign(normal(40))))
hinge.right("clamp", lambda x, y: torch.clamp(1 - x * y, min=0).mean())
hinge.wrong("no margin", lambda x, y: F.relu(-x * y).mean())
hinge.wrong("squared", lambda x, y: F.relu(1 - x * y).square().mean())

PROBLEMS = [ce, smooth, ignored, fused, kl, bce, huber, mse, focal, infonce, dpo, z, hinge]
