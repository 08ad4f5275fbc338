"""Functions of arrays of other libraries as functions of tensors, with gradients where the library has them."""

from __future__ import annotations

import importlib
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
    compiled = jax.jit(function)

    def pull(arrays: Any, cotangent: Any) -> Any:
        floats = [i for i, array in enumerate(arrays) if array.dtype.kind == "f"]

        def of_floats(*moved: Any) -> Any:
            filled = dict(zip(floats, moved, strict=True))
            return function(*(filled.get(i, array) for i, array in enumerate(arrays)))

        gradients = iter(jax.vjp(of_floats, *(arrays[i] for i in floats))[1](cotangent))
        return [next(gradients) if i in floats else None for i in range(len(arrays))]

    pull = jax.jit(pull)

    class OfJax(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *tensors: Tensor) -> Tensor:
            ctx.save_for_backward(*tensors)
            result = _tensor(compiled(*map(_array, tensors)))
            if not result.is_floating_point():
                ctx.mark_non_differentiable(result)
            return result

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, cotangent: Tensor) -> Any:
            gradients = pull([*map(_array, ctx.saved_tensors)], _array(cotangent))
            return tuple(None if each is None else _tensor(each) for each in gradients)

    return _opaque(lambda *tensors: OfJax.apply(*tensors))  # type: ignore[no-untyped-call]
