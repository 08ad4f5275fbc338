"""The backwards of losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .pulled_back import pull_back


def _multi_margin_loss_backward(g: Tensor, x: Tensor, *args: Any) -> Tensor:
    return pull_back("multi_margin_loss", [x, *args], [g])[0]


def _multilabel_margin_loss_backward(g: Tensor, x: Tensor, target: Tensor, reduction: int, is_target: Tensor) -> Tensor:
    return pull_back("multilabel_margin_loss_forward", [x, target, reduction], [g])[0]


def _log_sigmoid_backward(g: Tensor, x: Tensor, buffer: Tensor) -> Tensor:
    """From exp(−|x|), which the forward saves on CPUs alone."""
    power = buffer if buffer.numel() else torch.exp(-x.abs())
    share = power / (1 + power)
    return g * torch.where(x < 0, 1 - share, share)


def _log_sigmoid_forward(x: Tensor) -> tuple[Tensor, ...]:
    loss = torch.nn.functional.logsigmoid(x)
    return (loss, torch.exp(-x.abs())) if x.device.type == "cpu" else (loss,)


STAND_INS: dict[str, Callable[..., Any]] = {
    "multi_margin_loss_backward": _multi_margin_loss_backward,
    "multilabel_margin_loss_backward": _multilabel_margin_loss_backward,
    "log_sigmoid_backward": _log_sigmoid_backward,
    "log_sigmoid_forward": _log_sigmoid_forward,
}
