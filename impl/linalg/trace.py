"""Trace: the public function, and the ops behind it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..operator import positional as dispatch
from ..operator.arguments import require_floating, require_tensor
from ..operator.precision import FLOATING, compute_dtype

_library = torch.library.Library("opassay", "FRAGMENT")


def trace(input: Tensor) -> Tensor:
    """The sum of the diagonal of a matrix.

    Args:
        input: (n, m), square or not, float64, float32, bfloat16 or float16, any strides, cpu or cuda.

    Returns:
        A tensor of no dims in the input's dtype; half-precision inputs are summed in float32 and rounded once. 0 for a
        matrix without elements.

    Raises:
        TypeError: input is not a tensor.
        RuntimeError: input has not two dims.
        NotImplementedError: input is not of a floating dtype named above.
    """
    if not (isinstance(input, Tensor) and input.dtype in FLOATING and input.dim() == 2):
        require_tensor("trace", "input", input)
        require_floating("trace", "input", input)
        raise RuntimeError(f"trace: got input of shape={list(input.shape)}, need two dims.")
    return _trace(input)  # type: ignore[no-any-return]


def _trace_kernel(x: Tensor) -> Tensor:
    """Traces of matrices (*batch, n, m)."""
    if x.dim() == 2 and x.dtype is compute_dtype(x.dtype):
        return torch.trace(x)
    diagonal = x.diagonal(dim1=-2, dim2=-1)
    return diagonal.sum(-1, dtype=compute_dtype(x.dtype)).to(x.dtype)


def _trace_fake(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[:-2])


def _backward_kernel(grad: Tensor, rows: int, columns: int) -> Tensor:
    """The cotangents (*batch, rows, columns): grad on the diagonal, zero elsewhere."""
    out = grad.new_zeros((*grad.shape, rows, columns))
    out.diagonal(dim1=-2, dim2=-1).copy_(grad.unsqueeze(-1))
    return out


def _backward_fake(grad: Tensor, rows: int, columns: int) -> Tensor:
    return grad.new_empty((*grad.shape, rows, columns))


def _trace_vmap(info: Any, in_dims: Any, x: Tensor) -> tuple[Any, Any]:
    return _trace(x.movedim(in_dims[0], 0)), 0


def _trace_save(args: dispatch.Args, outputs: dispatch.Args, needs: Any) -> Any:
    return (), args[0].shape[-2:]


def _trace_backward(tensors: Any, shape: Any, needs: Any, cotangents: dispatch.Args) -> dispatch.Grads:
    return (_backward(cotangents[0], *shape),)


def _trace_jvp(args: dispatch.Args, tangents: dispatch.Args) -> dispatch.Grads:
    return (_trace(tangents[0]),)


def _backward_vmap(info: Any, in_dims: Any, grad: Tensor, *shape: int) -> tuple[Any, Any]:
    return _backward(grad.movedim(in_dims[0], 0), *shape), 0


def _backward_save(args: dispatch.Args, outputs: dispatch.Args, needs: Any) -> Any:
    return (), None


def _backward_backward(tensors: Any, extras: Any, needs: Any, cotangents: dispatch.Args) -> dispatch.Grads:
    return _trace(cotangents[0]), None, None


def _backward_jvp(args: dispatch.Args, tangents: dispatch.Args) -> dispatch.Grads:
    return (_backward(tangents[0], *args[1:]),)


_trace = dispatch.define(
    _library,
    "trace(Tensor input) -> Tensor",
    # Autocast as torch's: to float32 on CPU, and not at all on CUDA.
    dispatch.Kernels(_trace_kernel, _trace_kernel, _trace_fake, (("cpu", torch.float32),)),
    _trace_vmap,
    dispatch.Derivatives(_trace_save, _trace_backward, _trace_jvp),
)
_backward = dispatch.define(
    _library,
    "trace_backward(Tensor grad, SymInt rows, SymInt columns) -> Tensor",
    dispatch.Kernels(_backward_kernel, _backward_kernel, _backward_fake),
    _backward_vmap,
    dispatch.Derivatives(_backward_save, _backward_backward, _backward_jvp),
)
