"""Trace, and its adjoint."""

from __future__ import annotations

import torch
from torch import Tensor

from ..operator.arguments import require_floating_tensor
from ..operator.batching import one_more_dim
from ..operator.operator import Kernels, Operator
from ..operator.precision import HALF, compute_dtype
from ..operator.rules import Linear
from . import kernels_cuda


def trace(input: Tensor) -> Tensor:
    """The sum of the diagonal of a matrix.

    Args:
        input: (n, m), square or not, float64, float32, bfloat16 or float16, any strides, cpu or cuda.

    Returns:
        A tensor of no dims in the input's dtype, 0 of no elements; half-precision sums are float32, rounded once.

    Raises:
        TypeError, RuntimeError, NotImplementedError: not a tensor; not two dims; not of a dtype named above.
    """
    require_floating_tensor("trace", "input", input)
    if input.dim() != 2:
        raise RuntimeError(f"trace: got input of shape={list(input.shape)}, need two dims.")
    return _trace(input)


def _sums(x: Tensor) -> Tensor:
    """Traces of matrices (*batch, n, m); half-precision sums are float32, and rounded once.

    So are torch.trace's in torch 2.13 on the CPU, but its documentation does not promise it; here it is asked for.
    """
    if x.dim() == 2 and x.dtype not in HALF:
        return torch.trace(x)
    return x.diagonal(dim1=-2, dim2=-1).sum(-1, dtype=compute_dtype(x.dtype)).to(x.dtype)


def _matrices(grad: Tensor, rows: int, columns: int) -> Tensor:
    """Matrices (*batch, rows, columns), grad on the diagonal, zero elsewhere: the adjoint of the trace."""
    out = grad.new_zeros((*grad.shape, rows, columns))
    out.diagonal(dim1=-2, dim2=-1).copy_(grad.unsqueeze(-1))
    return out


_trace: Operator[Tensor, Tensor] = Operator(
    "trace(Tensor input) -> Tensor",  # it autocasts as torch's does, which on CUDA is a sum: to float32
    Kernels(
        _sums,
        kernels_cuda.sums(_sums),
        lambda args: args.input.new_empty(args.input.shape[:-2]),
        (("cpu", torch.float32), ("cuda", torch.float32)),
    ),
    one_more_dim,
    Linear(lambda grad, shape: _adjoint(grad, *shape[-2:])),
)
_adjoint: Operator[Tensor, int, int, Tensor] = Operator(
    "trace_backward(Tensor grad, SymInt rows, SymInt columns) -> Tensor",
    Kernels(
        _matrices,
        kernels_cuda.matrices(_matrices),
        lambda args: args.grad.new_empty((*args.grad.shape, args.rows, args.columns)),
    ),
    one_more_dim,
    Linear(lambda grad, shape, rows, columns: _trace(grad)),
)
