"""The negative log likelihood as torch sees it: one forward op, under two names, and its adjoint in the input.

`nll_loss` and `nll_loss_forward` differ in autocast alone. Both return the total weight, which is a differentiable
function of the weight. Shapes and batch dims are those of kernels_cpu. The backward op takes the cotangent of every
position's loss (divided by the total weight already, for a mean): it is linear in that and in the weight.

The weight comes in float32 for the half types: it has a part in both outputs and in the backward op, and its cotangents
from all of them sum in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...operator.batching import in_front
from ...operator.operator import Kernels, Operator, taking
from ...operator.precision import compute_dtype, raised
from ...operator.records import Grads, Record
from ...operator.rules import Rules
from . import kernels_cpu as kernels
from . import kernels_cuda
from .expressions import Form
from .kernels_cpu import MEAN, NONE, SUM, class_dim


class _SavedScores(NamedTuple):
    """What the loss keeps: the input only where the weight needs a gradient, for the input's does not read it."""

    input: Tensor | None
    target: Tensor
    weight: Tensor | None
    total: Tensor | None
    classes: int
    dtype: torch.dtype
    reduction: int
    ignore_index: int
    batch_ndim: int


class _SavedAdjoint(NamedTuple):
    """What the backward op keeps: the cotangent only where the weight needs a gradient."""

    grad_output: Tensor | None
    target: Tensor
    weight: Tensor | None
    classes: int
    ignore_index: int
    batch_ndim: int
    dtype: torch.dtype
    ndim: int


class _SavedTotal(NamedTuple):
    target: Tensor
    classes: int
    ignore_index: int
    batch_ndim: int


def forward_fake(args: Record) -> tuple[Tensor, Tensor]:
    """Fake (output, total weight) of a forward op."""
    x, batch = args.input, args.input.shape[: args.batch_ndim]
    total = x.new_empty(batch, dtype=compute_dtype(x.dtype))
    return x.new_empty(args.target.shape if args.reduction == NONE else batch), total


def _forward_save(args: Record, outputs: Record, needs: Record) -> _SavedScores:
    # The total weight is kept for a mean alone: the other reductions do not divide by it.
    x = args.input
    return _SavedScores(
        x if needs.weight else None, args.target, args.weight, outputs.total if args.reduction == MEAN else None,
        x.shape[class_dim(x.dim(), args.batch_ndim)], x.dtype, args.reduction, args.ignore_index, args.batch_ndim,
    )  # fmt: skip


def _forward_backward(saved: _SavedScores, needs: Record, cotangents: Record) -> Grads:
    """d_input by the backward op; d_weight from l = -w_t x_t and, for a mean, through the total weight."""
    x, target, weight, total, classes, dtype, reduction, ignore_index, batch_ndim = saved
    g = cotangents.out
    grads: dict[str, Tensor | None] = {}
    form = form_of(target, classes, ignore_index, batch_ndim)
    if g is not None:
        g = cotangent(form, g, weight, total)
    if needs.input and g is not None:
        grads["input"] = nll_loss_backward(g, target, weight, classes, ignore_index, batch_ndim, dtype)
    if needs.weight and x is not None and weight is not None:
        wide = x.to(compute_dtype(dtype))
        grads["weight"] = weight_gradient(form, wide, weight, reduction, g, cotangents.total)
    return grads


def form_of(target: Tensor, classes: int, ignore_index: int, batch_ndim: int, smoothing: float = 0.0) -> Form:
    """The form of the losses of a target, on the ops of this module.

    Args:
        target, ignore_index, batch_ndim: as for the kernels.
        classes: C.
        smoothing: the share of the target that goes to all classes.
    """
    return Form(_plain, nll_loss_backward, total_weight, target, classes, ignore_index, batch_ndim, smoothing)


def cotangent(form: Form, g: Tensor, weight: Tensor | None, total: Tensor | None) -> Tensor:
    """The cotangent of every position's loss, in the dtype of sums; for a mean, divided by the total weight.

    Args:
        form: of the loss.
        g: the cotangent of the output, (*batch) or of the target's shape.
        weight: of the classes, or None.
        total: the total weight of a mean, else None.
    """
    # It is used twice where the weight needs a gradient, too, and the contributions of both add in this dtype.
    g = raised(g)
    return g if total is None else g / form.total(weight, total)


def weight_gradient(
    form: Form, y: Tensor, weight: Tensor, reduction: int, g: Tensor | None, g_total: Tensor | None
) -> Tensor | None:
    """The weight's gradient for g, the cotangent of every position's loss, and g_total, that of the total weight.

    Args:
        form: of the loss.
        y: the scores, in the dtype of formulas.
        weight: of the classes, in the same dtype.
        reduction: NONE, MEAN or SUM.
        g: divided by the total weight already, for a mean; None for zero.
        g_total: None for zero.
    """
    out = None if g is None else form.to_weight(g, y)
    if reduction == MEAN and g is not None:
        # With S the weighted sum and T the total weight, d(S / T) = dS / T - (S / T) dT / T. g is divided
        # by T already, so the cotangent of T is -g S / T.
        through = -g * form.value(y, weight, MEAN)
        g_total = through if g_total is None else g_total + through
    if reduction != NONE and g_total is not None:
        ones = form.at_positions(g_total).expand(form.target.shape)
        counted = form.at_targets(ones)
        out = counted if out is None else out + counted
    return out


def _forward_jvp(args: Record, tangents: Record) -> tuple[Tensor, Tensor]:
    x, target, weight, reduction, ignore_index, batch_ndim = args
    t, t_weight, up = tangents.input, tangents.weight, compute_dtype(x.dtype)
    # The loss is linear in the scores, so its tangent is the loss of the tangent. The total weight does not
    # read the scores.
    if t_weight is None:
        out, total = _plain(t, target, weight, reduction, ignore_index, batch_ndim)
        return out, torch.zeros_like(total)
    form = form_of(target, x.shape[class_dim(x.dim(), batch_ndim)], ignore_index, batch_ndim)
    out, t_total = moved(form, x.to(up), weight, None if t is None else t.to(up), t_weight, reduction)
    return out.to(x.dtype), t_total


def scores_gradient(args: Record) -> Tensor:
    """The gradient of nll_loss in its input; differentiable in grad_output, weight and total_weight."""
    # The names are those of aten's backward op. A mean is divided by its total weight, which counts as independent of
    # the weight.
    g = raised(args.grad_output).reshape(() if args.reduction else args.target.shape)
    if args.reduction == MEAN:
        g = g / raised(args.total_weight).reshape(())
    x = args.self
    classes = x.shape[class_dim(x.dim(), 0)]
    return nll_loss_backward(g, args.target.long(), raised(args.weight), classes, args.ignore_index, 0, g.dtype)


def moved(
    form: Form, y: Tensor, weight: Tensor | None, t: Tensor | None, t_weight: Tensor | None, reduction: int
) -> tuple[Tensor, Tensor]:
    """Tangents of the loss and of the total weight, where y moves along t and the weight along t_weight.

    Args:
        form: of the loss.
        y, weight: where the tangents are taken, in the dtype of formulas.
        t, t_weight: the directions; None for zero.
        reduction: NONE, MEAN or SUM.
    """
    # A mean is differentiated as a quotient of two sums.
    inner = SUM if reduction == MEAN else reduction
    constant = y.new_zeros(form.target.shape[: form.batch_ndim])
    if t_weight is None:
        return form.value(y if t is None else t, weight, reduction), constant
    out = form.value(y, t_weight, inner)
    if t is not None:
        out = form.value(t, weight, inner) + out
    if reduction == NONE:
        return out, constant
    t_total = form.of_weight(t_weight)
    if reduction == MEAN and weight is not None:
        # d(S / T) = (dS - (S / T) dT) / T, with S / T the mean itself.
        out = (out - form.value(y, weight, MEAN) * t_total) / form.of_weight(weight)
    return out, t_total


def with_one_more_batch(size: int, dims: Record, args: Record) -> list[Any]:
    """The arguments of an op of losses with one more batch dim in front; the op computes a loss per batch index.

    A tensor without the batch is expanded. Its gradient is then a sum over the batch, so it is first converted to the
    dtype of sums.
    """
    operands = []
    for name, value, dim in zip(args._fields, args, dims, strict=True):
        if isinstance(value, Tensor):
            value = in_front(raised(value) if dim is None else value, dim, size)
        operands.append(value + 1 if name == "batch_ndim" else value)
    return operands


def batched_loss(op: Any, size: int, dims: Record, args: Record) -> tuple[Any, Any]:
    """The vmap rule of a forward op."""
    out, total = op(*with_one_more_batch(size, dims, args))
    # An input that was repeated came in float32, and so did the loss. It is rounded to the dtype that a call without
    # vmap has.
    return (out.to(args.input.dtype), total), (0, 0)


def _batched(op: Any, size: int, dims: Record, args: Record) -> tuple[Any, Any]:
    return op(*with_one_more_batch(size, dims, args)), 0


def _backward_fake(args: Record) -> Tensor:
    shape = args.target.shape
    dim = class_dim(len(shape) + 1, args.batch_ndim)
    out: Tensor = args.grad_output.new_empty((*shape[:dim], args.classes, *shape[dim:]), dtype=args.dtype)
    return out


def _backward_save(args: Record, outputs: Record, needs: Record) -> _SavedAdjoint:
    g = args.grad_output
    # Where the weight needs no gradient, dtype and number of dims are all that is needed of the cotangent,
    # and the tensor itself can be freed.
    return _SavedAdjoint(
        g if needs.weight else None, args.target, args.weight, args.classes, args.ignore_index, args.batch_ndim,
        g.dtype, g.dim(),
    )  # fmt: skip


def _backward_backward(saved: _SavedAdjoint, needs: Record, cotangents: Record) -> Grads:
    """<v, d_input> is the loss of the scores v, summed with grad_output: both gradients are that of a loss."""
    g, target, weight, classes, ignore_index, batch_ndim, dtype, ndim = saved
    v = cotangents.out
    up = compute_dtype(v.dtype)
    # The cotangent is read twice where the weight needs a gradient, so the two contributions add in
    # float32.
    if v.dtype is not dtype or needs.weight:
        v = v.to(up)
    grads = {}
    if needs.grad_output:
        reduction = NONE if ndim == target.dim() else SUM
        grads["grad_output"] = _plain(v, target, weight, reduction, ignore_index, batch_ndim)[0].to(dtype)
    if needs.weight and g is not None:  # and the weight is not None, for it needs a gradient
        form = form_of(target, classes, ignore_index, batch_ndim)
        grads["weight"] = form.to_weight(g, v)
    return grads


def _backward_jvp(args: Record, tangents: Record) -> Tensor:
    """The op itself in the direction of either argument: it is linear in both."""

    def along(g: Tensor, weight: Tensor | None, dtype: torch.dtype) -> Tensor:
        return nll_loss_backward(g, args.target, weight, args.classes, args.ignore_index, args.batch_ndim, dtype)

    t, t_weight, dtype = tangents.grad_output, tangents.weight, args.dtype
    if t_weight is None:
        return along(t, args.weight, dtype)
    if t is None:
        return along(args.grad_output, t_weight, dtype)
    # Two terms are added, so both come in float32 and the sum is rounded once.
    up = compute_dtype(dtype)
    return (along(t, args.weight, up) + along(args.grad_output, t_weight, up)).to(dtype)


def _total_fake(args: Record) -> Tensor:
    weight = args.weight
    out: Tensor = weight.new_empty(args.target.shape[: args.batch_ndim], dtype=weight.dtype)
    return out


def _total_save(args: Record, outputs: Record, needs: Record) -> _SavedTotal:
    return _SavedTotal(args.target, args.weight.shape[-1], args.ignore_index, args.batch_ndim)


def _total_backward(saved: _SavedTotal, needs: Record, cotangents: Record) -> Grads:
    target, classes, ignore_index, batch_ndim = saved
    form = form_of(target, classes, ignore_index, batch_ndim)
    g = form.at_positions(cotangents.out).expand(target.shape)
    return {"weight": form.at_targets(g)}


def _total_jvp(args: Record, tangents: Record) -> Tensor:
    return total_weight(tangents.weight, args.target, args.ignore_index, args.batch_ndim)


AUTOCAST = (("cpu", torch.float32), ("cuda", torch.float32))
"""As torch: losses autocast to float32 on both."""

Forward = Operator[Tensor, Tensor, Tensor | None, int, int, int, tuple[Tensor, Tensor]]


def _name_kernel(kernel: Callable[[kernels.Loss, str], tuple[Tensor, Tensor]]) -> Callable[[kernels.Loss], Any]:
    """The kernel, with messages that name ATen's op for the number of dims of the target."""
    return lambda args: kernel(args, kernels.aten_name("forward", args.target.dim() - args.batch_ndim))


def _define_forward(
    name: str, cpu: Callable[..., Any], cuda: Callable[..., Any], autocast: tuple[tuple[str, torch.dtype], ...]
) -> Forward:
    """The operator of a loss and its total weight, with the kernels of both devices and the rules of its transforms."""
    return Operator(
        f"{name}(Tensor input, Tensor target, Tensor? weight, int reduction, SymInt ignore_index, int batch_ndim)"
        " -> (Tensor, Tensor)",
        taking(kernels.Loss, cpu, cuda, forward_fake, autocast),
        batched_loss,
        Rules(_SavedScores, _forward_save, _forward_backward, _forward_jvp),
        outputs=("out", "total"),
    )


nll_loss = _define_forward("nll_loss", kernels.nll_loss, kernels_cuda.nll_loss, AUTOCAST)
_plain = nll_loss_forward = _define_forward(
    "nll_loss_forward", _name_kernel(kernels.nll_loss), _name_kernel(kernels_cuda.nll_loss), ()
)
# The loss is linear in the scores and in the weight, and so is its adjoint: the rules of either call the other, which
# says all there is at every order. An expression in torch's ops would sum in an order of its own choice.
nll_loss_backward: Operator[Tensor, Tensor, Tensor | None, int, int, int, torch.dtype, Tensor] = Operator(
    "nll_loss_backward(Tensor grad_output, Tensor target, Tensor? weight, SymInt classes, SymInt ignore_index,"
    " int batch_ndim, ScalarType dtype) -> Tensor",
    taking(kernels.LossBackward, kernels.nll_loss_backward, kernels_cuda.nll_loss_backward, _backward_fake),
    _batched,
    Rules(_SavedAdjoint, _backward_save, _backward_backward, _backward_jvp),
)
total_weight: Operator[Tensor, Tensor, int, int, Tensor] = Operator(
    "nll_loss_total_weight(Tensor weight, Tensor target, SymInt ignore_index, int batch_ndim) -> Tensor",
    Kernels(kernels.total_weight, kernels_cuda.total_weight, _total_fake),
    _batched,
    Rules(_SavedTotal, _total_save, _total_backward, _total_jvp),
)
