"""Cross entropy as torch sees it: schemas, fake and vmap rules, derivatives.

With z = log-softmax(x), p = e^z and <t> the sum of t over the classes, the loss is l(z, w), the form of
nll_loss.expressions, and

    dz = dx - <p dx>,   d_x = D - p <D> with D the adjoint of l in z,   dp = p dz.

The backward op computes p from x, as its expression does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...operator import sums
from ...operator.expression import Expression
from ...operator.operator import Operator, taking
from ...operator.precision import raised
from ...operator.records import Grads, Record
from ...operator.rules import Rules
from ..nll_loss import rules as nll
from ..nll_loss.expressions import Form, masked_scores
from ..nll_loss.kernels_cpu import MEAN, class_dim
from . import kernels_cpu as kernels
from . import kernels_cuda

Outputs = tuple[Tensor, Tensor]


class _SavedLogits(NamedTuple):
    input: Tensor
    target: Tensor
    weight: Tensor | None
    total: Tensor | None
    reduction: int
    ignore_index: int
    smoothing: float
    batch_ndim: int


def _form(x: Tensor, target: Tensor, ignore_index: int, smoothing: float, batch_ndim: int) -> Form:
    """The form of the loss whose scores are log-softmax(x).

    Args:
        x: the logits, of which the shape is read.
        target, ignore_index, smoothing, batch_ndim: as for the kernels.
    """
    classes = x.shape[class_dim(x.dim(), batch_ndim)]
    return nll.form_of(target, classes, ignore_index, batch_ndim, smoothing)


def _centred(t: Tensor, p: Tensor, dim: int) -> Tensor:
    """t - <p t>: the derivative of log-softmax."""
    return t - sums.everywhere(p * t, (dim,))


def _save_logits(args: Record, outputs: Record, needs: Record) -> _SavedLogits:
    # The total weight is kept for a mean alone: the other reductions do not divide by it.
    total = outputs.total if args.reduction == MEAN else None
    return _SavedLogits(
        args.input, args.target, args.weight, total, args.reduction, args.ignore_index, args.label_smoothing,
        args.batch_ndim,
    )  # fmt: skip


def _cotangents_of_logits(saved: _SavedLogits, needs: Record, cotangents: Record) -> Grads:
    x, target, weight, total, reduction, ignore_index, smoothing, batch_ndim = saved
    grads: dict[str, Tensor | None] = {}
    form = _form(x, target, ignore_index, smoothing, batch_ndim)
    g = nll.cotangent(form, cotangents.out, weight, total)
    dtype = x.dtype
    if needs.weight:  # read twice: contributions to its cotangent add in float32
        x = raised(x)
    if needs.input:
        grads["input"] = cross_entropy_backward(g, x, target, weight, ignore_index, smoothing, batch_ndim).to(dtype)
    if needs.weight and weight is not None:
        z = torch.log_softmax(masked_scores(x, form), form.dim)
        grads["weight"] = nll.weight_gradient(form, z, weight, reduction, g, None)
    return grads


def _tangents_of_loss(args: Record, tangents: Record) -> Outputs:
    x, dtype = raised(args.input), args.input.dtype
    form = _form(x, args.target, args.ignore_index, args.label_smoothing, args.batch_ndim)
    # z, not x, is what the loss is linear in: the tangent of x goes through the derivative of log-softmax
    # first.
    x = masked_scores(x, form)
    p, z = torch.softmax(x, form.dim), torch.log_softmax(x, form.dim)
    t_z = None if tangents.input is None else _centred(raised(tangents.input), p, form.dim)
    out, t_total = nll.moved(form, z, args.weight, t_z, tangents.weight, args.reduction)
    return out.to(dtype), t_total


def _logits_gradient(args: Record) -> Tensor:
    """D - p <D>, the gradient in the logits, of their shape; D is the adjoint of the loss in z at `grad_output`."""
    x = raised(args.input)
    form = _form(x, args.target, args.ignore_index, args.label_smoothing, args.batch_ndim)
    masked = form.may_ignore()
    p = torch.softmax(masked_scores(x, form) if masked else x, form.dim)
    g, weight = args.grad_output, args.weight
    d = form.to_scores(g, weight)
    # With vectors over the classes dz = (I - 1 p') dx. The adjoint matrix is I - p 1', so p is a factor of the sum.
    if masked or weight is not None:
        return torch.addcmul(d, p, sums.everywhere(d, (form.dim,)), value=-1)
    # Without weights D is -(1 - s) g at the target and -s/C g at each of C classes, so <D> = -g.
    return torch.addcmul(d, p, sums.spread(form.over_classes(g), d.shape))


def _batched_cross_entropy_backward(op: Any, size: int, dims: Record, args: Record) -> tuple[Any, Any]:
    return op(*nll.with_one_more_batch(size, dims, args)).to(args.input.dtype), 0


cross_entropy: Operator[Tensor, Tensor, Tensor | None, int, int, float, int, Outputs] = Operator(
    "cross_entropy(Tensor input, Tensor target, Tensor? weight, int reduction, SymInt ignore_index,"
    " float label_smoothing, int batch_ndim) -> (Tensor, Tensor)",
    taking(kernels.SmoothedLoss, kernels.cross_entropy, kernels_cuda.cross_entropy, nll.forward_fake, nll.AUTOCAST),
    nll.batched_loss,
    Rules(_SavedLogits, _save_logits, _cotangents_of_logits, _tangents_of_loss),
    outputs=("out", "total"),
)
cross_entropy_backward: Operator[Tensor, Tensor, Tensor, Tensor | None, int, float, int, Tensor] = Operator(
    "cross_entropy_backward(Tensor grad_output, Tensor input, Tensor target, Tensor? weight,"
    " SymInt ignore_index, float label_smoothing, int batch_ndim) -> Tensor",
    taking(
        kernels.SmoothedLossBackward,
        kernels.cross_entropy_backward,
        kernels_cuda.cross_entropy_backward,
        lambda args: args.input.new_empty(args.input.shape),
    ),
    _batched_cross_entropy_backward,
    Expression(_logits_gradient),
)
