"""The softmax ops as torch sees them: schemas, vmap rules, derivatives.

What is saved for backward is the output, as it was rounded, with its shift (expressions.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..operator.batching import in_front, out_dims, raised_for_sum
from ..operator.composed import Composed
from ..operator.expression import Expression
from ..operator.operator import Kernels, Operator
from ..operator.precision import HALF, raised
from ..operator.records import Grads, Record
from ..operator.rules import Rules
from . import expressions, kernels_cpu, kernels_cuda

ForwardOp = Operator[Tensor, int, torch.dtype | None, tuple[Tensor, Tensor | None]]
BackwardOp = Operator[Tensor, Tensor, Tensor | None, int, torch.dtype, Tensor]
TangentOp = Operator[Tensor, Tensor, int, torch.dtype, Tensor]


class _SavedOutput(NamedTuple):
    output: Tensor
    shift: Tensor | None
    dim: int
    dtype: torch.dtype


def _batched_softmax(op: Any, size: int, dims: Record, args: Record) -> tuple[Any, Any]:
    """The batch in front: one more leading dim."""
    x = args.input.movedim(dims.input, 0)
    if x.dim() == 1:  # every slice has no dims, and is its own row
        rows = op(x.unsqueeze(-1), 1, args.dtype)
        outputs = tuple(None if t is None else t.squeeze(-1) for t in rows)
    else:
        outputs = op(x, args.dim + 1, args.dtype)
    return outputs, out_dims(outputs)


def _batched_softmax_backward(op: Any, size: int, dims: Record, args: Record) -> tuple[Any, Any]:
    """The batch in front: one more leading dim."""
    grad, output = raised_for_sum(args.grad, args.output, dims=(dims.grad, dims.output))
    rows = [
        in_front(grad, dims.grad, size), in_front(output, dims.output, size), in_front(args.shift, dims.shift, size)
    ]  # fmt: skip
    # Slices without dims become rows of one element, as in the forward rule.
    if grad.dim() == (dims.grad is not None):
        rows = [None if t is None else t.unsqueeze(-1) for t in rows]
        return op(*rows, 1, args.input_dtype).squeeze(-1), 0
    return op(*rows, args.dim + 1, args.input_dtype), 0


def _batched_softmax_jvp(op: Any, size: int, dims: Record, args: Record) -> tuple[Any, Any]:
    """The batch in front: one more leading dim."""
    x, t = raised_for_sum(args.input, args.t_input, dims=(dims.input, dims.t_input))
    x, t = in_front(x, dims.input, size), in_front(t, dims.t_input, size)
    if x.dim() == 1:  # every slice has no dims, and is its own row
        return op(x.unsqueeze(-1), t.unsqueeze(-1), 1, args.dtype).squeeze(-1), 0
    return op(x, t, args.dim + 1, args.dtype), 0


def _forward_rules(log: bool) -> Rules[_SavedOutput]:
    def save(args: Record, outputs: Record, needs: Record) -> _SavedOutput:
        return _SavedOutput(outputs.out, outputs.shift, args.dim, args.input.dtype)

    def backward(saved: _SavedOutput, needs: Record, cotangents: Record) -> Grads:
        """The backward op; the cotangent of the shift, which is x minus its value, is one of x."""
        op = log_softmax_backward if log else softmax_backward
        output, shift, dim, dtype = saved
        grad, through = cotangents.out, cotangents.shift
        if through is None:
            return {"input": op(grad, output, shift, dim, dtype)}
        # Two cotangents arrive at x. They are added in float32, and the sum is rounded once.
        if grad is not None:
            through = op(raised(grad), output, shift, dim, through.dtype) + through
        return {"input": through.to(dtype)}

    def jvp(args: Record, tangents: Record) -> tuple[Tensor, Tensor | None]:
        x = args.input
        dtype = x.dtype if args.dtype is None else args.dtype
        out = (log_softmax_jvp if log else softmax_jvp)(x, tangents.input, args.dim, dtype)
        # The shift is x minus its value: always 0, but it moves as x does, so its tangent is that of x.
        return out, tangents.input.to(torch.float32) if dtype in HALF else None

    return Rules(_SavedOutput, save, backward, jvp)


def _forward_op(name: str, log: bool) -> ForwardOp:
    cpu, cuda = kernels_cpu.forward_kernel(log), kernels_cuda.forward_kernel(log)
    return Operator(
        f"{name}(Tensor input, int dim, ScalarType? dtype) -> (Tensor, Tensor)",
        Kernels(cpu, cuda, kernels_cpu.fake, (("cuda", torch.float32),)),
        _batched_softmax,
        _forward_rules(log),
        outputs=("out", "shift"),
    )


def _backward_op(name: str, log: bool) -> BackwardOp:
    def slope(args: Record) -> Tensor:
        return expressions.softmax_gradient(log, raised(args.grad), args.output, args.shift, args.dim)

    return Operator(
        f"{name}(Tensor grad, Tensor output, Tensor? shift, int dim, ScalarType input_dtype) -> Tensor",
        Kernels(kernels_cpu.backward_kernel(log), kernels_cuda.backward_kernel(log), kernels_cpu.backward_fake),
        _batched_softmax_backward,
        Expression(slope),
    )


def _jvp_op(name: str, log: bool) -> TangentOp:
    def tangent(args: Record) -> Tensor:
        # The probabilities are computed again in a dtype as wide as input and output, because the output
        # itself may be rounded to half precision.
        p = softmax(args.input, args.dim, kernels_cpu.wider(args.input.dtype, args.dtype))[0]
        return expressions.moved_output(log, p, args.t_input.to(p.dtype), args.dim).to(args.dtype)

    def fake(args: Record) -> Tensor:
        out: Tensor = args.input.new_empty(args.input.shape, dtype=args.dtype)
        return out

    return Composed(
        f"{name}(Tensor input, Tensor t_input, int dim, ScalarType dtype) -> Tensor",
        tangent,
        kernels_cuda.jvp_kernel(log),
        fake,
        _batched_softmax_jvp,
    )


softmax = _forward_op("softmax", False)
softmax_backward = _backward_op("softmax_backward", False)
log_softmax = _forward_op("log_softmax", True)
log_softmax_backward = _backward_op("log_softmax_backward", True)
softmax_jvp = _jvp_op("softmax_jvp", False)
log_softmax_jvp = _jvp_op("log_softmax_jvp", True)
