"""Formulas of batch normalisation.

Ioffe, Szegedy: Batch Normalization, arXiv:1502.03167, algorithms 1 and 2. The statistics of the batch are population
moments over all axes but the second; running statistics take the unbiased variance and carry no derivative. What an op
updates in place its formula returns after its other outputs.

What is hard here: torch has eleven signatures of one function, each with its own names and order of arguments and its
own outputs that have no value. The mathematics is stated once, in `native_batch_norm` and `native_batch_norm_backward`;
the others only reorder. Backward ops are given saved statistics, as in `moments`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..algorithms import Inapplicable, also, reordered
from ..array import constant
from . import moments
from .moments import FOLDED, OTHER, SHIFTED, USUAL, Array, Grads, in_other_ways


def _axes(x: Array) -> tuple[int, ...]:
    return (0, *range(2, np.ndim(x)))


def _spread(t: Array, x: Array) -> Array:
    """t (C,), shaped to broadcast against x (N, C, ...)."""
    return np.reshape(t, (np.shape(t)[0], *(1,) * (np.ndim(x) - 2)))


def _elements(x: Array) -> int:
    shape = np.shape(x)
    return int(np.prod([shape[i] for i in _axes(x)], dtype=np.int64))


def _batch(input: Array, eps: float, way: str) -> tuple[Array, Array, Array]:
    """(μ, 1/√(σ² + ε), Σ(x − μ)²) per channel."""
    axes, count = _axes(input), _elements(input)
    if way == SHIFTED:
        _, mean, invstd = moments.shifted_moments(input, axes, eps)
        channels = np.shape(input)[1]
        mean, invstd = np.reshape(mean, (channels,)), np.reshape(invstd, (channels,))
        return mean, invstd, np.sum(np.square(input - _spread(mean, input)), axis=axes)
    mean = np.sum(input, axis=axes) / count if count != 1 else np.sum(input, axis=axes)
    total = np.sum(np.square(input - _spread(mean, input)), axis=axes)
    return mean, 1.0 / np.sqrt((total / count if count != 1 else total) + eps), total


def _update(running: Array | None, value: Array, momentum: float, way: str) -> Array | None:
    # `constant`, because torch updates running statistics outside the graph: no gradient flows into them from the
    # batch.
    if running is None:
        return None
    if way == OTHER:
        return running + momentum * (constant(value) - running)
    return (1.0 - momentum) * running + momentum * constant(value)


def _empty(like: Array) -> Array:
    # Without training torch's saved statistics have no elements. They still are arrays of the reading that is run.
    return np.ravel(like)[:0]


def _affine(y: Array, weight: Array | None, bias: Array | None) -> Array:
    return moments.scale_and_shift(y, *(None if t is None else _spread(t, y) for t in (weight, bias)))


@in_other_ways
def native_batch_norm(
    input: Array, weight: Array | None, bias: Array | None, running_mean: Array | None, running_var: Array | None,
    training: bool, momentum: float, eps: float, *, way: str = USUAL,
) -> tuple[Array, Array, Array, Array | None, Array | None]:  # fmt: skip
    """(out, μ, 1/√(σ² + ε)) and the new running statistics; the saved ones are empty without `training`.

    Args:
        input, weight, bias, running_mean, running_var, training, momentum, eps: as in `batch_norm`, in another order.
        way: how it is evaluated. OTHER: constant statistics and parameters become one factor and one term per channel,
            so do those of a channel of one element, and running statistics move as r + m (x − r).
    """
    count = _elements(input)
    if not training:
        return _with_running_statistics(input, weight, bias, running_mean, running_var, eps, way)
    # In a channel of one element x − μ is exactly zero, but not its folded form: there it is judged on the scale of
    # what cancels.
    folded = way == OTHER and count == 1
    if way == OTHER and not folded and running_mean is None and running_var is None:
        raise Inapplicable
    mean, invstd, total = _batch(input, eps, way)
    if folded:
        out = _folded_channels(input, weight, bias, mean, invstd)
    elif way == FOLDED:
        w, b = (None if t is None else _spread(t, input) for t in (weight, bias))
        out = moments.folded_by_one_scale(input, _spread(mean, input), _spread(invstd, input), w, b)
    else:
        out = _affine((input - _spread(mean, input)) * _spread(invstd, input), weight, bias)
    # A batch of no elements has no statistics, and its NaNs would stay in the running ones for good.
    if count == 0:
        return out, mean, invstd, running_mean, running_var
    # The unbiased variance, as torch: the batch is a sample, and the running variance estimates that of all inputs.
    variance = total / (count - 1)
    moved = (_update(running, new, momentum, way) for running, new in ((running_mean, mean), (running_var, variance)))
    return out, mean, invstd, *moved


def _with_running_statistics(
    input: Array, weight: Array | None, bias: Array | None, running_mean: Array | None, running_var: Array | None,
    eps: float, way: str,
) -> tuple[Array, Array, Array, Array | None, Array | None]:  # fmt: skip
    """`native_batch_norm` without training.

    Args:
        input, weight, bias, running_mean, running_var, eps, way: as there.
    """
    assert running_mean is not None
    assert running_var is not None
    if way in (FOLDED, SHIFTED):
        raise Inapplicable
    scale = 1.0 / np.sqrt(running_var + eps)
    if way == OTHER:
        out = _folded_channels(input, weight, bias, running_mean, scale)
    else:
        out = _affine((input - _spread(running_mean, input)) * _spread(scale, input), weight, bias)
    return out, _empty(input), _empty(input), running_mean, running_var


def _folded_channels(input: Array, weight: Array | None, bias: Array | None, mean: Array, scale: Array) -> Array:
    """x a + (b − μ a) with a = w/√(σ² + ε): one multiplication and one addition per element."""
    scale = scale if weight is None else scale * weight
    shift = -(mean * scale) if bias is None else bias - mean * scale
    return input * _spread(scale, input) + _spread(shift, input)


@in_other_ways
def batch_norm(
    input: Array, running_mean: Array | None, running_var: Array | None, weight: Array | None = None,
    bias: Array | None = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
    *, way: str = USUAL,
) -> tuple[Array, Array | None, Array | None]:  # fmt: skip
    """out = (x − μ) / √(σ² + ε) · w + b per channel, and the new running statistics.

    Args:
        input: (N, C, ...).
        running_mean, running_var: (C,); None where there are none, which needs `training`.
        weight, bias: (C,) or None.
        training: whether μ and σ² are those of the batch; else they are the running ones.
        momentum: the weight of this batch in the new running statistics.
        eps: ε. way: see `native_batch_norm`.
    """
    arguments = (input, weight, bias, running_mean, running_var, training, momentum, eps)
    out, _, _, *running = native_batch_norm(*arguments, way=way)
    return (out, *running)


@in_other_ways
def sync_batch_norm(
    input: Array, running_mean: Array | None, running_var: Array | None, weight: Array | None = None,
    bias: Array | None = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5, comm: Any = None,
    *, way: str = USUAL,
) -> tuple[Array, Array | None, Array | None]:  # fmt: skip
    """`batch_norm` of the whole batch, whichever rank holds which part of it.

    Args:
        input: (N, C, ...), the parts of all ranks one after the other; the other arguments as in `batch_norm`.
        comm: not used: who computes does not change what is true.
    """
    return batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps, way=way)


_OF_CUDNN = "input weight bias running_mean running_var training exponential_average_factor=momentum epsilon=eps"
native_batch_norm_legit = reordered("native_batch_norm_legit", native_batch_norm)
native_batch_norm_legit_no_stats = reordered(
    "native_batch_norm_legit_no_stats", native_batch_norm, "input weight bias training momentum eps",
    lambda results: results[:3], running_mean=None, running_var=None,
)  # fmt: skip
#: Its fourth output is bytes, of no value.
cudnn_batch_norm = reordered(
    "cudnn_batch_norm", native_batch_norm, _OF_CUDNN, lambda results: (*results[:3], None, *results[3:])
)
miopen_batch_norm = reordered("miopen_batch_norm", native_batch_norm, _OF_CUDNN)


@also(rstd_last=True)
def native_batch_norm_backward(
    grad_out: Array, input: Array, weight: Array | None, running_mean: Array | None, running_var: Array | None,
    save_mean: Array | None, save_invstd: Array | None, train: bool, eps: float, output_mask: Sequence[bool],
    *, rstd_last: bool = False,
) -> Grads:  # fmt: skip
    """(d_input, d_weight, d_bias) of `batch_norm` for the cotangent `grad_out`; masked ones are None.

    With `train`, the values of `save_mean` and `save_invstd` are those given; their derivatives are those of the
    statistics of `input`, with ε = 1/save_invstd² − σ² held constant.

    Args:
        grad_out, input: (N, C, ...).
        weight, running_mean, running_var, save_mean, save_invstd: (C,) or None; the saved ones are used with `train`,
            the running ones without.
        train: whether the output came from the statistics of the batch.
        eps: ε, used without `train`.
        output_mask: which of the three are asked for.
        rstd_last: whether sums of g (x − μ) are multiplied by 1/√(σ² + ε) at the end; of values alone.
    """
    axes, in_derivative = _axes(input), moments.is_derived(grad_out, input, weight)
    g = grad_out if weight is None else grad_out * _spread(weight, grad_out)
    # In training the statistics depend on every input, which subtracts the means of g and of g x̂; running statistics
    # are constants.
    if train:
        mean, rstd = _spread(save_mean, input), _spread(save_invstd, input)
        normalized, r = moments.saved_statistics(input, mean, rstd, axes, in_derivative)
        d_input = moments.input_gradient(g, normalized, r, axes)
    else:
        assert running_var is not None
        r = _spread(1.0 / np.sqrt(running_var + eps), input)
        normalized = (input - _spread(running_mean, input)) * r
        d_input = g * r
    d_weight = np.sum(grad_out * normalized, axis=axes)
    if rstd_last:
        if in_derivative:
            raise Inapplicable  # Its derivatives are those of the usual way.
        centred = input - _spread(save_mean if train else running_mean, input)
        d_weight = np.sum(grad_out * centred, axis=axes) * np.reshape(r, (-1,))
        if train:
            slope = _spread(np.sum(g * centred, axis=axes), input) * r * r / _elements(input)
            d_input = (g - np.mean(g, axis=axes, keepdims=True) - centred * slope) * r
    return moments.mask_gradients((d_input, d_weight, np.sum(grad_out, axis=axes)), output_mask)


#: What these call `save_var` is 1/√(σ² + ε), and `reserve` is bytes, of no value.
batch_norm_backward = reordered(
    "batch_norm_backward", native_batch_norm_backward,
    "grad_out input weight running_mean running_var save_mean save_var=save_invstd update=train eps output_mask"
    " reserve=",
)  # fmt: skip
_BACKWARD_OF_CUDNN = (
    "input grad_output=grad_out weight running_mean running_var save_mean save_var=save_invstd epsilon=eps"
)
_IN_TRAINING: dict[str, Any] = {"train": True, "output_mask": (True, True, True)}
cudnn_batch_norm_backward = reordered(
    "cudnn_batch_norm_backward", native_batch_norm_backward, f"{_BACKWARD_OF_CUDNN} reserveSpace=", **_IN_TRAINING
)
miopen_batch_norm_backward = reordered(
    "miopen_batch_norm_backward", native_batch_norm_backward, _BACKWARD_OF_CUDNN, **_IN_TRAINING
)
