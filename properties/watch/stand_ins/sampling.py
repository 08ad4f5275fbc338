"""Backwards of what reads an image at points, and of alignments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .pulled_back import pull_back, pull_back_masked


def _pull_grid(name: str) -> Callable[..., list[Tensor | None]]:
    """The cotangents of an image and of the grid, of which the mask says which are asked for."""

    def backward(
        g: Tensor, x: Tensor, grid: Tensor, mode: int, padding: int, corners: bool, output_mask: Sequence[bool]
    ) -> list[Tensor | None]:
        return pull_back_masked(name, [x, grid, mode, padding, corners], g, output_mask)

    return backward


def _ctc_loss_backward(
    g: Tensor, x: Tensor, targets: Tensor, steps: Any, lengths: Any, loss: Tensor, table: Tensor, blank: int,
    zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """From the operands of the forward, of which the loss and its table are functions."""
    counts = [n if isinstance(n, Tensor) else torch.tensor(n) for n in (steps, lengths)]
    return pull_back("_ctc_loss.Tensor", [x, targets, *counts, blank, zero_infinity], [g])[0]


def _ctc_loss(*args: Any) -> Tensor:
    """The loss alone: the shape of the table beside it hangs on the lengths."""
    loss: Tensor = torch.ops.aten._ctc_loss(*args)[0]
    return loss


STAND_INS: dict[str, Callable[..., Any]] = {
    "grid_sampler_2d_backward": _pull_grid("grid_sampler_2d"),
    "grid_sampler_3d_backward": _pull_grid("grid_sampler_3d"),
    "_ctc_loss": _ctc_loss,
    "_ctc_loss.Tensor": _ctc_loss,
    "_ctc_loss_backward": _ctc_loss_backward,
    "_ctc_loss_backward.Tensor": _ctc_loss_backward,
}
