"""Quietly wrong candidates: faults that a bound is likely to have room for, because it is a worst case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from .formulas import attention, rms_norm, scores
from .orders import Way


@dataclass(frozen=True)
class Quiet:
    """A spec, and a candidate that is wrong by little.

    Attributes:
        name: what is wrong. spec, candidate: functions of tensors. shapes: of those, normal numbers, divided by the
            square root of their length along axis -2 from the second on. dtype: of the arguments.
    """

    name: str
    spec: Way
    candidate: Way
    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype = torch.float32


def sinkhorn(logits: Tensor, rounds: int = 8) -> Tensor:
    """Rows and columns divided by their sums in turn."""
    plan = torch.softmax(logits, -1) + 1e-6
    plan = plan / (plan.sum(-2, keepdim=True) + 1e-6)
    for _ in range(rounds - 1):
        plan = plan / (plan.sum(-1, keepdim=True) + 1e-6)
        plan = plan / (plan.sum(-2, keepdim=True) + 1e-6)
    return plan


def layers(x: Tensor, *weights: Tensor) -> Tensor:
    for weight in weights:
        x = torch.relu(x @ weight) * 1.25
    return x


def residuals(x: Tensor, *weights: Tensor) -> Tensor:
    for weight in weights:
        x = x + torch.tanh(x @ weight)
    return x


def through(way: Way, at: int, change: Callable[[Tensor], Tensor]) -> Way:
    """A network with what comes after so many weights changed."""

    def changed(x: Tensor, *weights: Tensor) -> Tensor:
        return way(change(way(x, *weights[:at])), *weights[at:])

    return changed


def in_bfloat16(x: Tensor) -> Tensor:
    return x.bfloat16().to(x.dtype)


def cut(bits: int, way: Way = lambda x: x) -> Way:
    """A kernel of half types that computes in float32 and drops the bits that the output lacks: 16 or 13 of them."""

    def truncated(*args: Tensor) -> Tensor:
        wide = way(*(t.float() for t in args))
        return ((wide.view(torch.int32) >> bits) << bits).view(torch.float32).to(args[0].dtype)

    return truncated


def raised(way: Way) -> Way:
    """One that rounds away from zero to bfloat16."""

    def away(*args: Tensor) -> Tensor:
        wide = way(*(t.float() for t in args)).view(torch.int32)
        return (((wide + 0xFFFF) >> 16) << 16).view(torch.float32).to(args[0].dtype)

    return away


def attention_of(probability: Callable[[Tensor], Tensor]) -> Way:
    return lambda q, k, v: probability(torch.softmax(scores(q, k), -1)) @ v


def _without_last_key(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    s = scores(q, k)
    least = s.amin(-1, keepdim=True)
    return torch.softmax(s.masked_fill(s == least, -torch.inf), -1) @ v


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, *grads: Tensor) -> Tensor:
        return grads[0] * 1.001


def _with_gradient(way: Way) -> Way:
    return lambda *args: _Scaled.apply(way(*args))


def residual_norm(x: Tensor, r: Tensor, w: Tensor) -> Tensor:
    return rms_norm(x + r, w)


def _sum(x: Tensor, r: Tensor) -> Tensor:
    return x + r


def _half_of(x: Tensor, gate: Tensor) -> Tensor:
    return F.silu(gate) * x * 0.7


_SIX = ((8, 32), *[(32, 32)] * 6)
_ATTENTION = ((2, 12, 16), (2, 40, 16), (2, 40, 8))
_B, _H = torch.bfloat16, torch.float16

QUIET: tuple[Quiet, ...] = (
    Quiet("Sinkhorn times 1.001", sinkhorn, lambda x: sinkhorn(x) * 1.001, ((2, 4, 4),)),
    Quiet("Sinkhorn times 1.0001", sinkhorn, lambda x: sinkhorn(x) * 1.0001, ((2, 4, 4),)),
    Quiet(
        "Sinkhorn, of eight rounds, the seventh in bfloat16",
        lambda x: sinkhorn(x, 8),
        lambda x: in_bfloat16(sinkhorn(x)),
        ((2, 4, 4),),
    ),
    Quiet("Sinkhorn of logits in bfloat16", sinkhorn, lambda x: sinkhorn(in_bfloat16(x)), ((2, 4, 4),)),
    Quiet("six layers times 1 + 3e-5", layers, lambda *a: layers(*a) * (1 + 3e-5), _SIX),
    Quiet("six layers times 1 + 1e-5", layers, lambda *a: layers(*a) * (1 + 1e-5), _SIX),
    Quiet("six layers, bfloat16 before the last", layers, through(layers, 5, in_bfloat16), _SIX),
    Quiet("six layers, float16 before the last", layers, through(layers, 5, lambda x: x.half().float()), _SIX),
    Quiet("six layers, bfloat16 after the first", layers, through(layers, 1, in_bfloat16), _SIX),
    Quiet("six layers, float16 after the first", layers, through(layers, 1, lambda x: x.half().float()), _SIX),
    Quiet(
        "six layers, small activations dropped",
        layers,
        through(layers, 5, lambda x: torch.where(x < 1e-3, 0.0, x)),
        _SIX,
    ),
    Quiet("six residuals, float16 after the first", residuals, through(residuals, 1, lambda x: x.half().float()), _SIX),
    Quiet("six residuals, gradient times 1.001", residuals, _with_gradient(residuals), _SIX),
    Quiet("six residuals, 1e-5 of the input left in", residuals, lambda x, *w: residuals(x, *w) + 1e-5 * x, _SIX),
    Quiet("attention, probabilities in bfloat16", attention, attention_of(in_bfloat16), _ATTENTION),
    Quiet("attention, probabilities in float16", attention, attention_of(lambda p: p.half().float()), _ATTENTION),
    Quiet("attention without the least likely key", attention, _without_last_key, _ATTENTION),
    Quiet(
        "attention, probabilities below 1e-3 dropped",
        attention,
        attention_of(lambda p: torch.where(p < 1e-3, 0.0, p)),
        _ATTENTION,
    ),
    Quiet("sum cut to bfloat16", _sum, cut(16, _sum), ((32, 64), (32, 64)), _B),
    Quiet("sum cut to float16", _sum, cut(13, _sum), ((32, 64), (32, 64)), _H),
    Quiet("product by three rounded away from zero", lambda x: x * 3, raised(lambda x: x * 3), ((32, 64),), _B),
    Quiet("rms norm cut to bfloat16", rms_norm, cut(16, rms_norm), ((32, 64), (64,)), _B),
    Quiet(
        "rms norm of a residual cut to bfloat16", residual_norm, cut(16, residual_norm), ((32, 64), (32, 64), (64,)), _B
    ),
    Quiet(
        "softmax cut to bfloat16",
        lambda x: torch.softmax(x, -1),
        cut(16, lambda x: torch.softmax(x, -1)),
        ((32, 64),),
        _B,
    ),
    Quiet("gated product cut to bfloat16", _half_of, cut(16, _half_of), ((32, 64), (32, 64)), _B),
    Quiet("gated product cut to float16", _half_of, cut(13, _half_of), ((32, 64), (32, 64)), _H),
    Quiet("matrix product cut to bfloat16", torch.matmul, cut(16, torch.matmul), ((16, 64), (64, 32)), _B),
    Quiet("attention cut to bfloat16", attention, cut(16, attention), _ATTENTION, _B),
)
