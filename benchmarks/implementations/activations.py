"""Functions of elements, gates, and softmax with its kin."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch import randn as normal

from .problem import Problem, by_hand
from .ways import SUMS, added, bf, but_last, shifted, tiles

INF = float("inf")


def _sigmoid(x: Tensor) -> Tensor:
    return 1.0 / (1.0 + torch.exp(-x))


swiglu = Problem("swiglu", lambda a, b: F.silu(a) * b, lambda: (normal(9, 33), normal(9, 33)))
swiglu.right("sigmoid as a function", lambda a, b: a * torch.sigmoid(a) * b)
swiglu.right("b first", lambda a, b: (a * b) * torch.sigmoid(a), why="a b overflows elsewhere")
swiglu.right("rows", lambda a, b: torch.stack([F.silu(x) * y for x, y in zip(a, b, strict=True)]))
swiglu.wrong("gates swapped", lambda a, b: F.silu(b) * a)
swiglu.wrong("gelu", lambda a, b: F.gelu(a) * b)
swiglu.wrong("sigmoid without a", lambda a, b: torch.sigmoid(a) * b)
swiglu.wrong("sigmoid of 1.702 a", lambda a, b: a * torch.sigmoid(1.702 * a) * b)
swiglu.wrong("silu stored in bfloat16", lambda a, b: bf(F.silu(a)) * b)
swiglu.wrong("sigmoid stored in bfloat16", lambda a, b: a * bf(torch.sigmoid(a)) * b)
swiglu.wrong("last column lost", lambda a, b: but_last(F.silu(a) * b))
swiglu.wrong("off by 2^-10", lambda a, b: F.silu(a) * b * (1 + 2.0**-10))


def _swiglu_backward(of_a: float = 1.0) -> Any:
    def backward(saved: Any, g: Tensor) -> Any:
        a, b = saved
        s = torch.sigmoid(a)
        return g * b * s * (1 + of_a * a * (1 - s)), g * a * s

    return by_hand(lambda a, b: (F.silu(a) * b, (a, b)), backward)


swiglu.right("backward by hand", _swiglu_backward())
swiglu.wrong("gradient of sigmoid alone", _swiglu_backward(0.0))

geglu = Problem("geglu", lambda x: F.gelu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1], lambda: (normal(7, 32),))
geglu.right(
    "erf",
    lambda x: x[..., :16] * 0.5 * (1 + torch.erf(x[..., :16] * math.sqrt(0.5))) * x[..., 16:],
    why="1 + erf loses digits in the tail; accepted while torch's own does",
)
geglu.right("by views", lambda x: F.gelu(x.unflatten(-1, (2, -1))[..., 0, :]) * x.unflatten(-1, (2, -1))[..., 1, :])
geglu.wrong("halves swapped", lambda x: F.gelu(x.chunk(2, -1)[1]) * x.chunk(2, -1)[0])
geglu.wrong("pairs", lambda x: F.gelu(x[..., ::2]) * x[..., 1::2])
geglu.wrong("tanh", lambda x: F.gelu(x.chunk(2, -1)[0], approximate="tanh") * x.chunk(2, -1)[1])
geglu.wrong("gelu stored in bfloat16", lambda x: bf(F.gelu(x.chunk(2, -1)[0])) * x.chunk(2, -1)[1])

gelu = Problem("gelu", F.gelu, lambda: (normal(9, 33),))
gelu.right("erf", lambda x: 0.5 * x * (1 + torch.erf(x * math.sqrt(0.5))), why="1 + erf loses digits in the tail")
gelu.right("erfc", lambda x: 0.5 * x * torch.erfc(-x * math.sqrt(0.5)))
gelu.wrong("tanh", lambda x: F.gelu(x, approximate="tanh"))
gelu.wrong("sigmoid of 1.702 x", lambda x: x * torch.sigmoid(1.702 * x))
gelu.wrong("erf of x", lambda x: 0.5 * x * (1 + torch.erf(x)))
gelu.wrong("root of 2 as 1.414", lambda x: 0.5 * x * (1 + torch.erf(x / 1.414)))
gelu.wrong("erf stored in bfloat16", lambda x: 0.5 * x * (1 + bf(torch.erf(x * math.sqrt(0.5)))))

gelu_tanh = Problem("gelu by tanh", lambda x: F.gelu(x, approximate="tanh"), lambda: (normal(9, 33),))
_C = math.sqrt(2 / math.pi)
gelu_tanh.right(
    "spelled out",
    lambda x: 0.5 * x * (1 + torch.tanh(_C * (x + 0.044715 * x**3))),
    why="x cubed overflows elsewhere; 1 + tanh loses digits in the tail",
)
gelu_tanh.right(
    "Horner",
    lambda x: 0.5 * x * (1 + torch.tanh(_C * x * (1 + 0.044715 * x * x))),
    why="1 + tanh loses digits in the tail",
)
gelu_tanh.wrong("erf", F.gelu)
gelu_tanh.wrong("0.0447", lambda x: 0.5 * x * (1 + torch.tanh(_C * (x + 0.0447 * x**3))))
gelu_tanh.wrong("0.8", lambda x: 0.5 * x * (1 + torch.tanh(0.8 * (x + 0.044715 * x**3))))
gelu_tanh.wrong("no cube", lambda x: 0.5 * x * (1 + torch.tanh(_C * x)))

silu = Problem("silu", F.silu, lambda: (normal(9, 33),))
silu.right("product", lambda x: x * torch.sigmoid(x))
silu.wrong("hard", F.hardswish)
silu.wrong("stored sigmoid", lambda x: x * bf(_sigmoid(x)))
silu.wrong("x / (1 + exp(x))", lambda x: x / (1 + torch.exp(x)))

softplus = Problem(
    "softplus", lambda x: torch.log1p(torch.exp(-x.abs())) + x.clamp_min(0), lambda: (normal(9, 33) * 4,)
)
softplus.right("maximum first", lambda x: torch.maximum(x, torch.zeros_like(x)) + torch.log1p(torch.exp(-x.abs())))
softplus.right("logaddexp", lambda x: torch.logaddexp(x, torch.zeros_like(x)))
softplus.wrong("log(1 + exp)", lambda x: torch.log(1 + torch.exp(x)))
softplus.wrong("threshold of 5", lambda x: F.softplus(x, threshold=5.0))
softplus.wrong("base 2", lambda x: torch.log2(1 + torch.exp(x)))

mish = Problem("mish", F.mish, lambda: (normal(9, 33),))
mish.right("spelled out", lambda x: x * torch.tanh(F.softplus(x)))
mish.wrong("sigmoid", lambda x: x * torch.sigmoid(F.softplus(x)))
mish.wrong("softplus stored in bfloat16", lambda x: x * torch.tanh(bf(F.softplus(x))))

squared = Problem("relu squared", lambda x: F.relu(x).square(), lambda: (normal(9, 33),))
squared.right("product", lambda x: torch.where(x <= 0, torch.zeros_like(x), x * x))
squared.right("times x", lambda x: F.relu(x) * F.relu(x))
squared.wrong("no relu", lambda x: x.square())
squared.wrong("relu alone", F.relu)
squared.wrong("leaky", lambda x: F.leaky_relu(x, 0.01).square())

quick = Problem("quick gelu", lambda x: x * torch.sigmoid(1.702 * x), lambda: (normal(9, 33),))
quick.right("by silu", lambda x: F.silu(1.702 * x) / 1.702)
quick.wrong("1.7", lambda x: x * torch.sigmoid(1.7 * x))
quick.wrong("gelu", F.gelu)

dropout = Problem(
    "dropout with its mask", lambda x, m: torch.where(m, x / 0.9, torch.zeros_like(x)),
    lambda: (normal(9, 33), torch.rand(9, 33) < 0.9),
)  # fmt: skip
dropout.right("times the reciprocal", lambda x, m: torch.where(m, x * (1 / 0.9), torch.zeros_like(x)))
dropout.right("masked_fill", lambda x, m: (x / 0.9).masked_fill(~m, 0.0))
dropout.wrong("no scale", lambda x, m: torch.where(m, x, torch.zeros_like(x)))
dropout.wrong("mask turned", lambda x, m: torch.where(m, torch.zeros_like(x), x / 0.9))
dropout.wrong("divided by 0.1", lambda x, m: torch.where(m, x / 0.1, torch.zeros_like(x)))
dropout.wrong("scale of 1.11", lambda x, m: torch.where(m, x * 1.11, torch.zeros_like(x)))

bias_act = Problem(
    "bias, gelu and residual", lambda x, b, r: F.gelu(x + b) + r, lambda: (normal(9, 33), normal(33), normal(9, 33))
)
bias_act.right("residual first", lambda x, b, r: r + F.gelu(b + x))
bias_act.wrong("bias after", lambda x, b, r: F.gelu(x) + b + r)
bias_act.wrong("no bias", lambda x, b, r: F.gelu(x) + r)
bias_act.wrong("residual inside", lambda x, b, r: F.gelu(x + b + r))
bias_act.wrong("gelu stored in bfloat16", lambda x, b, r: bf(F.gelu(x + b)) + r)


def _top(x: Tensor) -> Tensor:
    return x.detach().amax(-1, keepdim=True)


def _powers(x: Tensor, total: Any) -> Tensor:
    p = torch.exp(x - _top(x))
    return p / total(p).unsqueeze(-1)


def _online(x: Tensor, size: int = 8, guard: bool = True) -> tuple[Tensor, Tensor]:
    most, total = torch.full_like(x[..., :1], -INF), torch.zeros_like(x[..., :1])
    for tile in x.split(size, -1):
        larger = torch.maximum(most, _top(tile))
        # Without it a first tile that is masked whole is -inf less -inf.
        base = torch.where(larger == -INF, 0.0, larger) if guard else larger
        total = total * torch.exp(most - base) + torch.exp(tile - base).sum(-1, keepdim=True)
        most = larger
    return most, total


softmax = Problem("softmax", lambda x: torch.softmax(x, -1), lambda: (normal(7, 65) * 3,))
for title, total in SUMS.items():
    softmax.right(f"sums {title}", lambda x, total=total: _powers(x, total))
softmax.right(
    "online",
    lambda x: torch.exp(x - _online(x)[0]) / _online(x)[1],
    why="its gradient by autograd goes through two exponentials",
)
softmax.right(
    "powers of two",
    lambda x: (
        torch.exp2((x - _top(x)) * math.log2(math.e))
        / torch.exp2((x - _top(x)) * math.log2(math.e)).sum(-1, keepdim=True)
    ),
    allows="exp2",
)
softmax.right("reciprocal", lambda x: torch.exp(x - _top(x)) * (1 / torch.exp(x - _top(x)).sum(-1, keepdim=True)))
softmax.wrong("along the first axis", lambda x: torch.softmax(x, 0))
softmax.wrong("not shifted", lambda x: torch.exp(x) / torch.exp(x).sum(-1, keepdim=True))
softmax.wrong(
    "last column lost from the sum",
    lambda x: torch.exp(x - _top(x)) / torch.exp(x - _top(x))[..., :-1].sum(-1, keepdim=True),
)
softmax.wrong("padded by zeros", lambda x: torch.softmax(F.pad(x, (0, 3)), -1)[..., :-3])
softmax.wrong("sum in bfloat16", lambda x: torch.exp(x - _top(x)) / bf(torch.exp(x - _top(x)).sum(-1, keepdim=True)))
softmax.wrong(
    "powers stored in bfloat16", lambda x: bf(torch.exp(x - _top(x))) / bf(torch.exp(x - _top(x))).sum(-1, keepdim=True)
)
softmax.wrong(
    "eps in the sum", lambda x: torch.exp(x - _top(x)) / (torch.exp(x - _top(x)).sum(-1, keepdim=True) + 1e-3)
)
softmax.wrong("row before", lambda x: shifted(torch.softmax(x, -1)))
softmax.wrong(
    "running sum not rescaled",
    lambda x: torch.exp(x - _top(x)) / added(torch.exp(t - _top(t)).sum(-1, keepdim=True) for t in x.split(8, -1)),
)


def _softmax_backward(correction: float = 1.0) -> Any:
    def forward(x: Tensor) -> Any:
        y = torch.softmax(x, -1)
        return y, (y,)

    return by_hand(forward, lambda saved, g: saved[0] * (g - correction * (g * saved[0]).sum(-1, keepdim=True)))


softmax.right("backward by hand", _softmax_backward())
softmax.wrong(
    "online, NaN where a first tile is masked",
    lambda x: torch.exp(x - _online(x, guard=False)[0]) / _online(x, guard=False)[1],
)
softmax.wrong("gradient without its sum", _softmax_backward(0.0))
softmax.wrong("gradient with a sum of 0.99", _softmax_backward(0.99))

tempered = Problem("softmax with a temperature", lambda x: torch.softmax(x / 0.7, -1), lambda: (normal(7, 65),))
tempered.right("times the reciprocal", lambda x: torch.softmax(x * (1 / 0.7), -1))
tempered.wrong("times 0.7", lambda x: torch.softmax(x * 0.7, -1))
tempered.wrong("after", lambda x: torch.softmax(x, -1) / 0.7)

log_softmax = Problem("log softmax", lambda x: torch.log_softmax(x, -1), lambda: (normal(7, 65) * 3,))
log_softmax.right("sums in tiles", lambda x: (x - _top(x)) - torch.log(tiles(torch.exp(x - _top(x)))).unsqueeze(-1))
log_softmax.right("online", lambda x: (x - _online(x)[0]) - torch.log(_online(x)[1]))
log_softmax.wrong("logarithm of softmax", lambda x: torch.log(torch.softmax(x, -1)))
log_softmax.wrong("log of softmax and 1e-6", lambda x: torch.log(torch.softmax(x, -1) + 1e-6))
log_softmax.wrong(
    "sum in bfloat16", lambda x: (x - _top(x)) - torch.log(bf(torch.exp(x - _top(x)).sum(-1, keepdim=True)))
)
log_softmax.wrong("no logarithm", lambda x: (x - _top(x)) - torch.exp(x - _top(x)).sum(-1, keepdim=True))

lse = Problem("log of a sum of exponentials", lambda x: torch.logsumexp(x, -1), lambda: (normal(7, 65) * 3,))
lse.right("sums in tiles", lambda x: _top(x).squeeze(-1) + torch.log(tiles(torch.exp(x - _top(x)))))
lse.right("online", lambda x: (_online(x)[0] + torch.log(_online(x)[1])).squeeze(-1))
lse.right("two halves", lambda x: torch.logaddexp(torch.logsumexp(x[..., :32], -1), torch.logsumexp(x[..., 32:], -1)))
lse.wrong("not shifted", lambda x: torch.log(torch.exp(x).sum(-1)))
lse.wrong("largest alone", lambda x: x.amax(-1))
lse.wrong("mean", lambda x: torch.logsumexp(x, -1) - math.log(x.shape[-1]))
lse.wrong("last column lost", lambda x: torch.logsumexp(x[..., :-1], -1))
lse.wrong("base 2", lambda x: torch.log2(torch.exp2(x - _top(x)).sum(-1)) + _top(x).squeeze(-1))

PROBLEMS = [
    swiglu, geglu, gelu, gelu_tanh, silu, softplus, mish, squared, quick, dropout, bias_act, softmax, tempered,
    log_softmax, lse,
]  # fmt: skip
