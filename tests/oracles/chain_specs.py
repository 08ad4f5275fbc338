"""Specs that repeat a step: normalisations in turn, Sinkhorn's algorithm, and the steps of Newton and Schulz."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Spec = Callable[..., Any]


def sinkhorn(rounds: int) -> Spec:
    def spec(x: Tensor) -> Tensor:
        p = torch.exp(x)
        for _ in range(rounds):
            p = p / p.sum(-1, keepdim=True)
            p = p / p.sum(-2, keepdim=True)
        return p

    return spec


def layer_norms(count: int) -> Spec:
    def spec(x: Tensor) -> Tensor:
        for _ in range(count):
            x = torch.nn.functional.layer_norm(x, (x.shape[-1],))
        return x

    return spec


def norms_spelled_out(count: int, eps: float = 1e-5, inside: bool = True) -> Spec:
    def spec(x: Tensor) -> Tensor:
        for _ in range(count):
            apart = x - x.mean(-1, keepdim=True)
            variance = (apart * apart).mean(-1, keepdim=True)
            x = apart * torch.rsqrt(variance + eps) if inside else apart / (torch.sqrt(variance) + eps)
        return x

    return spec


def newton_schulz(steps: int, product: Callable[[Tensor, Tensor], Tensor] = torch.matmul) -> Spec:
    def spec(g: Tensor) -> Tensor:
        x = g / (torch.sqrt((g * g).sum()) + 1e-7)
        for _ in range(steps):
            a = product(x, x.T)
            b = -4.7750 * a + 2.0315 * product(a, a)
            x = 3.4445 * x + product(b, x)
        return x

    return spec


def power_iteration(rounds: int, scale: float = 1.0) -> Spec:
    """The largest singular value of a matrix, as spectral normalisation estimates it."""

    def to_length_1(v: Tensor) -> Tensor:
        return v / (torch.sqrt((v * v).sum()) + 1e-12)

    def spec(w: Tensor) -> Tensor:
        u = w[:, 0]
        for _ in range(rounds):
            u = to_length_1(w @ to_length_1(w.mT @ u))
        return (u @ (w @ to_length_1(w.mT @ u)) * scale)[None]

    return spec
