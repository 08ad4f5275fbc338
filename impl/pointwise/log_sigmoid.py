"""Log-sigmoid.

With s(x) = 1 / (1 + exp(x)), the slope of log-sigmoid, and D(g, x) = g s(x):

    d log_sigmoid(x) = D(dx, x),    dD = D(dg, x) - D(D(g dx, x), -x),

for s'(x) = -s(x) s(-x). So every derivative of every order is made of D, which is accurate where s is small. That is
why D has rules and not an expression: torch would differentiate s by way of 1 - s, which cancels.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..operator.arguments import require_floating_tensor, require_like, require_tensor
from ..operator.batching import each_in_front, one_more_dim
from ..operator.operator import Kernels, Operator
from ..operator.precision import raised
from ..operator.records import Grads, Record
from ..operator.rules import Rules
from . import kernels_cpu, kernels_cuda


def log_sigmoid(input: Tensor) -> Tensor:
    """log(1 / (1 + exp(-x))) of every element, as min(x, 0) - log(1 + exp(-|x|)): accurate where it is tiny, too.

    Args:
        input: any shape, float64, float32, bfloat16 or float16, any strides, cpu or cuda.

    Returns:
        A contiguous tensor of the input's shape and dtype; half-precision inputs are computed in float32 and rounded
        once. 0 at +inf, -inf at -inf.

    Raises:
        TypeError: input is not a tensor.
        NotImplementedError: input is not of a floating dtype named above.
    """
    require_floating_tensor("log_sigmoid", "input", input)
    return _forward(input)[0]


def log_sigmoid_forward(input: Tensor) -> tuple[Tensor, Tensor]:
    """`log_sigmoid`, and torch's buffer: empty (shape (0,), the input's dtype) on every device, not differentiable.

    Torch's own holds exp(-|x|) on CPU. Raises as `log_sigmoid`.
    """
    require_floating_tensor("log_sigmoid_forward", "input", input)
    return _forward(input)[0], input.new_empty((0,))


def log_sigmoid_backward(grad_output: Tensor, input: Tensor, buffer: Tensor) -> Tensor:
    """The cotangent of log-sigmoid's input: grad_output / (1 + exp(input)).

    Args:
        grad_output: the cotangent of the output; shape and dtype of input.
        input: as for `log_sigmoid`.
        buffer: any tensor; it is not read.

    Returns:
        A contiguous tensor of the input's shape and dtype, a function of grad_output and input alone.

    Raises:
        TypeError: an operand is not a tensor.
        RuntimeError: shapes, dtypes or devices do not fit each other.
        NotImplementedError: input is not of a floating dtype.
    """
    name = "log_sigmoid_backward"
    require_floating_tensor(name, "input", input)
    require_tensor(name, "buffer", buffer)
    require_like(name, "grad_output", grad_output, "input", input)
    return _backward(grad_output, input, None)


class _SavedPoints(NamedTuple):
    grad: Tensor | None
    input: Tensor
    buffer: Tensor | None


def _curved(weight: Tensor, x: Tensor, buffer: Tensor | None) -> Tensor:
    """weight s'(x) = -weight s(x) s(-x); exp(-|x|) is the same for both."""
    return -_backward(_backward(weight, x, buffer), -x, buffer)


def _backward_grads(saved: _SavedPoints, needs: Record, cotangents: Record) -> Grads:
    # v is read for both gradients, and products of half-precision numbers would be rounded on the way.
    v, x, dtype = raised(cotangents.out), raised(saved.input), saved.input.dtype
    return {
        "grad_output": _backward(v, x, saved.buffer).to(dtype) if needs.grad_output else None,
        "input": None if saved.grad is None else _curved(v * saved.grad, x, saved.buffer).to(dtype),
    }


def _backward_tangent(args: Record, tangents: Record) -> Tensor:
    x = raised(args.input)
    out = None if tangents.grad_output is None else _backward(raised(tangents.grad_output), x, args.buffer)
    if tangents.input is not None:
        moved = _curved(raised(args.grad_output) * tangents.input, x, args.buffer)
        out = moved if out is None else out + moved
    return (torch.zeros_like(x) if out is None else out).to(args.input.dtype)


_forward: Operator[Tensor, tuple[Tensor, Tensor | None]] = Operator(
    "log_sigmoid(Tensor input) -> (Tensor, Tensor)",
    Kernels(kernels_cpu.log_sigmoid, kernels_cuda.log_sigmoid, kernels_cpu.fake),
    one_more_dim,
    Rules(
        _SavedPoints,
        save=lambda args, outputs, needs: _SavedPoints(None, args.input, outputs.buffer),
        backward=lambda saved, needs, cotangents: {"input": _backward(cotangents.out, saved.input, saved.buffer)},
        jvp=lambda args, tangents: (_backward(tangents.input, args.input, None), None),
        non_differentiable=("buffer",),
    ),
    outputs=("out", "buffer"),
)
_backward: Operator[Tensor, Tensor, Tensor | None, Tensor] = Operator(
    "log_sigmoid_backward(Tensor grad_output, Tensor input, Tensor? buffer) -> Tensor",
    Kernels(
        kernels_cpu.log_sigmoid_backward,
        kernels_cuda.log_sigmoid_backward,
        lambda args: args.input.new_empty(args.input.shape),
    ),
    each_in_front,
    Rules(
        _SavedPoints,
        save=lambda args, _, needs: _SavedPoints(args.grad_output if needs.input else None, args.input, args.buffer),
        backward=_backward_grads,
        jvp=_backward_tangent,
    ),
)
