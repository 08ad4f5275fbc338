"""Kernels of local response normalisation on CUDA: Triton's; without Triton the expressions that serve the CPU.

Nothing is kept for the backward: reading s and s^beta costs more than adding up the window again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..gpu import blocks
from ..gpu.launching import as_operand, by_triton, empty, launch
from ..operator.precision import HALF, compute_dtype
from . import kernels_cpu
from .kernels_cpu import ImagesBackward

#: Channels on both sides of the longest window that is kept in registers, together.
_REACH = 8
#: Channels of a program: with few the halo is much of what it reads, with many its code is long, and long to
#: compile. A general power makes it longer still.
_CHUNK, _GENERAL_CHUNK = 16, 8
_KINDS = {0.0: "0", 1.0: "1", 2.0: "2", 0.5: "1/2", 0.75: "3/4"}


class _Shape(NamedTuple):
    """How a call is cut: operands that say the shape, channels of the window, lanes of a program, its channels."""

    lanes: int
    channels: int
    positions: int
    before: int
    after: int
    width: int
    chunk: int

    @property
    def programs(self) -> int:
        return blocks.ceil_div(self.lanes, self.width) * blocks.ceil_div(self.channels, self.chunk)

    @property
    def operands(self) -> tuple[int, int, int]:
        return self.lanes, self.channels, self.positions

    @property
    def is_long(self) -> bool:
        return self.before + self.after > _REACH


def _shape(x: Tensor, before: int, after: int, values: int, usual: bool = True) -> _Shape:
    """How a tensor (..., C, H, W) is cut, by its shape alone.

    Args:
        x: the tensor.
        before, after: channels of the window around its centre.
        values: how many numbers per channel of the window a kernel keeps in registers.
        usual: whether the exponent is one that takes no general power.
    """
    channels, positions = x.shape[-3], x.shape[-2] * x.shape[-1]
    lanes = x.numel() // channels
    long = before + after > _REACH
    # A thread has a few lanes, as far as their windows find place in its registers.
    each = 4 if long or (usual and values * (before + after + 1) <= 20) else 1
    # In the half types 8 lanes are 16 bytes, which is what a thread should load at once. Where the positions do not
    # fill such loads, the addresses of single lanes would need more registers than there are.
    if x.dtype in HALF and each > 1 and not long and positions % 8 == 0:
        each = 8
    width = 128 * min(each, blocks.power_of_two(blocks.ceil_div(lanes, 128)))
    chunk = min(_CHUNK if usual else _GENERAL_CHUNK, blocks.power_of_two(channels))
    return _Shape(lanes, channels, positions, before, after, width, 1 if long else chunk)


@by_triton("cross_map_lrn2d", kernels_cpu.cross_map_lrn2d)
def cross_map_lrn2d(x: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
    """a s^(-beta) for x of shape (..., C, H, W): contiguous, in x's dtype.

    Args:
        x, size, alpha, beta, k: as for the CPU's.
    """
    if beta == 0 or not x.numel():
        return kernels_cpu.cross_map_lrn2d(x, size, alpha, beta, k)
    from . import kernels_triton as texts

    out = empty(x.shape, x.dtype, x.device)
    cut = _shape(x, *kernels_cpu.reach(size, x.shape[-3]), 2, abs(beta) in _KINDS)
    numbers = _operands(x.dtype, alpha / size, k, abs(beta))
    constants = {"KIND": _kind(abs(beta)), "UP": beta < 0, "FAST": x.dtype in HALF}
    _launch(
        (texts.response_norm_forward, texts.response_norm_forward_long), (x.contiguous(), out), cut, numbers, constants
    )
    return out


def cross_map_lrn2d_keeping(
    x: Tensor, size: int, alpha: float, beta: float, k: float
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """(`cross_map_lrn2d`, None, None).

    Args:
        x, size, alpha, beta, k: as for the CPU's.
    """
    return cross_map_lrn2d(x, size, alpha, beta, k), None, None


@by_triton("cross_map_lrn2d_backward", kernels_cpu.cross_map_lrn2d_backward)
def cross_map_lrn2d_backward(args: ImagesBackward) -> Tensor:
    """g s^(-beta) - (2 alpha beta / size) a W'(g a s^(-beta - 1)): contiguous, in x's dtype. No s is read."""
    grad_out, x, _, _, size, alpha, beta, k = args
    if beta == 0 or not x.numel():
        return kernels_cpu.cross_map_lrn2d_backward(args)
    from . import kernels_triton as texts

    out = empty(x.shape, x.dtype, x.device)
    cut = _shape(x, *kernels_cpu.reach(size, x.shape[-3]), 4, abs(beta) in _KINDS)
    g, a, slope = grad_out.contiguous(), x.contiguous(), _operands(x.dtype, -2 * alpha * beta / size)
    numbers = _operands(x.dtype, alpha / size, k, abs(beta), -beta - 1)
    constants = {"KIND": _kind(abs(beta)), "INNER_KIND": _kind(-beta - 1), "UP": beta < 0, "FAST": x.dtype in HALF}
    if not cut.is_long:
        _launch((texts.response_norm_backward,), (g, a, out), cut, (*numbers, *slope), constants)
        return out
    scaled, terms = (empty(x.shape, compute_dtype(x.dtype), x.device) for _ in range(2))
    _launch((None, texts.response_norm_terms_long), (g, a, scaled, terms), cut, numbers, constants)
    _launch((None, texts.response_norm_backward_long), (scaled, a, terms, out), cut, slope, {})
    return out


@by_triton("channel_window_sum", kernels_cpu.window_sum)
def window_sum(x: Tensor, before: int, after: int) -> Tensor:
    """The sum over channels c - before to c + after for every channel c of x (..., C, H, W): contiguous."""
    if not x.numel():
        return kernels_cpu.window_sum(x, before, after)
    from . import kernels_triton as texts

    out = empty(x.shape, x.dtype, x.device)
    _launch((texts.window_sum, texts.window_sum_long), (x.contiguous(), out), _shape(x, before, after, 1), (), {})
    return out


def _operands(dtype: torch.dtype, *numbers: float) -> tuple[float | int, ...]:
    return tuple(as_operand(float(number), compute_dtype(dtype)) for number in numbers)


def _kind(exponent: float) -> str:
    """The kind of an exponent, for which a kernel is compiled."""
    kind = _KINDS.get(exponent)
    if kind is None:
        kind = "general" if exponent % 1 else "odd" if exponent % 2 else "even"
    return kind


def _launch(
    kernels: tuple[object, ...], tensors: tuple[Tensor, ...], cut: _Shape, numbers: tuple[float | int, ...],
    constants: dict[str, Any],
) -> None:  # fmt: skip
    """One kernel over all lanes and channels.

    Args:
        kernels: for windows that fit into registers, and for others.
        tensors: contiguous and of one shape, the result last.
        cut: how the shape is cut.
        numbers, constants: the kernel's, beside those of the shape.
    """
    constants = {**constants, "DOUBLE": tensors[-1].dtype is torch.float64, "LANES": cut.width}
    if cut.is_long:
        operands = (*tensors, *cut.operands, *numbers, cut.before, cut.after)
        launch(kernels[1], (cut.programs,), operands, constants)
    else:
        constants |= {"BEFORE": cut.before, "AFTER": cut.after, "CHUNK": cut.chunk}
        launch(kernels[0], (cut.programs,), (*tensors, *cut.operands, *numbers), constants)
