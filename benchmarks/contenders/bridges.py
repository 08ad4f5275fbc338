"""Functions of arrays of other libraries as functions of tensors, with gradients where the library has them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from .contender import Function


def _tensor(array: Any) -> Tensor:
    """A copy, for arrays of others may be read only."""
    return torch.from_numpy(np.array(array))


def _array(tensor: Tensor) -> Any:
    return np.array(tensor.detach().numpy())  # contiguous, and memory of its own


def _opaque(function: Function) -> Function:
    """The same, which `torch.compile` does not look into."""
    opaque: Function = torch.compiler.disable(function)
    return opaque


def of_numpy(function: Function) -> Function:
    """A function of NumPy's arrays, without gradients."""

    def call(*tensors: Tensor) -> Any:
        with np.errstate(all="ignore"):
            return pytree.tree_map(_tensor, function(*map(_array, tensors)))

    return _opaque(call)


def of_tinygrad(function: Function) -> Function:
    """A function of tinygrad's tensors, without gradients, for each call takes a tenth of a second there."""
    tiny = importlib.import_module("tinygrad").Tensor

    def call(*tensors: Tensor) -> Any:
        return _tensor(function(*(tiny(_array(tensor)) for tensor in tensors)).numpy())

    return _opaque(call)


def of_jax(function: Function) -> Function:
    """A function of JAX's arrays, compiled, with the gradients of `jax.vjp`."""
    jax = importlib.import_module("jax")

    def pull(arrays: Any, cotangent: Any) -> Any:
        of_floats, floats = _of_floats(function, arrays)
        return jax.vjp(of_floats, *floats)[1](cotangent)

    return _with_gradients(jax.jit(function), jax.jit(pull))


def of_mlx(function: Function) -> Function:
    """A function of MLX's arrays, with the gradients of `mlx.core.vjp`."""
    mlx = importlib.import_module("mlx.core")

    def pull(arrays: Any, cotangent: Any) -> Any:
        of_floats, floats = _of_floats(function, [*map(mlx.array, arrays)])
        return mlx.vjp(of_floats, floats, [mlx.array(cotangent)])[1]

    return _with_gradients(lambda *arrays: function(*map(mlx.array, arrays)), pull)


def of_paddle(function: Function) -> Function:
    """A function of Paddle's tensors, with the gradients of `paddle.grad`."""
    paddle = importlib.import_module("paddle")

    def value(*arrays: Any) -> Any:
        return function(*map(paddle.to_tensor, arrays)).numpy()

    def pull(arrays: Any, cotangent: Any) -> Any:
        tensors = [paddle.to_tensor(array, stop_gradient=array.dtype.kind != "f") for array in arrays]
        floats = [tensor for tensor in tensors if not tensor.stop_gradient]
        result = function(*tensors)
        if result.stop_gradient:
            return [np.zeros(tensor.shape, "f") for tensor in floats]
        gradients = paddle.grad(result, floats, paddle.to_tensor(cotangent), allow_unused=True)
        return [
            np.zeros(tensor.shape, "f") if gradient is None else gradient.numpy()
            for tensor, gradient in zip(floats, gradients, strict=True)
        ]

    return _with_gradients(value, pull)


def _is_floating(array: Any) -> bool:
    return "float" in str(array.dtype)


def _of_floats(function: Function, arrays: Any) -> tuple[Function, list[Any]]:
    """The function of those of its arrays that have gradients, and these."""
    floats = [i for i, array in enumerate(arrays) if _is_floating(array)]

    def of_floats(*moved: Any) -> Any:
        filled = dict(zip(floats, moved, strict=True))
        return function(*(filled.get(i, array) for i, array in enumerate(arrays)))

    return of_floats, [arrays[i] for i in floats]


def _with_gradients(value: Function, pull: Callable[[Any, Any], Any]) -> Function:
    """The function of tensors that computes `value`; `pull` gives the gradients of arrays with floating elements."""

    class OfArrays(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *tensors: Tensor) -> Tensor:
            ctx.save_for_backward(*tensors)
            result = _tensor(value(*map(_array, tensors)))
            if not result.is_floating_point():
                ctx.mark_non_differentiable(result)
            return result

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, cotangent: Tensor) -> Any:
            gradients = iter(pull([*map(_array, ctx.saved_tensors)], _array(cotangent)))
            return tuple(_tensor(next(gradients)) if each.is_floating_point() else None for each in ctx.saved_tensors)

    return _opaque(lambda *tensors: OfArrays.apply(*tensors))  # type: ignore[no-untyped-call]
