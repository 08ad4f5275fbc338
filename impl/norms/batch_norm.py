"""Batch normalisation: the public function, and what all functions of the family share."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from ..operator.arguments import (
    require_floating,
    require_number,
    require_parameter,
    require_parameters,
    require_tensor,
    require_tensors,
)
from ..operator.precision import FLOATING
from . import operators as ops
from .kernels_cpu.operands import Gradients, Outputs
from .running import Running


class Arguments(NamedTuple):
    """The arguments of a call of batch norm, as `batch_norm` describes them."""

    input: Tensor
    weight: Tensor | None
    bias: Tensor | None
    running_mean: Tensor | None
    running_var: Tensor | None
    training: bool
    momentum: float
    eps: float


def batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None = None,
    bias: Tensor | None = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Channels normalised by their mean and variance over all other dims, then scaled and shifted:
    (x - mean) / sqrt(var + eps) * weight + bias.

    With `training` the statistics are those of the batch, functions of the input, and running statistics that are given
    are updated in place: running = (1 - momentum) running + momentum statistic, with the unbiased variance n / (n - 1)
    var of the n elements per channel. A batch without elements updates nothing. Else the statistics are the running
    ones, constants.

    Args:
        input: (N, C, ...), float64, float32, bfloat16 or float16, any strides, cpu or cuda.
        running_mean, running_var: (C,), both or neither; needed without `training`. They and weight and bias (C,) are
            in the input's dtype, or float32 with a bfloat16 or float16 input.
        momentum: weight of the batch in the running statistics. eps: added to the (biased) variance.

    Returns:
        A tensor of the input's shape and dtype, channels_last where the input is, else contiguous. Statistics and sums
        of half-precision inputs are float32 and the result is rounded once. A channel with a NaN or an infinity is NaN
        with `training`.

    Raises:
        TypeError: an operand is not a tensor, momentum or eps not a number.
        ValueError: with `training`, one element per channel, or eps not positive; one of the running statistics without
            the other.
        RuntimeError: shapes, dtypes or devices do not fit each other; no running statistics without `training`; under
            vmap, a batched input with running statistics to update that are not batched.
        IndexError: input has fewer than two dims, and is not of shape (0,), for which torch returns an empty tensor.
        NotImplementedError: input is not of a floating dtype named above.

    Source: S. Ioffe, C. Szegedy, Batch Normalization, arXiv:1502.03167, algorithm 1.
    """
    return normalize(Arguments(input, weight, bias, running_mean, running_var, training, momentum, eps))


def normalize(arguments: Arguments, name: str = "batch_norm") -> Tensor:
    """`batch_norm` of arguments, which are checked here. `name` is the function that messages speak of."""
    input = arguments.input
    # This is the one shape of less than two dims that torch takes. It reads only the first element of each parameter.
    if isinstance(input, Tensor) and input.shape == (0,):
        return _normalize_nothing(arguments, name)
    check(name, arguments)
    if not arguments.training:
        return evaluate(arguments)
    # With eps = 0 a constant channel is 0 / 0. The native functions allow it and return the NaN.
    if arguments.eps <= 0.0:
        raise ValueError(f"{name}: got eps={arguments.eps}, need a positive number with training.")
    # One element is its own mean, so the output would be the bias whatever the input is, and no gradient
    # would reach it.
    if _elements(input) == 1:
        raise ValueError(f"{name}: got input of shape={list(input.shape)}, need more than 1 value per channel.")
    return train(arguments, name)[0]


def _normalize_nothing(arguments: Arguments, name: str) -> Tensor:
    """The result for an input of shape (0,): of its shape and dtype, and a function of the input and the parameters."""
    require_tensors(name, arguments.input, (("weight", arguments.weight), ("bias", arguments.bias)))
    require_floating(name, "input", arguments.input)
    out = arguments.input.clone()
    out = out if arguments.weight is None else out * arguments.weight[0]
    return out if arguments.bias is None else out + arguments.bias[0]


def train(arguments: Arguments, name: str = "batch_norm") -> Outputs:
    """(out, mean, invstd) of the batch; updates running statistics that are given.

    Args:
        arguments: checked. name: the function that messages speak of.

    Raises:
        ValueError: running statistics to update, and one element per channel.
    """
    x, weight, bias, running_mean, running_var, _, momentum, eps = arguments
    elements = _elements(x)
    # The moments of an empty batch are NaN, and a NaN would stay in the running statistics for good.
    if running_mean is None or running_var is None or not elements:
        out, mean, invstd, _ = ops.batch_norm_training(x, weight, bias, eps)
        return out, mean, invstd
    # The unbiased variance of one element is 0 / 0: a NaN that would stay, too.
    if elements == 1:
        raise ValueError(
            f"{name}: got input of shape={list(x.shape)} with running_mean and running_var, need more than 1 value per"
            " channel to update them."
        )
    return ops.batch_norm_training_and_update(x, weight, bias, eps, Running(running_mean, running_var, momentum))


def evaluate(arguments: Arguments) -> Tensor:
    """out by running statistics, which `check` has found to be there."""
    x, weight, bias, running_mean, running_var, _, _, eps = arguments
    assert running_mean is not None
    assert running_var is not None
    return ops.batch_norm_evaluation(x, weight, bias, running_mean, running_var, eps)


def _elements(x: Tensor) -> int:
    """Elements per channel."""
    shape = x.shape
    count: int = shape[0]
    for size in shape[2:]:
        count *= size
    return count


def check(name: str, arguments: Arguments) -> None:
    """Raises the exception for the first wrong argument; arguments may be of any type, and messages speak of `name`.

    Messages are made on failure alone, so that a right call takes no longer than its tests.
    """
    x, weight, bias, running_mean, running_var, training, momentum, eps = arguments
    statistics = (("running_mean", running_mean), ("running_var", running_var))
    parameters = (("weight", weight), ("bias", bias), *statistics)
    # Each rule relies on those before it: shapes are read only of values that have been found to be tensors.
    require_tensors(name, x, parameters)
    if type(momentum) is not float:
        require_number(name, "momentum", momentum)
    if type(eps) is not float:
        require_number(name, "eps", eps)
    if x.dtype not in FLOATING:
        require_floating(name, "input", x)
    if x.dim() < 2:
        raise IndexError(f"{name}: got input of shape={list(x.shape)}, need at least two dims.")
    require_parameters(name, parameters, x, x.shape[1:2], require_channels)
    if (running_mean is None) is not (running_var is None) or not (training or running_mean is not None):
        missing = [label for label, value in statistics if value is None]
        if not training:
            raise RuntimeError(f"{name}: got {missing[0]}=None, need running statistics without training.")
        raise ValueError(f"{name}: got {missing[0]}=None, need running_mean and running_var, or neither.")


def require_channels(name: str, label: str, parameter: Tensor, x: Tensor, shape: Any) -> None:
    """RuntimeError unless a parameter is (C,) in a dtype that goes with the input's, on the input's device.

    Args:
        name, label: the function, and what it calls the parameter, for messages.
        parameter: a weight, a bias or a statistic.
        x, shape: the input, and (C,).
    """
    if parameter.shape != shape:
        raise RuntimeError(
            f"{name}: got {label} of shape={list(parameter.shape)} and input of shape={list(x.shape)},"
            f" need one element per channel, shape={list(shape)}."
        )
    require_parameter(name, label, parameter, x)


def run_backward(
    name: str, grad_out: Tensor, x: Tensor, weight: Tensor | None, statistics: tuple[Any, ...], training: bool,
    eps: float, mask: tuple[bool, bool, bool], saved_invstd: str = "save_var",
) -> Gradients:  # fmt: skip
    """The one backward behind all signatures.

    Args:
        name: the function that messages speak of.
        grad_out, x: (N, C, *), of one dtype.
        weight: (C,), or None.
        statistics: running_mean, running_var, then the saved mean and invstd of the batch; (C,) or None each.
        training: whether the saved statistics are used.
        eps: added to the running variance.
        mask: which of the three gradients to compute.
        saved_invstd: what `name` calls the saved invstd, for messages.
    """
    # In training the saved statistics are read, else the running ones. Those that are not read are not
    # checked, because callers pass empty tensors or None for them.
    used = slice(2, 4) if training else slice(2)
    labels, values = ("running_mean", "running_var", "save_mean", saved_invstd)[used], statistics[used]
    require_tensor(name, "input", x)
    require_tensor(name, "grad_out", grad_out)
    require_floating(name, "input", x)
    if x.dim() < 2:
        raise IndexError(f"{name}: got input of shape={list(x.shape)}, need at least two dims.")
    if grad_out.shape != x.shape or grad_out.dtype is not x.dtype or grad_out.device != x.device:
        raise RuntimeError(
            f"{name}: got grad_out of shape={list(grad_out.shape)}, dtype={grad_out.dtype}, device={grad_out.device},"
            f" need the input's shape={list(x.shape)}, dtype={x.dtype}, device={x.device}."
        )
    for label, value in (*zip(labels, values, strict=True), ("weight", weight)):
        if value is None and label != "weight":
            raise RuntimeError(f"{name}: got {label}=None, need it with training={training}.")
        if value is not None:
            require_tensor(name, label, value)
            require_channels(name, label, value, x, x.shape[1:2])
    require_number(name, "eps", eps)
    # `scale` is the saved invstd in training, and the running variance otherwise.
    mean, scale = values
    dtype = (mean if weight is None else weight).dtype
    if training:
        return ops.batch_norm_backward(grad_out, None, None, x, mean, scale, weight, dtype, dtype, None, mask)
    return ops.batch_norm_evaluation_backward(grad_out, x, mean, scale, weight, dtype, dtype, eps, mask)
