"""Everyday functions as people write them: a forward in torch, a backward by hand, and the same with one defect."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from opassay.reference.array import sigmoid

Backward = Callable[..., Any]


@dataclass(frozen=True)
class Stated:
    """A formula in NumPy, what torch has for it, and that with a defect; all take one tensor of (rows, row)."""

    formula: Callable[[Any], Any]
    right: Callable[[Tensor], Tensor]
    wrong: Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Everyday:
    """A function: `backward` and `wrong` take the cotangent, the output and the arguments of `forward`."""

    forward: Callable[..., Tensor]
    backward: Backward
    wrong: Backward
    samples: Callable[[Any], tuple[Tensor, ...]]


def function_of(forward: Callable[..., Tensor], backward: Backward) -> Any:
    """A custom function of that forward and that backward."""

    def setup(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.save_for_backward(output, *inputs)

    members = {
        "forward": staticmethod(forward),
        "setup_context": staticmethod(setup),
        "backward": staticmethod(lambda ctx, g: backward(g, *ctx.saved_tensors)),
        "generate_vmap_rule": True,
    }
    return type("Everyday", (torch.autograd.Function,), members)


# --------------------------------------------------------------------------------------------------- samples


def _tensor(values: Any) -> Tensor:
    return torch.from_numpy(np.asarray(values, dtype=np.float64))


def _rounded(values: Any) -> Any:
    """To float32, as float64."""
    return np.asarray(values, dtype=np.float32).astype(np.float64)


def normal(*shapes: tuple[int, ...]) -> Callable[[Any], tuple[Tensor, ...]]:
    """Standard normal tensors, some elements of which are 0, 1 or −1, where kinks are."""

    def draw(rng: Any) -> tuple[Tensor, ...]:
        values = [2.0 * rng.standard_normal(shape) for shape in shapes]
        round_ = [np.where(rng.random(v.shape) < 0.3, rng.integers(-1, 2, v.shape), v) for v in values]
        return tuple(map(_tensor, round_))

    return draw


def positive(*shapes: tuple[int, ...]) -> Callable[[Any], tuple[Tensor, ...]]:
    return lambda rng: tuple(_tensor(np.exp(rng.standard_normal(shape))) for shape in shapes)


def tied(rng: Any) -> tuple[Tensor, Tensor]:
    """Two tensors with many equal elements, and rows with several largest ones."""
    a, b = (rng.integers(-2, 3, (3, 5)).astype(np.float64) for _ in range(2))
    return _tensor(a), _tensor(b)


def cancelling(rng: Any) -> tuple[Tensor, Tensor, Tensor]:
    """x, W, b with b = −x W for the first row, but for rounding."""
    x, w = (_rounded(rng.standard_normal(shape)) for shape in ((4, 3), (3, 5)))
    return _tensor(x), _tensor(w), _tensor(-_rounded(x[0] @ w))


def constant_rows(rng: Any) -> tuple[Tensor]:
    return (_tensor(np.where(rng.random((4, 1)) < 0.5, rng.standard_normal((4, 1)), rng.standard_normal((4, 6)))),)


def logits(rng: Any) -> tuple[Tensor, Tensor]:
    return _tensor(4.0 * rng.standard_normal((3, 5))), _tensor(rng.dirichlet(np.ones(5), 3))


X = normal((4, 6))
XY = normal((4, 6), (4, 6))


# ------------------------------------------------------------------------------------- functions of several steps


def _centred(g: Tensor) -> Tensor:
    return g - g.mean(-1, keepdim=True)


def _standardized(x: Tensor) -> Tensor:
    c = x - x.mean(-1, keepdim=True)
    return c / (c.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def _standardized_backward(g: Tensor, y: Tensor, x: Tensor, whole: bool = True) -> Tensor:
    c = x - x.mean(-1, keepdim=True)
    s = (c.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    return (_centred(g) - c / s * (g * (c / s)).mean(-1, keepdim=True)) / s if whole else _centred(g) / s


def _rms(x: Tensor) -> Tensor:
    return (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()


def _rms_norm_backward(g: Tensor, y: Tensor, x: Tensor, w: Tensor, times: float = 1.0) -> tuple[Tensor, Tensor]:
    r = 1.0 / _rms(x)
    return (g * w - x * r * (g * w * x * r).mean(-1, keepdim=True) * times) * r, (g * (x * r)).sum(0)


def _norm(x: Tensor) -> Tensor:
    return x.square().sum(-1, keepdim=True).sqrt()


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-1, keepdim=True) / (_norm(a) * _norm(b))


def _cosine_backward(g: Tensor, y: Tensor, a: Tensor, b: Tensor, whole: bool = True) -> tuple[Tensor, Tensor]:
    na, nb = _norm(a), _norm(b)
    d_a, d_b = g * (b / (na * nb) - y * a / na.square()), g * (a / (na * nb) - y * b / nb.square())
    return d_a, d_b if whole else g * (a / (na * nb))


def _affine_relu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return (x @ w + b).relu()


def _affine_relu_backward(g: Tensor, y: Tensor, x: Tensor, w: Tensor, b: Tensor, leak: float = 0.0) -> Any:
    g = torch.where(y > 0, g, g * leak)
    return g @ w.t(), x.t() @ g, g.sum(0)


def _amax_backward(g: Tensor, y: Tensor, x: Tensor) -> Tensor:
    largest = (x == y).to(x.dtype)
    return g * largest / largest.sum(-1, keepdim=True)


def _huber(x: Tensor, y: Tensor) -> Tensor:
    r = (x - y).abs()
    return torch.where(r <= 1.0, 0.5 * r.square(), r - 0.5)


def _bce(x: Tensor, t: Tensor) -> Tensor:
    return x.clamp(min=0.0) - x * t + torch.log1p(torch.exp(-x.abs()))


def _both(g: Tensor) -> tuple[Tensor, Tensor]:
    return g, -g


def _soft_cross_entropy(x: Tensor, t: Tensor) -> Tensor:
    return -(t * F.log_softmax(x, -1)).sum(-1)


def _soft_cross_entropy_backward(g: Tensor, y: Tensor, x: Tensor, t: Tensor, total: bool = True) -> Any:
    p, weight = F.softmax(x, -1), t.sum(-1, keepdim=True) if total else 2.0
    return g[:, None] * (p * weight - t), -g[:, None] * F.log_softmax(x, -1)


def _mish_backward(g: Tensor, y: Tensor, x: Tensor, times: float = 1.0) -> Tensor:
    t = torch.tanh(F.softplus(x))
    return g * (t + x * (1 - t * t) * torch.sigmoid(x) * times)


# ------------------------------------------------------------------------------------------------------ the table

FUNCTIONS: dict[str, Everyday] = {
    "relu": Everyday(lambda x: torch.relu(x), lambda g, y, x: g * (x > 0), lambda g, y, x: g * (x >= 0), X),
    "abs": Everyday(
        lambda x: torch.abs(x), lambda g, y, x: g * x.sign(), lambda g, y, x: torch.where(x >= 0, g, -g), X),
    "clip": Everyday(
        lambda x: x.clamp(-1.0, 1.0), lambda g, y, x: g * (x.abs() <= 1), lambda g, y, x: g * (x.abs() < 1), X),
    "clip from below": Everyday(
        lambda x: x.clamp(min=1.0), lambda g, y, x: g * (x >= 1), lambda g, y, x: g * (x > 1), X),
    "maximum": Everyday(
        lambda a, b: torch.maximum(a, b),
        lambda g, y, a, b: (g * ((a > b) + 0.5 * (a == b)), g * ((a < b) + 0.5 * (a == b))),
        lambda g, y, a, b: (g * (a >= b), g * (a < b)), tied),
    "minimum": Everyday(
        lambda a, b: torch.minimum(a, b),
        lambda g, y, a, b: (g * ((a < b) + 0.5 * (a == b)), g * ((a > b) + 0.5 * (a == b))),
        lambda g, y, a, b: (g * (a < b), g * (a > b)), tied),
    "amax": Everyday(
        lambda x: x.amax(-1, True), _amax_backward, lambda g, y, x: g * (x == y), lambda rng: tied(rng)[:1]),
    "sigmoid": Everyday(
        lambda x: torch.sigmoid(x), lambda g, y, x: g * (y * (1 - y)),
        lambda g, y, x: g * (y * (1 - y)) * (1 + 1e-5), X),
    "sigmoid by exp": Everyday(
        lambda x: 1 / (1 + torch.exp(-x)), lambda g, y, x: g * torch.exp(-x) / (1 + torch.exp(-x)).square(),
        lambda g, y, x: g * y * y, X),
    "softplus": Everyday(
        lambda x: F.softplus(x), lambda g, y, x: g * torch.sigmoid(x), lambda g, y, x: g * torch.exp(-y), X),
    "hinge": Everyday(
        lambda x, t: (1 - x * t).relu(), lambda g, y, x, t: (-g * t * (y > 0), -g * x * (y > 0)),
        lambda g, y, x, t: (-g * t, -g * x * (y > 0)), XY),
    "huber": Everyday(
        _huber, lambda g, y, x, t: _both(g * (x - t).clamp(-1, 1)),
        lambda g, y, x, t: _both(g * (x - t).clamp(-1.01, 1.01)), XY),
    "relu of a product": Everyday(
        _affine_relu, _affine_relu_backward, functools.partial(_affine_relu_backward, leak=1e-3), cancelling),
    "centred, squared": Everyday(
        lambda x: (x - x.mean(-1, keepdim=True)) ** 2,
        lambda g, y, x: _centred(2 * g * (x - x.mean(-1, keepdim=True))),
        lambda g, y, x: 2 * g * (x - x.mean(-1, keepdim=True)), constant_rows),
    "centred, cubed": Everyday(
        lambda x: (x - x.mean(-1, keepdim=True)) ** 3,
        lambda g, y, x: _centred(3 * g * (x - x.mean(-1, keepdim=True)).square()),
        lambda g, y, x: _centred(3 * g * (x - x.mean(-1, keepdim=True)).abs()), constant_rows),
    "centred relu": Everyday(
        lambda x: (x - x.mean(-1, keepdim=True)).relu(), lambda g, y, x: _centred(g * (y > 0)),
        lambda g, y, x: g * (y > 0), constant_rows),
    "leaky relu": Everyday(
        lambda x: F.leaky_relu(x), lambda g, y, x: torch.where(x > 0, g, g * 0.01),
        lambda g, y, x: torch.where(x > 0, g, g * 0.011), X),
    "hardtanh": Everyday(
        lambda x: F.hardtanh(x), lambda g, y, x: g * (x.abs() < 1), lambda g, y, x: g * (x.abs() <= 1), X),
    "relu6": Everyday(lambda x: F.relu6(x), lambda g, y, x: g * ((x > 0) & (x < 6)), lambda g, y, x: g * (x < 6), X),
    "squared relu": Everyday(
        lambda x: x.relu().square(), lambda g, y, x: 2 * g * x.relu(), lambda g, y, x: 2 * g * x, X),
    "logsumexp": Everyday(
        lambda x: torch.logsumexp(x, -1), lambda g, y, x: g[:, None] * torch.softmax(x, -1),
        lambda g, y, x: g[:, None] * torch.softmax(x.abs(), -1), X),
    "softmax": Everyday(
        lambda x: torch.softmax(x, -1), lambda g, y, x: y * (g - (g * y).sum(-1, keepdim=True)),
        lambda g, y, x: y * (g - (g * y).mean(-1, keepdim=True)), X),
    "log softmax": Everyday(
        lambda x: torch.log_softmax(x, -1), lambda g, y, x: g - y.exp() * g.sum(-1, keepdim=True),
        lambda g, y, x: g - y.exp() * g, X),
    "rms norm": Everyday(
        lambda x, w: x / _rms(x) * w, _rms_norm_backward, functools.partial(_rms_norm_backward, times=0.999),
        normal((4, 6), (6,))),
    "standardize": Everyday(
        _standardized, _standardized_backward, functools.partial(_standardized_backward, whole=False), constant_rows),
    "cosine similarity": Everyday(
        _cosine, _cosine_backward, functools.partial(_cosine_backward, whole=False), positive((4, 6), (4, 6))),
    "norm": Everyday(
        lambda x: _norm(x), lambda g, y, x: g * x / y, lambda g, y, x: g * x / (y + 1e-4), positive((4, 6))),
    "normalize": Everyday(
        lambda x: x / _norm(x), lambda g, y, x: (g - y * (g * y).sum(-1, keepdim=True)) / _norm(x),
        lambda g, y, x: (g - y * g) / _norm(x), positive((4, 6))),
    "elu": Everyday(
        lambda x: F.elu(x), lambda g, y, x: torch.where(x > 0, g, g * x.exp()),
        lambda g, y, x: torch.where(x > 0, g, -g * y), X),
    "silu": Everyday(
        lambda x: F.silu(x), lambda g, y, x: g * torch.sigmoid(x) * (1 + x * (1 - torch.sigmoid(x))),
        lambda g, y, x: g * torch.sigmoid(x) * (1 + x), X),
    "mish": Everyday(
        lambda x: x * torch.tanh(F.softplus(x)), _mish_backward, functools.partial(_mish_backward, times=0.99), X),
    "softsign": Everyday(
        lambda x: x / (1 + x.abs()), lambda g, y, x: g / (1 + x.abs()).square(), lambda g, y, x: g / (1 + x.square()),
        X),
    "hardsigmoid": Everyday(
        lambda x: F.relu6(x + 3) / 6, lambda g, y, x: g * ((x > -3) & (x < 3)) / 6,
        lambda g, y, x: g * (x > -3) / 6, X),
    "tanh": Everyday(lambda x: torch.tanh(x), lambda g, y, x: g * (1 - y * y), lambda g, y, x: g * (1 - y.abs()), X),
    "exp": Everyday(lambda x: torch.exp(x), lambda g, y, x: g * y, lambda g, y, x: g * y * (1 + 1e-6), X),
    "log1p": Everyday(
        lambda x: torch.log1p(x), lambda g, y, x: g / (1 + x), lambda g, y, x: g / x, positive((4, 6))),
    "root": Everyday(lambda x: torch.sqrt(x), lambda g, y, x: g / (2 * y), lambda g, y, x: g / y, positive((4, 6))),
    "reciprocal root": Everyday(
        lambda x: torch.rsqrt(x), lambda g, y, x: -0.5 * g * y * y * y,
        lambda g, y, x: -0.5 * g * y * y, positive((4, 6))),
    "squared error": Everyday(
        lambda x, t: (x - t).square().mean(), lambda g, y, x, t: _both(2 * g * (x - t) / x.numel()),
        lambda g, y, x, t: _both(2 * g * (x - t) / x.shape[0]), XY),
    "absolute error": Everyday(
        lambda x, t: (x - t).abs().mean(), lambda g, y, x, t: _both(g * (x - t).sign() / x.numel()),
        lambda g, y, x, t: _both(g * torch.where(x >= t, 1.0, -1.0).to(g.dtype) / x.numel()), tied),
    "logistic loss": Everyday(
        _bce, lambda g, y, x, t: (g * (torch.sigmoid(x) - t), -g * x),
        lambda g, y, x, t: (g * torch.sigmoid(x), -g * x),
        positive((3, 5), (3, 5))),
    "soft cross entropy": Everyday(
        _soft_cross_entropy, _soft_cross_entropy_backward,
        functools.partial(_soft_cross_entropy_backward, total=False), logits),
    "linear": Everyday(
        lambda x, w, b: x @ w + b, lambda g, y, x, w, b: (g @ w.t(), x.t() @ g, g.sum(0)),
        lambda g, y, x, w, b: (g @ w.t(), x.t() @ g, g.mean(0)), normal((4, 3), (3, 5), (5,))),
    "log cosh": Everyday(
        lambda x: F.softplus(-2 * x) + x - 0.5, lambda g, y, x: g * (1 - 2 * torch.sigmoid(-2 * x)),
        lambda g, y, x: g * (1 - torch.sigmoid(-2 * x)), X),
}  # fmt: skip


def _mean(x: Any) -> Any:
    return np.mean(x, axis=-1, keepdims=True)


def _softplus_formula(x: Any) -> Any:
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.absolute(x)))


#: Any slope between the one-sided ones is right at a kink of these, so torch's own functions are, whatever they take.
FORMULAS: dict[str, Stated] = {
    "relu": Stated(lambda x: np.maximum(x, 0.0), lambda x: x.relu(), lambda x: torch.where(x > -1e-3, x, 0 * x)),
    "relu by clamp": Stated(lambda x: np.maximum(x, 0.0), lambda x: x.clamp(min=0), lambda x: x.clamp(min=1e-6)),
    "relu by where": Stated(lambda x: np.where(x > 0, x, 0.0), lambda x: x.relu(), lambda x: x.abs()),
    "abs": Stated(np.absolute, lambda x: x.abs(), lambda x: (x * x + 1e-6).sqrt()),
    "clip": Stated(
        lambda x: np.minimum(np.maximum(x, -1.0), 1.0), lambda x: F.hardtanh(x), lambda x: x.clamp(-1, 1.01)),
    "amax": Stated(lambda x: np.max(x, axis=-1), lambda x: x.amax(-1), lambda x: torch.logsumexp(x, -1)),
    "max with index": Stated(lambda x: np.max(x, axis=-1), lambda x: x.max(-1).values, lambda x: x.abs().amax(-1)),
    "centred relu": Stated(
        lambda x: np.maximum(x - _mean(x), 0.0), lambda x: (x - x.mean(-1, True)).relu(),
        lambda x: (x - x.mean(-1, True).detach()).relu()),
    "squared deviation": Stated(
        lambda x: (x - _mean(x)) ** 2, lambda x: (x - x.mean(-1, True)).square(),
        lambda x: (x - x.mean(-1, True)).square() + 1e-5),
    "cubed deviation": Stated(
        lambda x: (x - _mean(x)) ** 3, lambda x: (x - x.mean(-1, True)) ** 3,
        lambda x: (x - x.mean(-1, True)).abs() ** 3),
    "softplus": Stated(
        _softplus_formula, lambda x: x.clamp(min=0) + torch.log1p(torch.exp(-x.abs())),
        lambda x: x.clamp(min=0) + torch.log(1 + torch.exp(-x.abs()))),
    "sigmoid": Stated(sigmoid, lambda x: x.sigmoid(), lambda x: 0.5 * (1 + torch.tanh(0.5 * x))),
}  # fmt: skip
