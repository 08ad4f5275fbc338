"""Kernels of log-sigmoid on CUDA: ATen's, which compute exp(-|x|) again in the backward."""

from __future__ import annotations

import torch
from torch import Tensor


def log_sigmoid(x: Tensor) -> tuple[Tensor, Tensor | None]:
    """(out, None)."""
    return torch.ops.aten.log_sigmoid_forward.default(x.contiguous())[0], None


def log_sigmoid_backward(grad: Tensor, x: Tensor, buffer: Tensor | None) -> Tensor:
    """grad / (1 + exp(x))."""
    # ATen's CUDA kernel computes exp(-|x|) itself; the empty buffer fills its place in the signature.
    out: Tensor = torch.ops.aten.log_sigmoid_backward.default(grad.contiguous(), x.contiguous(), x.new_empty((0,)))
    return out
