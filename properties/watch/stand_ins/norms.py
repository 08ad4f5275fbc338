"""Batch norms by the names that torch gives them on devices; the memory that they save beside their results is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
Tensors = tuple[Tensor, ...]


def _with_update(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, momentum: float, eps: float
) -> Tensors:
    reserve = x.new_empty(0, dtype=torch.uint8)  # as CPUs have it
    return (*aten.native_batch_norm(x, weight, bias, mean, var, True, momentum, eps), reserve)


def _cudnn_batch_norm(
    x: Tensor, weight: Tensor, bias: Tensor | None, mean: Tensor | None, var: Tensor | None, training: bool,
    factor: float, eps: float,
) -> Tensors:  # fmt: skip
    own = [None if each is None else each.clone() for each in (mean, var)]
    return tuple(aten.native_batch_norm(x, weight, bias, *own, training, factor, eps))[: 3 if training else 1]


def _cudnn_batch_norm_backward(
    x: Tensor, g: Tensor, weight: Tensor, mean: Tensor | None, var: Tensor | None, save_mean: Tensor | None,
    save_invstd: Tensor | None, eps: float, *reserve: Tensor,
) -> Tensors:  # fmt: skip
    return tuple(
        aten.native_batch_norm_backward(g, x, weight, mean, var, save_mean, save_invstd, True, eps, [True] * 3)
    )


STAND_INS: dict[str, Callable[..., Any]] = {
    "_batch_norm_with_update": _with_update,
    "_batch_norm_no_update": lambda *args: (aten.native_batch_norm(*args[:5], False, *args[5:])[0],),
    "batch_norm_backward": lambda *args: tuple(aten.native_batch_norm_backward(*args[:-1])),
    "cudnn_batch_norm": _cudnn_batch_norm,
    "miopen_batch_norm": _cudnn_batch_norm,
    "cudnn_batch_norm_backward": _cudnn_batch_norm_backward,
    "miopen_batch_norm_backward": _cudnn_batch_norm_backward,
}
