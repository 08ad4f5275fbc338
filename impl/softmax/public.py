"""Softmax and log-softmax: the public functions."""

from __future__ import annotations

import torch
from torch import Tensor

from ..operator.arguments import require_floating, require_int, require_like, require_tensor
from ..operator.precision import FLOATING, compute_dtype
from . import rules as ops


def softmax(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along `dim`.

    Args:
        input: any shape, float64, float32, bfloat16 or float16 (any dtype, where `dtype` is given), any strides, cpu or
            cuda.
        dim: -ndim to ndim - 1; 0 or -1 for a tensor of no dims.
        dtype: of the result. A wider one than the input's converts the input before anything is computed. A narrower
            one rounds the result alone; torch rounds the input, which may overflow there.

    Returns:
        A contiguous tensor of the input's shape, in `dtype` or else the input's dtype. Half-precision results are
        computed in float32 and rounded once. An element of -inf counts as absent; a row of -inf, and a row with a NaN
        or with +inf, is NaN, as in torch.

    Raises:
        TypeError: input is not a tensor, dim not an int, dtype not a dtype.
        IndexError: dim is out of range.
        NotImplementedError: input or dtype is not floating.
    """
    return _checked_softmax("softmax", ops.softmax, input, dim, dtype)


def log_softmax(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """x - log(sum(exp(x))) along `dim`: the logarithm of `softmax`, without its overflow and underflow.

    Arguments, result and errors are as those of `softmax`, but an element of -inf stays -inf.
    """
    return _checked_softmax("log_softmax", ops.log_softmax, input, dim, dtype)


def softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
    """The cotangent of softmax's input: output (grad_output - sum(output grad_output)), sums along `dim`.

    Args:
        grad_output: the cotangent of softmax's output.
        output: what `softmax` returned; shape and dtype of grad_output.
        dim: as for `softmax`.
        input_dtype: of softmax's input; that of grad_output, or a narrower one.

    Returns:
        A contiguous tensor of grad_output's shape in `input_dtype`. It is differentiable in grad_output and output,
        which count as independent of each other.

    Raises:
        TypeError: an operand is not a tensor, dim not an int, input_dtype not a dtype.
        RuntimeError: shapes, dtypes or devices do not fit each other, or input_dtype is not within grad_output's.
        IndexError: dim is out of range.
        NotImplementedError: grad_output or input_dtype is not floating.
    """
    return _checked_backward("softmax_backward_data", ops.softmax_backward, grad_output, output, dim, input_dtype)


def log_softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
    """The cotangent of log-softmax's input: grad_output - exp(output) sum(grad_output), the sum along `dim`.

    Arguments, result and errors are as those of `softmax_backward_data`; `output` is what `log_softmax` returned.
    """
    return _checked_backward(
        "log_softmax_backward_data", ops.log_softmax_backward, grad_output, output, dim, input_dtype
    )


def _checked_softmax(name: str, op: ops.ForwardOp, x: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    """The work of both forward functions.

    Args:
        name: the function that messages speak of.
        op: its operator.
        x, dim, dtype: as for `softmax`.
    """
    require_tensor(name, "input", x)
    require_int(name, "dim", dim)
    if dtype is None:
        require_floating(name, "input", x)
    elif dtype not in FLOATING:
        raise _dtype_error(name, "dtype", dtype)
    elif x.dtype not in FLOATING:
        x = x.to(dtype)
    dim = _wrap_dim(name, dim, x.dim())
    input_dtype = x.dtype
    if dtype is not None and dtype is not input_dtype:
        wide = compute_dtype(input_dtype)
        if torch.promote_types(wide, dtype) is not dtype:  # what is saved for backward must be as wide as the input
            return op(x, dim, wide)[0].to(dtype)
    return op(x, dim, dtype)[0]


def _checked_backward(
    name: str, op: ops.BackwardOp, grad: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype
) -> Tensor:
    """The work of both backward functions.

    Args:
        name: the function that messages speak of.
        op: its operator.
        grad, output, dim, input_dtype: as for `softmax_backward_data`.
    """
    require_tensor(name, "grad_output", grad)
    require_floating(name, "grad_output", grad)
    require_tensor(name, "output", output)
    require_int(name, "dim", dim)
    if input_dtype not in FLOATING:
        raise _dtype_error(name, "input_dtype", input_dtype)
    # `require_like` states the rule, but takes longer than all other checks together. So it is only called where the
    # rule is broken, to raise its error.
    if grad.shape != output.shape or grad.dtype is not output.dtype or grad.device != output.device:
        require_like(name, "grad_output", grad, "output", output)
    if input_dtype is not grad.dtype and torch.promote_types(input_dtype, grad.dtype) is not grad.dtype:
        raise RuntimeError(
            f"{name}: got input_dtype={input_dtype} and grad_output of dtype={grad.dtype}, need that dtype or one whose"
            " numbers it holds."
        )
    return op(grad, output, None, _wrap_dim(name, dim, grad.dim()), input_dtype)


def _wrap_dim(name: str, dim: int, ndim: int) -> int:
    """`dim` as a non-negative int; IndexError where it is out of range."""
    # A tensor of no dims takes the dims 0 and -1, as in torch.
    ndim = ndim or 1
    if not -ndim <= dim < ndim:
        raise IndexError(f"{name}: got dim={dim}, need {-ndim} to {ndim - 1}.")
    return dim % ndim


def _dtype_error(name: str, label: str, dtype: object) -> Exception:
    """The exception for a value that is none of the floating dtypes."""
    if not isinstance(dtype, torch.dtype):
        return TypeError(f"{name}: got {label}={dtype!r}, need a torch.dtype.")
    return NotImplementedError(f"{name}: got {label}={dtype}, need float64, float32, bfloat16 or float16.")
