"""Adapters: the forward AD of aten ops by the expressions of the families here.

An adapter takes what its aten op takes. It computes the op's own values and attaches to them the derivatives of the
family's expression; no formula stands here. What is written by hand is the expression alone, as a function on the
record of the op's arguments, which have the names of aten's schema there, `self` among them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..linalg.trace import trace as our_trace
from ..losses.nll_loss import rules as nll_loss
from ..norms import expressions as norms
from ..norms.kernels_cpu.operands import Gradients
from ..norms.layout import Channels, Rows
from ..operator import records
from ..operator.expression import attached, values_of
from ..operator.precision import raised
from ..operator.records import Record
from ..pointwise.log_sigmoid import log_sigmoid
from ..softmax import expressions as softmax
from .registry import register_decomposition_for_jvp, sign

aten = torch.ops.aten


def _adapter(
    overload: torch._ops.OpOverload, slopes: Callable[[Record], Tensor | Sequence[Tensor | None]], *,
    values: Callable[[Record], Any] | None = None, renamed: dict[str, str] | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """The decomposition of an aten op, registered: the op's values with the derivatives of expressions.

    Args:
        overload: of the op.
        slopes: the op's arguments in, an expression for each output out: None where the output is None or carries no
            derivative. Its docstring becomes that of the decomposition.
        values: the op's arguments in, its outputs out; the op itself by default.
        renamed: names that the other two use for an argument, where these are not the schema's.
    """
    own = renamed or {}
    names = [own.get(name, name) for name in records.argument_names(overload)]
    record = records.maker(records.record_of("arguments", names))

    def decomposition(*args: Any, **kwargs: Any) -> Any:
        arguments = record(signature.bind(*args, **kwargs).args)
        # The values are those that the op has without a tangent, so they do not change because one is present.
        outputs = values_of(overload, *arguments) if values is None else values(arguments)
        expressions: Any = slopes(arguments)
        return (
            attached(outputs, expressions)
            if isinstance(outputs, Tensor)
            else tuple(map(attached, outputs, expressions))
        )

    signature = sign(decomposition, overload)
    decomposition.__doc__ = slopes.__doc__
    return register_decomposition_for_jvp(overload)(decomposition)


def _trace_slope(args: Record) -> Tensor:
    """Sum of the diagonal."""
    return our_trace(raised(args.self))


def _log_sigmoid_slopes(args: Record) -> tuple[Tensor, None]:
    """(min(x, 0) - log1p(exp(-|x|)), buffer); no derivative flows through the buffer."""
    return log_sigmoid(raised(args.self)), None


trace = _adapter(aten.trace.default, _trace_slope)
log_sigmoid_forward = _adapter(aten.log_sigmoid_forward.default, _log_sigmoid_slopes)


def _softmax_slope(args: Record) -> Tensor:
    """y (g - sum(g y))."""
    # aten's op is given the rounded output and counts it as independent of grad_output. So there is no shift, which
    # would make the output a function of the input.
    return softmax.softmax_gradient(False, raised(args.grad_output), args.output, None, args.dim)


def _log_softmax_slope(args: Record) -> Tensor:
    """g - exp(y) sum(g)."""
    return softmax.softmax_gradient(True, raised(args.grad_output), args.output, None, args.dim)


_softmax_backward_data = _adapter(aten._softmax_backward_data.default, _softmax_slope)
_log_softmax_backward_data = _adapter(aten._log_softmax_backward_data.default, _log_softmax_slope)
nll_loss_backward = _adapter(aten.nll_loss_backward.default, nll_loss.scores_gradient)
nll_loss2d_backward = _adapter(aten.nll_loss2d_backward.default, nll_loss.scores_gradient)


def _layer_norm_slopes(args: Record) -> Gradients:
    """Gradients of layer_norm; mean and rstd count as functions of the input. None where the op returns nothing.

    The bias is not read by the derivatives.
    """
    mask = tuple(args.output_mask)
    layout = Rows(len(args.normalized_shape))
    # The op is given rstd and no eps, so the expression finds the eps that belongs to it.
    rstd = raised(args.rstd)
    return norms.gradients(layout, args.grad_out, args.input, args.weight, eps=None, rstd=rstd, mask=mask)


def _batch_norm_slopes(args: Record) -> Gradients:
    """Gradients of batch norm; in training the saved statistics count as functions of the input.

    What save_var holds, where the op has an argument of that name, is 1 / sqrt(var + eps).
    """
    x, weight = args.input, args.weight
    layout = Channels(x.shape[1])
    g, rows = layout.view(args.grad_out), layout.view(x)
    # With statistics of the batch the input acts through them as well; constant ones only scale it. The ops of cudnn
    # and miopen are for training alone and have no argument that says so.
    if getattr(args, "train", True):
        rstd = layout.view_statistics(raised(args.save_invstd))
        slopes = norms.gradients(layout, g, rows, weight, eps=None, rstd=rstd)
    else:
        constants = args.running_mean, args.running_var
        slopes = norms.gradients(layout, g, rows, weight, eps=args.eps, constants=constants)
    d_input, d_weight, d_bias = slopes
    return None if d_input is None else d_input.reshape(x.shape), d_weight, d_bias


def _values_in_training(overload: torch._ops.OpOverload) -> Callable[[Record], Any]:
    """The values of cudnn's op, or miopen's; those of the native op where this device has no kernel of the library."""

    def values(args: Record) -> Any:
        if args.input.is_cuda:
            return values_of(overload, *args)
        statistics = (args.running_mean, args.running_var, args.save_mean, args.save_invstd)
        native = aten.native_batch_norm_backward.default
        everything = [True, True, True]
        return values_of(native, args.grad_out, args.input, args.weight, *statistics, True, args.eps, everything)

    return values


#: Other ops' names for the arguments of `native_batch_norm_backward`.
_NATIVE_NAMES = {"grad_output": "grad_out", "save_var": "save_invstd", "update": "train", "epsilon": "eps"}


def _batch_norm_adapter(overload: torch._ops.OpOverload, values: Callable[[Record], Any] | None = None) -> Any:
    return _adapter(overload, _batch_norm_slopes, values=values, renamed=_NATIVE_NAMES)


_cudnn, _miopen = aten.cudnn_batch_norm_backward.default, aten.miopen_batch_norm_backward.default

native_layer_norm_backward = _adapter(aten.native_layer_norm_backward.default, _layer_norm_slopes)
native_batch_norm_backward = _batch_norm_adapter(aten.native_batch_norm_backward.default)
batch_norm_backward = _batch_norm_adapter(aten.batch_norm_backward.default)
cudnn_batch_norm_backward = _batch_norm_adapter(_cudnn, _values_in_training(_cudnn))
miopen_batch_norm_backward = _batch_norm_adapter(_miopen, _values_in_training(_miopen))
