"""Decompositions by which torch's own forward AD of aten ops can be made right.

Where an aten op has no formula of its own for forward AD, torch runs a decomposition of it as soon as one of its
inputs carries a tangent, and takes the *value* from there as well. Torch's decompositions round the half types at
every step, return zeros where the op returns nothing, and mix up which gradients were asked for; so values and dtypes
change because a tangent is present. The decompositions here compute the value by the op itself and only its
derivatives by an expression, in float32 for the half types.

Which ops this can change (torch 2.11 to 2.13, measured by forward AD with an empty registry): the nine that are
`installable` below. `trace` and `log_sigmoid_forward` have formulas of their own, which come first: their entries
serve whoever reads the table, and no installation changes them.

Torch registers its decompositions when the first dual tensor of a process is made, and keeps the first registration
of an op for good. So `install_jvp_decompositions` must come before any forward AD, and cannot be undone; what can be
switched is which of the two a registered op runs, `jvp_decompositions`.
"""
# No postponed annotations: TorchScript reads the signatures below.

from typing import Any

import torch
from torch import Tensor

from .forward_ad.registry import TooLateError as TooLateError
from .forward_ad.registry import decomposition_table_for_jvp as decomposition_table_for_jvp
from .forward_ad.registry import install_jvp_decompositions as install_jvp_decompositions
from .forward_ad.registry import installable as installable
from .forward_ad.registry import installed as installed
from .forward_ad.registry import jvp_decompositions as jvp_decompositions
from .forward_ad.registry import maybe_register_decomposition as maybe_register_decomposition
from .forward_ad.registry import overload_of as overload_of
from .forward_ad.registry import register_decomposition_for_jvp as register_decomposition_for_jvp
from .operator import torch_private as private
from .operator.attach import attach
from .operator.precision import compute_dtype

aten = torch.ops.aten
# ---------------------------------------------------------------------------------------- values and derivatives


def _values(overload: Any, *args: Any) -> Any:
    """What the op returns when no tangent and no graph of this level is there; those of outer transforms stay."""
    with torch.enable_grad(), private.forward_ad_enabled(True), private.below_autograd():
        return overload(*args)


def _attached(values: Any, slopes: Any) -> Any:
    return tuple(None if value is None else attach(value, slope) for value, slope in zip(values, slopes, strict=True))


def _up(t: Any) -> Any:
    return None if t is None else t.to(compute_dtype(t.dtype))


def recompute_mean_var(
    input: Tensor, rstd: Tensor, inner_dim_indices: list[int], keepdim: bool
) -> tuple[Tensor, Tensor]:
    """(mean, rstd) over the given dims as functions of the input: a saved rstd does not carry its dependence on it.

    rstd = 1 / sqrt(var + eps) with the eps that the given `rstd` implies, held constant. float32 for the half types.
    """
    x, r = _up(input), _up(rstd)
    var, mean = torch.var_mean(x, dim=inner_dim_indices, correction=0, keepdim=keepdim)
    eps = ((1.0 / r).square() - var).detach()
    return mean, (var + eps).sqrt().reciprocal()


@maybe_register_decomposition(aten.trace.default)
def trace(self: Tensor) -> Tensor:
    """Sum of the diagonal."""
    return attach(_values(aten.trace.default, self), torch.sum(torch.diagonal(_up(self))))


@maybe_register_decomposition(aten.log_sigmoid_forward.default)
def log_sigmoid_forward(self: Tensor) -> tuple[Tensor, Tensor]:
    """(min(x, 0) - log1p(exp(-|x|)), buffer); no derivative flows through the buffer."""
    output, buffer = _values(aten.log_sigmoid_forward.default, self)
    x = _up(self)
    return attach(output, torch.minimum(x.new_zeros(()), x) - torch.log1p(torch.exp(-torch.abs(x)))), buffer


@register_decomposition_for_jvp(aten._softmax_backward_data.default)
def _softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: int) -> Tensor:
    """y (g - sum(g y))."""
    value = _values(aten._softmax_backward_data.default, grad_output, output, dim, input_dtype)
    g, y = _up(grad_output), _up(output)
    return attach(value, y * (g - torch.sum(g * y, dim, keepdim=True)))


@register_decomposition_for_jvp(aten._log_softmax_backward_data.default)
def _log_softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: int) -> Tensor:
    """g - exp(y) sum(g)."""
    value = _values(aten._log_softmax_backward_data.default, grad_output, output, dim, input_dtype)
    g, y = _up(grad_output), _up(output)
    return attach(value, g - torch.exp(y) * torch.sum(g, dim, keepdim=True))


_MEAN = 1  # aten's number for that reduction; "none" is 0


def _nll_loss_backward(
    overload: Any, g: Tensor, x: Tensor, target: Tensor, weight: Any, reduction: int, ignore_index: int, total: Tensor
) -> Tensor:
    """-g w[target] at the target's class, over the total weight where the loss is a mean; 0 elsewhere."""
    value = _values(overload, g, x, target, weight, reduction, ignore_index, total)
    target = target.long()  # bytes neither index nor compare with a negative number
    ignored = target == ignore_index
    classes = torch.where(ignored, 0, target)
    share = -_up(g).reshape(() if reduction else target.shape)
    if reduction == _MEAN:
        share = share / _up(total).reshape(())
    if weight is not None:
        share = share * _up(weight)[classes]
    share = torch.where(ignored, 0.0, share)
    dim = 1 if x.dim() > 1 else 0
    zeros = torch.zeros_like(x, dtype=share.dtype)
    return attach(value, zeros.scatter(dim, classes.unsqueeze(dim), share.unsqueeze(dim)))


@register_decomposition_for_jvp(aten.nll_loss_backward.default)
def nll_loss_backward(
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Tensor:
    """The gradient of nll_loss in its input; differentiable in grad_output, weight and total_weight."""
    overload = aten.nll_loss_backward.default
    return _nll_loss_backward(overload, grad_output, self, target, weight, reduction, ignore_index, total_weight)


@register_decomposition_for_jvp(aten.nll_loss2d_backward.default)
def nll_loss2d_backward(
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Tensor:
    """The gradient of nll_loss2d in its input; differentiable in grad_output, weight and total_weight."""
    overload = aten.nll_loss2d_backward.default
    return _nll_loss_backward(overload, grad_output, self, target, weight, reduction, ignore_index, total_weight)


@register_decomposition_for_jvp(aten.native_layer_norm_backward.default)
def native_layer_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    normalized_shape: list[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    output_mask: list[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of layer_norm; mean and rstd count as functions of the input. None where the op returns nothing."""
    overload = aten.native_layer_norm_backward.default
    values = _values(overload, grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask)
    first = input.dim() - len(normalized_shape)
    row, lead = list(range(first, input.dim())), list(range(first))
    g, x = _up(grad_out), _up(input)
    mean, rstd = recompute_mean_var(x, rstd, row, keepdim=True)
    normalized = (x - mean) * rstd
    scaled = g if weight is None else g * _up(weight)
    along = torch.mean(scaled * normalized, row, keepdim=True)
    d_input = rstd * (scaled - torch.mean(scaled, row, keepdim=True) - normalized * along)
    slopes = (d_input, _summed(g * normalized, lead), _summed(g, lead))
    return _attached(values, slopes)  # type: ignore[no-any-return]


def _summed(t: Tensor, dims: list[int]) -> Tensor:
    return t.sum(dims) if dims else t  # sum over no dims would sum over all


def _batch_norm_backward(values: Any, grad_out: Tensor, input: Tensor, weight: Any, chosen: Any, eps: float) -> Any:
    """Gradients of batch norm by the `chosen` statistics: (mean, variance, None), or the batch's (None, None, rstd)."""
    mean, var, rstd = chosen
    others = [i for i in range(input.dim()) if i != 1]
    g, x = _up(grad_out), _up(input)

    def spread(t: Tensor) -> Tensor:
        return t.reshape(-1, *(1,) * (x.dim() - 2))

    if rstd is None:
        mean, rstd = _up(mean), (_up(var) + eps).sqrt().reciprocal()
    else:
        mean, rstd = recompute_mean_var(x, rstd, others, keepdim=False)
    normalized = (x - spread(mean)) * spread(rstd)
    scaled = g if weight is None else g * spread(_up(weight))
    centred = scaled
    if var is None:
        along = torch.mean(scaled * normalized, others, keepdim=True)
        centred = scaled - torch.mean(scaled, others, keepdim=True) - normalized * along
    slopes = (spread(rstd) * centred, torch.sum(g * normalized, others), torch.sum(g, others))
    return _attached(values, slopes)


@register_decomposition_for_jvp(aten.native_batch_norm_backward.default)
def native_batch_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_invstd: Tensor | None,
    train: bool,
    eps: float,
    output_mask: list[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of batch norm; in training the saved statistics count as functions of the input."""
    statistics = (running_mean, running_var, save_mean, save_invstd)
    overload = aten.native_batch_norm_backward.default
    values = _values(overload, grad_out, input, weight, *statistics, train, eps, output_mask)
    chosen: Any = (None, None, save_invstd) if train else (running_mean, running_var, None)
    return _batch_norm_backward(values, grad_out, input, weight, chosen, eps)  # type: ignore[no-any-return]


@register_decomposition_for_jvp(aten.batch_norm_backward.default)
def batch_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    weight: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_var: Tensor | None,
    update: bool,
    eps: float,
    output_mask: list[bool],
    reserve: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of batch norm, `update` for training; save_var holds 1 / sqrt(var + eps)."""
    statistics = (running_mean, running_var, save_mean, save_var)
    overload = aten.batch_norm_backward.default
    values = _values(overload, grad_out, input, weight, *statistics, update, eps, output_mask, reserve)
    chosen: Any = (None, None, save_var) if update else (running_mean, running_var, None)
    return _batch_norm_backward(values, grad_out, input, weight, chosen, eps)  # type: ignore[no-any-return]


@register_decomposition_for_jvp(aten.cudnn_batch_norm_backward.default)
def cudnn_batch_norm_backward(
    input: Tensor,
    grad_output: Tensor,
    weight: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_var: Tensor | None,
    epsilon: float,
    reserveSpace: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of batch norm in training; save_var holds 1 / sqrt(var + eps)."""
    statistics = (running_mean, running_var, save_mean, save_var)
    overload = aten.cudnn_batch_norm_backward.default
    values = _trained(overload, input, grad_output, weight, statistics, epsilon, reserveSpace)
    return _batch_norm_backward(values, grad_output, input, weight, (None, None, save_var), epsilon)  # type: ignore[no-any-return]


@register_decomposition_for_jvp(aten.miopen_batch_norm_backward.default)
def miopen_batch_norm_backward(
    input: Tensor,
    grad_output: Tensor,
    weight: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_var: Tensor | None,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of batch norm in training; save_var holds 1 / sqrt(var + eps)."""
    statistics = (running_mean, running_var, save_mean, save_var)
    overload = aten.miopen_batch_norm_backward.default
    values = _trained(overload, input, grad_output, weight, statistics, epsilon)
    return _batch_norm_backward(values, grad_output, input, weight, (None, None, save_var), epsilon)  # type: ignore[no-any-return]


def _trained(
    overload: Any, x: Tensor, grad: Tensor, weight: Tensor, statistics: Any, epsilon: float, *reserve: Tensor
) -> Any:
    """The op's values; those of the native op where this device has no kernel of the op's library."""
    if x.is_cuda:
        return _values(overload, x, grad, weight, *statistics, epsilon, *reserve)
    native = aten.native_batch_norm_backward.default
    return _values(native, grad, x, weight, *statistics, True, epsilon, [True, True, True])
