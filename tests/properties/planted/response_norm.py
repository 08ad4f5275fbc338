"""Faults of local response normalisation."""

from __future__ import annotations

from typing import Any

import torch

from opassay.impl import cross_map_lrn2d

from .fault import Fault

Tensor = torch.Tensor


def _windows(q: Tensor, before: int, after: int) -> Tensor:
    """Sums over the window of every channel, third dim from the end."""
    padded = torch.nn.functional.pad(q, (0, 0, 0, 0, before, after))
    sums: Tensor = padded.unfold(-3, before + after + 1, 1).sum(-1)
    return sums


def _normalised(x: Tensor, sums: Tensor, divisor: Any, alpha: float, beta: float, k: float) -> Tensor:
    a = x.float() if x.dtype.itemsize == 2 else x
    out: Tensor = (a * (k + alpha / divisor * sums).pow(-beta)).to(x.dtype)
    return out


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype.itemsize == 2 else x


def window_off_by_one(x: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
    """As torch.nn.CrossMapLRN2d."""
    return _normalised(x, _windows(_wide(x).square(), size // 2 + 1, (size - 1) // 2), size, alpha, beta, k)


def even_window_on_the_wrong_side(x: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
    return _normalised(x, _windows(_wide(x).square(), (size - 1) // 2, size // 2), size, alpha, beta, k)


def divided_by_the_channels_there_are(x: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
    reach = (size // 2, (size - 1) // 2)
    there = _windows(torch.ones_like(_wide(x)), *reach)
    return _normalised(x, _windows(_wide(x).square(), *reach), there, alpha, beta, k)


def alpha_not_divided(x: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
    return cross_map_lrn2d(x, size, alpha * size, beta, k)


def half_accumulation(x: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
    q = x.square()
    sums = torch.zeros_like(q)
    channels = q.shape[1]
    for shift in range(-min(size // 2, channels - 1), min((size - 1) // 2, channels - 1) + 1):
        sums = sums + _shifted(q, shift)  # rounds to the half type at every step
    return _normalised(x, _wide(sums), size, alpha, beta, k)


def _shifted(q: Tensor, shift: int) -> Tensor:
    """q of the channel `shift` further on, 0 beyond the last."""
    out = torch.zeros_like(q)
    n = q.shape[1] - abs(shift)
    out[:, max(-shift, 0) :][:, :n] = q[:, max(shift, 0) :][:, :n]
    return out


class _NotMirrored(torch.autograd.Function):
    """The gradient sums over the window instead of the mirrored one."""

    @staticmethod
    def forward(x: Tensor, *numbers: Any) -> Tensor:
        return cross_map_lrn2d(x, *numbers)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.numbers = inputs[1:]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        size, alpha, beta, k = ctx.numbers
        reach = (size // 2, (size - 1) // 2)
        s = k + alpha / size * _windows(x.square(), *reach)
        along = _windows(g * x * s.pow(-beta - 1), *reach)
        return g * s.pow(-beta) - 2 * alpha * beta / size * x * along, None, None, None, None


def gradient_window_not_mirrored(x: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
    applied: Tensor = _NotMirrored.apply(x, size, alpha, beta, k)  # type: ignore[no-untyped-call]
    return applied


def base_constant_in_the_gradient(x: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
    sums = _windows(_wide(x).square(), size // 2, (size - 1) // 2).detach()
    return _normalised(x, sums, size, alpha, beta, k)


class _WrongDim(torch.autograd.Function):
    """Under vmap the rule takes the first dim of an image batch for its channels."""

    @staticmethod
    def forward(x: Tensor, *numbers: Any) -> Tensor:
        return cross_map_lrn2d(x, *numbers)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, *numbers: Any) -> Any:
        x = x.movedim(in_dims[0], 0)
        out = cross_map_lrn2d(x.transpose(1, 2).flatten(0, 1), *numbers)
        return out.unflatten(0, (x.shape[0], x.shape[2])).transpose(1, 2), 0


def wrong_dim_under_vmap(x: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
    applied: Tensor = _WrongDim.apply(x, size, alpha, beta, k)  # type: ignore[no-untyped-call]
    return applied


def running_sum(x: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
    """The window as a difference of prefix sums: small channels behind a large one are lost."""
    before, after = size // 2, (size - 1) // 2
    prefix = torch.nn.functional.pad(_wide(x).square(), (0, 0, 0, 0, before + 1, after)).cumsum(1)
    sums = prefix[:, size:] - prefix[:, : prefix.shape[1] - size]
    return _normalised(x, sums, size, alpha, beta, k)


FAULTS = (
    Fault("cross_map_lrn2d", "window off by one channel", window_off_by_one, "FWD"),
    Fault("cross_map_lrn2d", "even window on the wrong side", even_window_on_the_wrong_side, "FWD"),
    Fault("cross_map_lrn2d", "divided by the channels there are", divided_by_the_channels_there_are, "FWD"),
    Fault("cross_map_lrn2d", "alpha not divided by size", alpha_not_divided, "FWD", "float64"),
    Fault("cross_map_lrn2d", "bf16 accumulation of squares", half_accumulation, "FWD", "bfloat16"),
    Fault("cross_map_lrn2d", "gradient's window not mirrored", gradient_window_not_mirrored, "VJP"),
    Fault("cross_map_lrn2d", "base constant in the gradient", base_constant_in_the_gradient, "VJP"),
    Fault("cross_map_lrn2d", "wrong dim under vmap", wrong_dim_under_vmap, "VMAP"),
    Fault("cross_map_lrn2d", "running sum of the window", running_sum, "FWD"),
)
