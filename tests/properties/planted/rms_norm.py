"""Faults of RMS norm, without and with a residual."""

from __future__ import annotations

from typing import Any

import torch

from opassay.impl import fused_add_rms_norm, layer_norm, rms_norm

from .fault import Fault

Tensor = torch.Tensor
Shape = tuple[int, ...]


def machine_epsilon_of_the_input(x: Tensor, shape: Shape, w: Any, eps: float | None) -> Tensor:
    return rms_norm(x, shape, w, torch.finfo(x.dtype).eps if eps is None else eps)


def mean_taken_off(x: Tensor, shape: Shape, w: Any, eps: float | None) -> Tensor:
    return layer_norm(x, shape, w, None, 2.0**-23 if eps is None else eps)


def eps_outside_the_root(x: Tensor, shape: Shape, w: Any, eps: float | None) -> Tensor:
    root = x.square().mean(tuple(range(-len(shape), 0)), keepdim=True).sqrt()
    out = x / (root + (2.0**-23 if eps is None else eps))
    return out if w is None else out * w


def rounded_before_the_weight(x: Tensor, shape: Shape, w: Any, eps: float | None) -> Tensor:
    out = rms_norm(x, shape, None, eps)
    return out if w is None else (out * w.to(x.dtype)).to(x.dtype)


def statistic_detached(x: Tensor, shape: Shape, w: Any, eps: float | None) -> Tensor:
    out = x * rms_norm(x, shape, None, eps).detach() / x.detach()
    return out if w is None else out * w


def sum_off_by_two_roundings(x: Tensor, r: Tensor, shape: Shape, w: Any, eps: float | None) -> Any:
    return fused_add_rms_norm(x, r, shape, w, eps)[0], x + r + r * torch.finfo(r.dtype).eps


def input_is_returned(x: Tensor, r: Tensor, shape: Shape, w: Any, eps: float | None) -> Any:
    return fused_add_rms_norm(x, r, shape, w, eps)[0], x.clone()


def residual_without_gradient(x: Tensor, r: Tensor, shape: Shape, w: Any, eps: float | None) -> Any:
    return fused_add_rms_norm(x, r.detach(), shape, w, eps)


def stream_without_gradient(x: Tensor, r: Tensor, shape: Shape, w: Any, eps: float | None) -> Any:
    out, total = fused_add_rms_norm(x, r, shape, w, eps)
    return out, total.detach()


FAULTS = (
    Fault("rms_norm", "eps of a half type where it is None", machine_epsilon_of_the_input, "FWD", "bfloat16"),
    Fault("rms_norm", "the mean taken off", mean_taken_off, "FWD"),
    Fault("rms_norm", "eps outside the root", eps_outside_the_root, "FWD"),
    Fault("rms_norm", "rounded before the weight", rounded_before_the_weight, "FWD", "bfloat16"),
    Fault("rms_norm", "the statistic detached in the gradient", statistic_detached, "VJP"),
    Fault("fused_add_rms_norm", "a sum that is off by two roundings", sum_off_by_two_roundings, "FWD"),
    Fault("fused_add_rms_norm", "the input in place of the sum", input_is_returned, "FWD"),
    Fault("fused_add_rms_norm", "no gradient of the residual", residual_without_gradient, "VJP"),
    Fault("fused_add_rms_norm", "no gradient by way of the sum", stream_without_gradient, "VJP"),
)
