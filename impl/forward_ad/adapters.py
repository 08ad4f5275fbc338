"""Adapters: the forward AD of aten ops by the expressions of the families here.

An adapter has the signature of its aten op. It computes the op's own values and attaches to them the derivatives of the
family's expression; no formula stands here.
"""
# No postponed annotations: TorchScript reads the signatures below.

from typing import Any

import torch
from torch import Tensor

from ..linalg.trace import trace as our_trace
from ..losses.nll_loss import rules as nll_loss
from ..norms import expressions as norms
from ..norms.layout import Channels, Rows
from ..operator.expression import attached, values_of
from ..operator.precision import raised
from ..pointwise.log_sigmoid import log_sigmoid
from ..softmax import expressions as softmax
from .registry import maybe_register_decomposition, register_decomposition_for_jvp

# The parameters below have the names of aten's schemas, `self` among them, for the signatures become text
# of a script.
aten = torch.ops.aten


def _attached(value: Any, slope: Tensor) -> Tensor:
    """What an op returns as its only tensor, with the derivatives of an expression."""
    result: Tensor = attached(value, slope)
    return result


def _all_attached(values: Any, slopes: norms.Gradients) -> tuple[Tensor, Tensor, Tensor]:
    """The same for three tensors, None where the op returns None, whatever the annotation says."""
    first, second, third = map(attached, values, slopes)
    return first, second, third


@maybe_register_decomposition(aten.trace.default)
def trace(self: Tensor) -> Tensor:
    """Sum of the diagonal."""
    return _attached(values_of(aten.trace.default, self), our_trace(raised(self)))


@maybe_register_decomposition(aten.log_sigmoid_forward.default)
def log_sigmoid_forward(self: Tensor) -> tuple[Tensor, Tensor]:
    """(min(x, 0) - log1p(exp(-|x|)), buffer); no derivative flows through the buffer."""
    output, buffer = values_of(aten.log_sigmoid_forward.default, self)
    return _attached(output, log_sigmoid(raised(self))), buffer


@register_decomposition_for_jvp(aten._softmax_backward_data.default)
def _softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: int) -> Tensor:
    """y (g - sum(g y))."""
    # The value is the op's own, so that it does not change because a tangent is present. The slope has no
    # shift: aten's op is given the rounded output and counts it as independent of grad_output.
    value = values_of(aten._softmax_backward_data.default, grad_output, output, dim, input_dtype)
    return _attached(value, softmax.gradient(False, raised(grad_output), output, None, dim))


@register_decomposition_for_jvp(aten._log_softmax_backward_data.default)
def _log_softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: int) -> Tensor:
    """g - exp(y) sum(g)."""
    value = values_of(aten._log_softmax_backward_data.default, grad_output, output, dim, input_dtype)
    return _attached(value, softmax.gradient(True, raised(grad_output), output, None, dim))


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
    """The gradient of nll_loss in its input; differentiable in grad_output, weight and total_weight.

    Args:
        grad_output, ..., total_weight: as aten's op of this name has them.
    """
    overload = aten.nll_loss_backward.default
    value = values_of(overload, grad_output, self, target, weight, reduction, ignore_index, total_weight)
    return _attached(value, nll_loss.gradient(grad_output, self, target, weight, reduction, ignore_index, total_weight))


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
    """The gradient of nll_loss2d in its input; differentiable in grad_output, weight and total_weight.

    Args:
        grad_output, ..., total_weight: as aten's op of this name has them.
    """
    overload = aten.nll_loss2d_backward.default
    value = values_of(overload, grad_output, self, target, weight, reduction, ignore_index, total_weight)
    return _attached(value, nll_loss.gradient(grad_output, self, target, weight, reduction, ignore_index, total_weight))


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
    """Gradients of layer_norm; mean and rstd count as functions of the input. None where the op returns nothing.

    Args:
        grad_out, ..., output_mask: as aten's op of this name has them; bias is not read by the derivatives.
    """
    overload = aten.native_layer_norm_backward.default
    values = values_of(overload, grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask)
    # The op is given rstd and no eps, so the expression finds the eps that belongs to it.
    slopes = norms.gradients(
        Rows(len(normalized_shape)), grad_out, input, weight, eps=None, rstd=raised(rstd), wanted=_wanted(output_mask)
    )
    return _all_attached(values, slopes)


def _wanted(output_mask: list[bool]) -> tuple[bool, bool, bool]:
    return output_mask[0], output_mask[1], output_mask[2]


def _batch_norm_slopes(
    grad_out: Tensor, x: Tensor, weight: Any, constants: Any, rstd: Any, eps: float
) -> norms.Gradients:
    """By the `constants` (mean, variance), or, where these are None, by the batch's own statistics, of which `rstd`.

    Args:
        grad_out, x: (N, C, *).
        weight: (C,), or None for ones.
        constants: (mean, variance), (C,) each, or None.
        rstd: (C,), read without constants.
        eps: added to the variance, read with constants.
    """
    layout = Channels(x.shape[1])
    g, rows = layout.view(grad_out), layout.view(x)
    # With statistics of the batch the input acts through them as well; constant ones only scale it.
    if constants is None:
        slopes = norms.gradients(layout, g, rows, weight, eps=None, rstd=layout.view_statistics(raised(rstd)))
    else:
        mean, var = constants
        slopes = norms.gradients_by_constants(layout, g, rows, weight, mean=mean, var=var, eps=eps)
    d_input, d_weight, d_bias = slopes
    return None if d_input is None else d_input.reshape(x.shape), d_weight, d_bias


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
    """Gradients of batch norm; in training the saved statistics count as functions of the input.

    Args:
        grad_out, ..., output_mask: as aten's op of this name has them.
    """
    statistics = (running_mean, running_var, save_mean, save_invstd)
    overload = aten.native_batch_norm_backward.default
    values = values_of(overload, grad_out, input, weight, *statistics, train, eps, output_mask)
    constants = None if train else (running_mean, running_var)
    return _all_attached(values, _batch_norm_slopes(grad_out, input, weight, constants, save_invstd, eps))


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
    """Gradients of batch norm, `update` for training; save_var holds 1 / sqrt(var + eps).

    Args:
        grad_out, ..., reserve: as aten's op of this name has them.
    """
    statistics = (running_mean, running_var, save_mean, save_var)
    overload = aten.batch_norm_backward.default
    values = values_of(overload, grad_out, input, weight, *statistics, update, eps, output_mask, reserve)
    constants = None if update else (running_mean, running_var)
    return _all_attached(values, _batch_norm_slopes(grad_out, input, weight, constants, save_var, eps))


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
    """Gradients of batch norm in training; save_var holds 1 / sqrt(var + eps).

    Args:
        input, ..., reserveSpace: as aten's op of this name has them.
    """
    statistics = (running_mean, running_var, save_mean, save_var)
    overload = aten.cudnn_batch_norm_backward.default
    # cudnn's op takes the input before the cotangent, the native op the other way round.
    values = _trained(overload, input, grad_output, weight, statistics, epsilon, reserveSpace)
    return _all_attached(values, _batch_norm_slopes(grad_output, input, weight, None, save_var, epsilon))


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
    """Gradients of batch norm in training; save_var holds 1 / sqrt(var + eps).

    Args:
        input, ..., epsilon: as aten's op of this name has them.
    """
    statistics = (running_mean, running_var, save_mean, save_var)
    overload = aten.miopen_batch_norm_backward.default
    values = _trained(overload, input, grad_output, weight, statistics, epsilon)
    return _all_attached(values, _batch_norm_slopes(grad_output, input, weight, None, save_var, epsilon))


def _trained(
    overload: Any, x: Tensor, grad: Tensor, weight: Tensor, statistics: Any, epsilon: float, *reserve: Tensor
) -> Any:
    """The op's values; those of the native op where this device has no kernel of the op's library.

    Args:
        overload: cudnn's or miopen's.
        x, grad, weight: its operands.
        statistics: running mean and variance, saved mean and invstd.
        epsilon: added to the variance.
        reserve: cudnn's last argument, which miopen's op does not have.
    """
    if x.is_cuda:
        return values_of(overload, x, grad, weight, *statistics, epsilon, *reserve)
    native = aten.native_batch_norm_backward.default
    return values_of(native, grad, x, weight, *statistics, True, epsilon, [True, True, True])
