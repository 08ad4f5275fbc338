"""The value of one tensor with the derivatives of another: how a result that a kernel computed becomes differentiable
by way of an expression that is equal to it, without a bit of it changing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import operator as dispatch

_library = torch.library.Library("opassay", "FRAGMENT")


def _kernel(value: Tensor, slope: Tensor) -> Tensor:
    return value.clone()


def _fake(value: Tensor, slope: Tensor) -> Tensor:
    return torch.empty_like(value)


def _vmap(info: Any, in_dims: Any, value: Tensor, slope: Tensor) -> tuple[Any, Any]:
    batched = [
        t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)
        for t, dim in zip((value, slope), in_dims, strict=True)
    ]
    return attach(*batched), 0


def _save(args: dispatch.Args, outputs: dispatch.Args, needs: tuple[bool, ...]) -> Any:
    return (), args[1].dtype


def _backward(tensors: Any, dtype: Any, needs: tuple[bool, ...], cotangents: dispatch.Args) -> dispatch.Grads:
    return None, cotangents[0].to(dtype)


def _jvp(args: dispatch.Args, tangents: dispatch.Args) -> dispatch.Grads:
    value, _ = args
    return (torch.zeros_like(value) if tangents[1] is None else tangents[1].to(value.dtype),)


#: (value, slope of the same shape) -> `value`, a copy of it, whose tangents and cotangents are those of `slope`.
attach: Callable[..., Tensor] = dispatch.define(
    _library,
    "attach(Tensor value, Tensor slope) -> Tensor",
    dispatch.Kernels(_kernel, _kernel, _fake),
    _vmap,
    dispatch.Derivatives(_save, _backward, _jvp),
)
