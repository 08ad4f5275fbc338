"""Kernels of log-sigmoid on CUDA: Triton's, which compute exp(-|x|) again in the backward; else the CPU's."""

from __future__ import annotations

import torch
from torch import Tensor

from ..gpu import blocks
from ..gpu.launching import by_triton, empty, launch
from . import kernels_cpu

#: Elements of a program: 16 for each of its threads, which are four 16-byte loads of float32.
_BLOCK = 4096


def _composed(x: Tensor) -> tuple[Tensor, Tensor | None]:
    return kernels_cpu.log_sigmoid(x)[0], None


@by_triton("log_sigmoid", _composed)
def log_sigmoid(x: Tensor) -> tuple[Tensor, Tensor | None]:
    """(out, None)."""
    from . import kernels_triton as texts

    out = empty(x.shape, x.dtype, x.device)
    _launch_elements(texts.log_sigmoid_forward, (x.contiguous(), out))
    return out, None


def _composed_backward(grad: Tensor, x: Tensor, buffer: Tensor | None) -> Tensor:
    return kernels_cpu.backward_at_once(grad, x)


@by_triton("log_sigmoid_backward", _composed_backward)
def log_sigmoid_backward(grad: Tensor, x: Tensor, buffer: Tensor | None) -> Tensor:
    """grad / (1 + exp(x))."""
    # Reading exp(-|x|) costs more than computing it, so a buffer is not read where there is one.
    from . import kernels_triton as texts

    out = empty(x.shape, x.dtype, x.device)
    _launch_elements(texts.log_sigmoid_backward, (grad.contiguous(), x.contiguous(), out))
    return out


def _launch_elements(kernel: object, tensors: tuple[Tensor, ...]) -> None:
    """One kernel over all elements of contiguous tensors."""
    out = tensors[-1]
    constants = {"DOUBLE": out.dtype is torch.float64, "BLOCK": _BLOCK}
    launch(kernel, (blocks.ceil_div(out.numel(), _BLOCK),), (*tensors, out.numel()), constants, blocks.warps(_BLOCK))
