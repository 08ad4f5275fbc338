"""Batch norm by aten's names and signatures, forward and backward, on any device.

aten has one implementation per library behind these names; here it is one for all.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..operator.arguments import checked_mask
from ..operator.precision import compute_dtype
from .batch_norm import Arguments, check, evaluate, run_backward, train
from .kernels_cpu.operands import Gradients, Outputs


def native_batch_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
    training: bool, momentum: float, eps: float,
) -> Outputs:  # fmt: skip
    """`batch_norm` with the statistics of the batch, which are differentiable outputs.

    Args:
        input, ..., eps: as for `batch_norm`; with `training`, one element per channel is allowed without running
            statistics, and eps = 0, with which a channel of variance 0 is NaN.

    Returns:
        out, save_mean, save_invstd. With `training`, save_mean and save_invstd = 1 / sqrt(var + eps) have shape (C,),
        and are NaN for a batch without elements; without, both are empty, as torch has it on the CPU. They are float32
        for bfloat16 and float16 inputs, else of the input's dtype.

    Raises:
        As `batch_norm`, but no ValueError for eps, nor for one element per channel without running statistics. With
        them torch writes the unbiased variance of one element, NaN, into running_var.
    """
    arguments = Arguments(input, weight, bias, running_mean, running_var, training, momentum, eps)
    return _outputs("native_batch_norm", arguments)


def native_batch_norm_legit(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor, running_var: Tensor,
    training: bool, momentum: float, eps: float,
) -> Outputs:  # fmt: skip
    """`native_batch_norm` whose running statistics are always given.

    Args:
        input, ..., eps: as for `native_batch_norm`; running_mean and running_var are not optional.

    Raises:
        As `native_batch_norm`, and RuntimeError without running statistics.
    """
    name = "native_batch_norm_legit"
    # aten's schema has a Tensor here and no optional one. Without this test None would pass as "no running
    # statistics".
    for label, value in (("running_mean", running_mean), ("running_var", running_var)):
        if value is None:
            raise RuntimeError(f"{name}: got {label}=None, need a Tensor.")
    return _outputs(name, Arguments(input, weight, bias, running_mean, running_var, training, momentum, eps))


def native_batch_norm_legit_no_stats(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float
) -> Outputs:
    """`native_batch_norm` without running statistics; RuntimeError without `training`, where it would need them.

    Args:
        input, weight, bias, training, momentum, eps: as for `native_batch_norm`; momentum is not read.
    """
    arguments = Arguments(input, weight, bias, None, None, training, momentum, eps)
    return _outputs("native_batch_norm_legit_no_stats", arguments)


def cudnn_batch_norm(
    input: Tensor, weight: Tensor, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
    training: bool, exponential_average_factor: float, epsilon: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """`native_batch_norm`, and as a fourth output cudnn's reserve, which is empty (uint8): nothing here needs one.

    Args:
        input, weight, bias, running_mean, running_var, training: as for `native_batch_norm`.
        exponential_average_factor: cudnn's name for momentum.
        epsilon: its name for eps.
    """
    arguments = Arguments(input, weight, bias, running_mean, running_var, training, exponential_average_factor, epsilon)
    outputs = _outputs("cudnn_batch_norm", arguments)
    # cudnn's backward reads intermediates from its reserve. The backward here computes from the input, so
    # the reserve is there for the signature alone.
    return *outputs, input.new_empty(0, dtype=torch.uint8)


def miopen_batch_norm(
    input: Tensor, weight: Tensor, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
    training: bool, exponential_average_factor: float, epsilon: float,
) -> Outputs:  # fmt: skip
    """`native_batch_norm`.

    Args:
        input, ..., epsilon: as for `cudnn_batch_norm`.
    """
    arguments = Arguments(input, weight, bias, running_mean, running_var, training, exponential_average_factor, epsilon)
    return _outputs("miopen_batch_norm", arguments)


def native_batch_norm_backward(
    grad_out: Tensor, input: Tensor, weight: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
    save_mean: Tensor | None, save_invstd: Tensor | None, train: bool, eps: float, output_mask: Sequence[bool],
) -> Gradients:  # fmt: skip
    """Gradients of input, weight and bias from the gradient of out.

    With `train` the values use the given save_mean and save_invstd, and the derivatives of this function treat both as
    what they are, functions of input: mean(input) and 1 / sqrt(var(input) + eps) with the eps that the given
    save_invstd implies, held constant. Else the statistics are running_mean and running_var, constants.

    Args:
        grad_out: shape and dtype of input, any strides. input, weight: as for `batch_norm`.
        save_mean, save_invstd: (C,), as `native_batch_norm` returns them; ignored without `train`.
        running_mean, running_var: (C,); ignored with `train`.
        output_mask: which of the three gradients to compute.

    Returns:
        d_input (shape, dtype and memory format of input), d_weight and d_bias (C,) in the weight's dtype, or in that of
        the statistics where there is no weight; None where the mask is False. Sums of half-precision inputs are float32
        and rounded once.

    Raises:
        TypeError, RuntimeError, IndexError, NotImplementedError: as `batch_norm`.
    """
    statistics = (running_mean, running_var, save_mean, save_invstd)
    name = "native_batch_norm_backward"
    mask = checked_mask(name, output_mask)
    return run_backward(name, grad_out, input, weight, statistics, train, eps, mask, "save_invstd")


def batch_norm_backward(
    grad_out: Tensor, input: Tensor, weight: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    save_mean: Tensor | None, save_var: Tensor | None, update: bool, eps: float, output_mask: Sequence[bool],
    reserve: Tensor,
) -> Gradients:  # fmt: skip
    """`native_batch_norm_backward`: `update` is its train, `save_var` its save_invstd (by aten's name for it), and
    `reserve` is ignored.

    Args:
        grad_out, ..., save_mean, eps, output_mask: as for `native_batch_norm_backward`.
    """
    statistics = (running_mean, running_var, save_mean, save_var)
    name = "batch_norm_backward"
    return run_backward(name, grad_out, input, weight, statistics, update, eps, checked_mask(name, output_mask))


def cudnn_batch_norm_backward(
    input: Tensor, grad_output: Tensor, weight: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    save_mean: Tensor | None, save_var: Tensor | None, epsilon: float, reserveSpace: Tensor,
) -> Gradients:  # fmt: skip
    """`native_batch_norm_backward` with train and all three gradients; `save_var` is its save_invstd, and
    `reserveSpace` is ignored.

    Args:
        input, grad_output, ..., save_mean: as for `native_batch_norm_backward`. epsilon: eps.
    """
    statistics = (running_mean, running_var, save_mean, save_var)
    return run_backward(
        "cudnn_batch_norm_backward", grad_output, input, weight, statistics, True, epsilon, (True, True, True)
    )


def miopen_batch_norm_backward(
    input: Tensor, grad_output: Tensor, weight: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    save_mean: Tensor | None, save_var: Tensor | None, epsilon: float,
) -> Gradients:  # fmt: skip
    """`native_batch_norm_backward` with train and all three gradients; `save_var` is its save_invstd.

    Args:
        input, ..., epsilon: as for `cudnn_batch_norm_backward`.
    """
    statistics = (running_mean, running_var, save_mean, save_var)
    return run_backward(
        "miopen_batch_norm_backward", grad_output, input, weight, statistics, True, epsilon, (True, True, True)
    )


def _outputs(name: str, arguments: Arguments) -> Outputs:
    """The one forward behind all signatures; `name` is the function that messages speak of."""
    check(name, arguments)
    if arguments.training:
        return train(arguments, name)
    # The statistics were not computed here, so there is nothing to save. As in aten, both are then empty tensors, and
    # not None.
    out, x = evaluate(arguments), arguments.input
    dtype = compute_dtype(x.dtype)
    return out, x.new_empty(0, dtype=dtype), x.new_empty(0, dtype=dtype)
