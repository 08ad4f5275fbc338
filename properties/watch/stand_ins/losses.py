"""Losses, and the backwards of these and of rectifiers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .pulled_back import pull_back


def _negative_log_likelihood(name: str) -> Callable[..., tuple[Tensor, ...]]:
    """The loss, and the sum of the weights where it is reduced by them; else nobody writes that."""

    def forward(x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, index: int) -> tuple[Tensor, ...]:
        return tuple(getattr(torch.ops.aten, name)(x, target, weight, reduction, index))[: 2 if reduction else 1]

    return forward


def _rrelu_backward(
    g: Tensor, x: Tensor, noise: Tensor, lower: float, upper: float, training: bool, self_is_result: bool
) -> Tensor:
    """By the slopes that were drawn in training, 1 where an element is positive; else by their mean.

    Slopes that are closer than 1e-6 count as one; the number is torch's own, as are the limits of the losses below.
    """
    return g * noise if training and upper - lower > 1e-6 else torch.where(x > 0, g, g * ((lower + upper) / 2))


def _reduce(loss: Tensor, reduction: int) -> Tensor:
    return loss.mean() if reduction == 1 else loss.sum() if reduction else loss


def _binary_cross_entropy(x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1) -> Tensor:
    """Step by step in the dtype of the operands, as the kernels of half types go."""
    log_x, log_rest = torch.clamp(torch.log(x), min=-100.0), torch.clamp(torch.log1p(-x), min=-100.0)
    loss = (target - 1) * log_rest - target * log_x
    return _reduce(loss if weight is None else loss * weight, reduction)


def _binary_cross_entropy_backward(
    g: Tensor, x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    gradient = g * (x - target) / torch.clamp((1 - x) * x, min=1e-12)
    gradient = gradient if weight is None else gradient * weight
    return gradient / x.numel() if reduction == 1 else gradient


def _soft_margin_loss_backward(g: Tensor, x: Tensor, target: Tensor, reduction: int) -> Tensor:
    power = torch.exp(-target * x)
    return target * power * (-1.0 / x.numel() if reduction == 1 else -1.0) / (power + 1) * g


def _logit_backward(g: Tensor, x: Tensor, eps: float | None = None) -> Tensor:
    """NaN beyond 0 and 1; with `eps`, 0 beyond what the operand is clamped to."""
    low, beyond = (0.0, math.nan) if eps is None else (eps, 0.0)
    return torch.where((x < low) | (x > 1 - low), beyond, g / (x * (1 - x)))


def _log_sigmoid_backward(g: Tensor, x: Tensor, buffer: Tensor) -> Tensor:
    """From exp(−|x|), which the forward saves on CPUs alone."""
    power = buffer if buffer.numel() else torch.exp(-x.abs())
    share = power / (1 + power)
    return g * torch.where(x < 0, 1 - share, share)


def _log_sigmoid_forward(x: Tensor) -> tuple[Tensor, ...]:
    loss = torch.nn.functional.logsigmoid(x)
    return (loss, torch.exp(-x.abs())) if x.device.type == "cpu" else (loss,)


STAND_INS: dict[str, Callable[..., Any]] = {
    "multi_margin_loss_backward": lambda g, *args: pull_back("multi_margin_loss", args, [g])[0],
    "multilabel_margin_loss_backward": lambda g, *args: pull_back("multilabel_margin_loss_forward", args[:-1], [g])[0],
    "nll_loss_forward": _negative_log_likelihood("nll_loss_forward"),
    "nll_loss2d_forward": _negative_log_likelihood("nll_loss2d_forward"),
    "rrelu_with_noise_backward": _rrelu_backward,
    "binary_cross_entropy": _binary_cross_entropy,
    "binary_cross_entropy_backward": _binary_cross_entropy_backward,
    "soft_margin_loss_backward": _soft_margin_loss_backward,
    "logit_backward": _logit_backward,
    "log_sigmoid_backward": _log_sigmoid_backward,
    "log_sigmoid_forward": _log_sigmoid_forward,
}
