"""The norms as torch sees them: each op's schema with its kernels, fake, vmap rule and derivatives.

`layer_norm` and `native_layer_norm` differ in one thing, as `group_norm` and `native_group_norm` do: the latter's mean
and rstd are differentiable outputs, so its backward carries their cotangents; the former's are there for its backward
only. The backward op is one for both.

Batch norm is two ops. `batch_norm_training` takes statistics of the batch and is functional: running statistics are
updated elsewhere, from its last output. `batch_norm_evaluation` takes statistics that are constants.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..operator.operator import Kernels, Operator
from ..operator.records import Record
from . import batching, rules
from .expressions import Gradients
from .kernels_cpu import batch_norm as batch_cpu
from .kernels_cpu import group_norm as group_cpu
from .kernels_cpu import layer_norm as layer_cpu
from .kernels_cuda import batch_norm as batch_cuda
from .kernels_cuda import group_norm as group_cuda
from .kernels_cuda import layer_norm as layer_cuda
from .layout import Channels, Groups, Rows
from .rules import Norm, Saved, SavedConstants, Wanted

_AUTOCAST = (("cuda", torch.float32),)  # as torch: layer and group norm autocast to float32 on CUDA, not on CPU
_OUTPUTS = ("out", "mean", "rstd")
_GRADIENTS = ("input", "weight", "bias")

# ------------------------------------------------------------------------------------------------------ layer norm


def _rows(args: Record) -> Rows:
    return Rows(args.row_ndim)


def _batched_rows(args: Record) -> Rows:
    return Rows(args.row_ndim, args.batch_ndim)


def _differentiate_rows(
    saved: Saved[Rows], grad_out: Tensor, grad_mean: Tensor | None, grad_rstd: Tensor | None, wanted: Wanted
) -> Gradients:
    """The backward op's gradients from what layer norm has saved.

    Args:
        saved: what the forward op kept.
        grad_out, grad_mean, grad_rstd: cotangents of its outputs; None for zero.
        wanted: which gradients to compute.
    """
    x, mean, rstd = saved.input, saved.mean, saved.rstd
    assert x is not None and mean is not None and rstd is not None  # noqa: PT018 (once, for speed)
    # eps goes along for the derivatives of the backward op. Its values are those of mean and rstd, but the
    # expression behind its derivatives is exact only if it need not find eps from the rounded rstd.
    return layer_norm_backward(
        grad_out, grad_mean, grad_rstd, x, mean, rstd, rules.weight_or_zeros(saved), saved.bias_dtype,
        saved.layout.row_ndim, saved.eps, 0, wanted,
    )  # fmt: skip


_layer = Norm(_rows, _batched_rows, _differentiate_rows)

layer_norm = Operator(
    "layer_norm(Tensor input, Tensor? weight, Tensor? bias, int row_ndim, float eps) -> (Tensor, Tensor, Tensor)",
    Kernels(layer_cpu.layer_norm, layer_cuda.layer_norm, _layer.fake, _AUTOCAST),
    batching.layer_norm,
    _layer.forward_rules(statistics=False),
    outputs=_OUTPUTS,
)
native_layer_norm = Operator(
    "native_layer_norm(Tensor input, Tensor? weight, Tensor? bias, int row_ndim, float eps)"
    " -> (Tensor, Tensor, Tensor)",
    Kernels(layer_cpu.native_layer_norm, layer_cuda.native_layer_norm, _layer.fake, _AUTOCAST),
    batching.layer_norm,
    _layer.forward_rules(statistics=True),
    outputs=_OUTPUTS,
)
layer_norm_backward = Operator(
    "layer_norm_backward(Tensor grad_out, Tensor? grad_mean, Tensor? grad_rstd, Tensor input,"
    " Tensor mean, Tensor rstd, Tensor? weight, ScalarType? bias_dtype, int row_ndim, float? eps,"
    " int batch_ndim, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
    Kernels(layer_cpu.layer_norm_backward, layer_cuda.layer_norm_backward, _layer.backward_fake),
    batching.layer_norm_backward,
    _layer.backward_derivatives(),
    outputs=_GRADIENTS,
)

# ------------------------------------------------------------------------------------------------------ group norm


def _groups(args: Record) -> Groups:
    return Groups(args.groups)


def _differentiate_groups(
    saved: Saved[Groups], grad_out: Tensor, grad_mean: Tensor | None, grad_rstd: Tensor | None, wanted: Wanted
) -> Gradients:
    """The backward op's gradients from what group norm has saved.

    Args:
        saved, grad_out, grad_mean, grad_rstd, wanted: as for `_differentiate_rows`.
    """
    x, mean, rstd = saved.input, saved.mean, saved.rstd
    assert x is not None and mean is not None and rstd is not None  # noqa: PT018 (once, for speed)
    return group_norm_backward(
        grad_out, grad_mean, grad_rstd, x, mean, rstd, rules.weight_or_zeros(saved), saved.bias_dtype,
        saved.layout.groups, saved.eps, wanted,
    )  # fmt: skip


_group = Norm(_groups, _groups, _differentiate_groups)

group_norm = Operator(
    "group_norm(Tensor input, Tensor? weight, Tensor? bias, int groups, float eps) -> (Tensor, Tensor, Tensor)",
    Kernels(group_cpu.group_norm, group_cuda.group_norm, _group.fake, _AUTOCAST),
    batching.group_norm,
    _group.forward_rules(statistics=False),
    outputs=_OUTPUTS,
)
native_group_norm = Operator(
    "native_group_norm(Tensor input, Tensor? weight, Tensor? bias, int groups, float eps) -> (Tensor, Tensor, Tensor)",
    # torch's native_group_norm does not autocast.
    Kernels(group_cpu.native_group_norm, group_cuda.native_group_norm, _group.fake),
    batching.group_norm,
    _group.forward_rules(statistics=True),
    outputs=_OUTPUTS,
)
group_norm_backward = Operator(
    "group_norm_backward(Tensor grad_out, Tensor? grad_mean, Tensor? grad_rstd, Tensor input, Tensor mean, Tensor rstd,"
    " Tensor? weight, ScalarType? bias_dtype, int groups, float? eps, bool[3] output_mask)"
    " -> (Tensor, Tensor, Tensor)",
    Kernels(group_cpu.group_norm_backward, group_cuda.group_norm_backward, _group.backward_fake),
    batching.group_norm_backward,
    _group.backward_derivatives(),
    outputs=_GRADIENTS,
)

# ------------------------------------------------------------------------------------------------------ batch norm


def _channels(args: Record) -> Channels:
    return Channels(args.input.shape[1])


def _differentiate_channels(
    saved: Saved[Channels], grad_out: Tensor, grad_mean: Tensor | None, grad_rstd: Tensor | None, wanted: Wanted
) -> Gradients:
    """The backward op's gradients from what batch norm in training has saved.

    Args:
        saved, grad_out, grad_mean, grad_rstd, wanted: as for `_differentiate_rows`.
    """
    x, mean, rstd = saved.input, saved.mean, saved.rstd
    assert x is not None and mean is not None and rstd is not None  # noqa: PT018 (once, for speed)
    # aten's backward returns d_weight and d_bias whether or not there are parameters, so their dtypes are
    # always given. Without a parameter nobody asks for its gradient, and the input's dtype serves.
    return batch_norm_backward(
        grad_out, grad_mean, grad_rstd, x, mean, rstd, saved.weight, saved.weight_dtype or x.dtype,
        saved.bias_dtype or x.dtype, saved.eps, wanted,
    )  # fmt: skip


def _training_fake(args: Record) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    out, mean, rstd = _batch.fake(args)
    # The moments are mean and unbiased variance, one row each, in the dtype of the statistics.
    return out, mean, rstd, mean.new_empty((2, mean.shape[0]))


_batch = Norm(_channels, _channels, _differentiate_channels)

# Batch norm has no autocast rule in torch either: it takes a half-precision input beside float32 parameters.
batch_norm_training = Operator(
    "batch_norm_training(Tensor input, Tensor? weight, Tensor? bias, float eps)"
    " -> (Tensor out, Tensor mean, Tensor invstd, Tensor moments)",
    Kernels(batch_cpu.batch_norm_training, batch_cuda.batch_norm_training, _training_fake),
    batching.batch_norm_training,
    _batch.forward_rules(statistics=True, others=("moments",)),
    outputs=(*_OUTPUTS, "moments"),
)
batch_norm_backward = Operator(
    "batch_norm_backward(Tensor grad_out, Tensor? grad_mean, Tensor? grad_invstd, Tensor input, Tensor mean,"
    " Tensor invstd, Tensor? weight, ScalarType weight_dtype, ScalarType bias_dtype, float? eps, bool[3] output_mask)"
    " -> (Tensor, Tensor, Tensor)",
    Kernels(batch_cpu.batch_norm_backward, batch_cuda.batch_norm_backward, _batch.backward_fake),
    batching.batch_norm_backward,
    _batch.backward_derivatives(),
    outputs=_GRADIENTS,
    renamed={"invstd": "rstd", "grad_invstd": "grad_rstd"},  # batch norm's name for what the other norms call rstd
)

# ---------------------------------------------------------------------------------- batch norm by running statistics


def _differentiate_constants(saved: SavedConstants, grad_out: Tensor, wanted: Wanted) -> Gradients:
    assert saved.input is not None
    assert saved.mean is not None
    assert saved.var is not None
    return batch_norm_evaluation_backward(
        grad_out, saved.input, saved.mean, saved.var, saved.weight, saved.weight_dtype, saved.bias_dtype, saved.eps,
        wanted,
    )  # fmt: skip


def _evaluation_fake(args: Record) -> Tensor:
    return _channels(args).empty_like(args.input)


def _evaluation_backward_fake(args: Record) -> Gradients:
    return rules.fake_gradients(args, _channels(args))


batch_norm_evaluation = Operator(
    "batch_norm_evaluation(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var,"
    " float eps) -> Tensor",
    Kernels(batch_cpu.batch_norm_evaluation, batch_cuda.batch_norm_evaluation, _evaluation_fake),
    batching.batch_norm_evaluation,
    rules.constants_rules(_channels, _differentiate_constants),
)
batch_norm_evaluation_backward = Operator(
    "batch_norm_evaluation_backward(Tensor grad_out, Tensor input, Tensor running_mean, Tensor running_var,"
    " Tensor? weight, ScalarType weight_dtype, ScalarType bias_dtype, float eps, bool[3] output_mask)"
    " -> (Tensor, Tensor, Tensor)",
    Kernels(
        batch_cpu.batch_norm_evaluation_backward,
        batch_cuda.batch_norm_evaluation_backward,
        _evaluation_backward_fake,
    ),
    batching.batch_norm_evaluation_backward,
    rules.constants_derivatives(_channels),
    outputs=_GRADIENTS,
)
