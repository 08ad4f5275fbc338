"""Local response normalisation as torch sees it: schemas, fake and vmap rules, derivatives.

On the CPU `cross_map_lrn2d_keeping` also returns s and s^beta (expressions.py), for its backward; `cross_map_lrn2d` is
for calls that keep nothing, and its backward computes both again. All ops take the channels as the third dim from the
end and any number of dims before it: a vmapped batch is one more.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..operator.batching import in_front, one_more_dim
from ..operator.expression import Expression
from ..operator.operator import Kernels, Operator, taking
from ..operator.precision import raised
from ..operator.records import Grads, Record
from ..operator.rules import Rules
from . import expressions, kernels_cpu, kernels_cuda
from .expressions import Coefficients

_AUTOCAST = (("cpu", torch.float32), ("cuda", torch.float32))  # as F.local_response_norm on both
_Outputs = tuple[Tensor, Tensor | None, Tensor | None]
_Backward = Operator[Tensor, Tensor, Tensor | None, Tensor | None, int, float, float, float, Tensor]


class _SavedImages(NamedTuple):
    """The input, and the base and its power where the op returns them."""

    input: Tensor
    base: Tensor | None
    root: Tensor | None
    coefficients: Coefficients


def _coefficients(args: Record) -> Coefficients:
    return Coefficients(args.size, args.alpha, args.beta, args.k)


def _save_images(args: Record, outputs: Record, needs: Record) -> _SavedImages:
    return _SavedImages(args.input, None, None, _coefficients(args))


def _save_powers(args: Record, outputs: Record, needs: Record) -> _SavedImages:
    return _SavedImages(args.input, outputs.base, outputs.root, _coefficients(args))


def _cotangents(saved: _SavedImages, needs: Record, cotangents: Record) -> Grads:
    return {"input": cross_map_lrn2d_backward(cotangents.out, saved.input, saved.base, saved.root, *saved.coefficients)}


def _tangent(args: Record, tangents: Record) -> Tensor:
    # s^0 is 1 for every s. The expression would form s^(-1), which is not finite where s is 0.
    if args.beta == 0:
        moved: Tensor = tangents.input.clone(memory_format=torch.contiguous_format)
        return moved
    return expressions.moved_output(args.input, raised(tangents.input), _coefficients(args)).to(args.input.dtype)


def _images_gradient(args: Record) -> Tensor:
    return expressions.images_gradient(raised(args.grad_out), args.input, _coefficients(args))


def _fake(args: Record) -> Tensor:
    out: Tensor = args.input.new_empty(args.input.shape)
    return out


def _fake_keeping(args: Record) -> _Outputs:
    x = args.input
    if x.device.type == "cuda":  # where the backward reads neither
        return x.new_empty(x.shape), None, None
    return x.new_empty(x.shape), x.new_empty(x.shape), x.new_empty(x.shape)


def _batched_lrn_backward(op: Any, size: int, dims: Record, args: Record) -> tuple[Tensor, int]:
    """One more dim in front, the operands all in one dtype."""
    grad, x, base, root, *coefficients = args
    # An operand that is repeated along the batch is raised, because the derivative of repeating is a sum.
    # The other follows it, for the op takes both in one dtype.
    pair = (grad, x) if None not in (dims.grad_out, dims.input) else map(raised, (grad, x))
    operands = zip((*pair, base, root), dims, strict=False)
    out = op(*(in_front(t, dim, size) for t, dim in operands), *coefficients)
    return out.to(x.dtype), 0


cross_map_lrn2d_backward: _Backward = Operator(
    "cross_map_lrn2d_backward(Tensor grad_out, Tensor input, Tensor? base, Tensor? root, int size, float alpha,"
    " float beta, float k) -> Tensor",
    taking(
        kernels_cpu.ImagesBackward, kernels_cpu.cross_map_lrn2d_backward, kernels_cuda.cross_map_lrn2d_backward, _fake
    ),
    _batched_lrn_backward,
    Expression(_images_gradient),
)
cross_map_lrn2d: Operator[Tensor, int, float, float, float, Tensor] = Operator(
    "cross_map_lrn2d(Tensor input, int size, float alpha, float beta, float k) -> Tensor",
    Kernels(kernels_cpu.cross_map_lrn2d, kernels_cuda.cross_map_lrn2d, _fake, _AUTOCAST),
    one_more_dim,
    Rules(_SavedImages, _save_images, _cotangents, _tangent),
)
cross_map_lrn2d_keeping: Operator[Tensor, int, float, float, float, _Outputs] = Operator(
    "cross_map_lrn2d_keeping(Tensor input, int size, float alpha, float beta, float k) -> (Tensor, Tensor, Tensor)",
    Kernels(kernels_cpu.cross_map_lrn2d_keeping, kernels_cuda.cross_map_lrn2d_keeping, _fake_keeping, _AUTOCAST),
    one_more_dim,
    Rules(_SavedImages, _save_powers, _cotangents, lambda *both: (_tangent(*both), None, None), ("base", "root")),
    outputs=("out", "base", "root"),
)
