"""Formulas of batch normalisation.

Ioffe, Szegedy: Batch Normalization, arXiv:1502.03167, algorithms 1 and 2. The statistics of the batch are population
moments over all axes but the second; running statistics take the unbiased variance and carry no derivative. What an op
updates in place its formula returns after its other outputs.

What is hard here: torch has eleven signatures of one function, each with its own names and order of arguments and its
own outputs that have no value. The mathematics is stated once, in `_normalized` and `_gradients`; what is public only
reorders. As in `norms.py`, backward ops are given saved statistics: `attach` gives those values the derivatives of the
expressions that they were the values of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .array import algorithm_of, attach, constant

Array = Any
Grads = tuple[Array | None, Array | None, Array | None]


def _axes(x: Array) -> tuple[int, ...]:
    return (0, *range(2, np.ndim(x)))


def _spread(t: Array, x: Array) -> Array:
    """t (C,), shaped to broadcast against x (N, C, ...)."""
    return np.reshape(t, (np.shape(t)[0], *(1,) * (np.ndim(x) - 2)))


def _elements(x: Array) -> int:
    shape = np.shape(x)
    return int(np.prod([shape[i] for i in _axes(x)], dtype=np.int64))


def _batch(input: Array, eps: float) -> tuple[Array, Array, Array]:
    """(μ, 1/√(σ² + ε), Σ(x − μ)²) per channel."""
    axes, count = _axes(input), _elements(input)
    mean = np.sum(input, axis=axes) / count if count != 1 else np.sum(input, axis=axes)
    total = np.sum(np.square(input - _spread(mean, input)), axis=axes)
    return mean, 1.0 / np.sqrt((total / count if count != 1 else total) + eps), total


def _weighted(y: Array, weight: Array | None, bias: Array | None) -> Array:
    if weight is not None:
        y = y * _spread(weight, y)
    return y if bias is None else y + _spread(bias, y)


def _updated(running: Array | None, value: Array, momentum: float) -> Array | None:
    # `constant`, because torch updates running statistics outside the graph: no gradient flows into them from the
    # batch.
    return None if running is None else (1.0 - momentum) * running + momentum * constant(value)


def _empty(like: Array) -> Array:
    # Without training torch's saved statistics have no elements. They still are arrays of the reading that is run.
    return np.ravel(like)[:0]


def _normalized(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    training: bool,
    momentum: float,
    eps: float,
    *,
    folded: bool = False,
) -> tuple[Array, Array, Array, Array | None, Array | None]:
    """(out, save_mean, save_invstd, new running_mean, new running_var)."""
    if not training:
        assert running_mean is not None
        assert running_var is not None
        scale = 1.0 / np.sqrt(running_var + eps)
        out = _eval_folded(input, weight, bias, running_mean, scale) if folded else None
        if out is None:
            out = _weighted((input - _spread(running_mean, input)) * _spread(scale, input), weight, bias)
        return out, _empty(input), _empty(input), running_mean, running_var
    mean, invstd, total = _batch(input, eps)
    out = _weighted((input - _spread(mean, input)) * _spread(invstd, input), weight, bias)
    count = _elements(input)
    # A batch of no elements has no statistics, and its NaNs would stay in the running ones for good.
    if count == 0:
        return out, mean, invstd, running_mean, running_var
    # The unbiased variance, as torch: the batch is a sample, and the running variance estimates that of all inputs.
    variance = total / (count - 1)
    return out, mean, invstd, _updated(running_mean, mean, momentum), _updated(running_var, variance, momentum)


def _eval_folded(input: Array, weight: Array | None, bias: Array | None, mean: Array, scale: Array) -> Array:
    """x a + (b − μ a) with a = w/√(σ² + ε): one multiplication and one addition per element."""
    scale = scale if weight is None else scale * weight
    shift = -(mean * scale) if bias is None else bias - mean * scale
    return input * _spread(scale, input) + _spread(shift, input)


def batch_norm(
    input: Array,
    running_mean: Array | None,
    running_var: Array | None,
    weight: Array | None = None,
    bias: Array | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> tuple[Array, Array | None, Array | None]:
    """out = (x − μ) / √(σ² + ε) · w + b per channel, and the new running statistics.

    Args:
        input: (N, C, ...).
        running_mean, running_var: (C,); None where there are none, which needs `training`.
        weight, bias: (C,) or None.
        training: whether μ and σ² are those of the batch; else they are the running ones.
        momentum: the weight of this batch in the new running statistics.
        eps: ε.
    """
    return _without_saved(_normalized(input, weight, bias, running_mean, running_var, training, momentum, eps))


@algorithm_of(batch_norm)
def _batch_norm_folded(
    input: Array,
    running_mean: Array | None,
    running_var: Array | None,
    weight: Array | None = None,
    bias: Array | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> tuple[Array, Array | None, Array | None]:
    return _without_saved(
        _normalized(input, weight, bias, running_mean, running_var, training, momentum, eps, folded=True)
    )


def sync_batch_norm(
    input: Array,
    running_mean: Array | None,
    running_var: Array | None,
    weight: Array | None = None,
    bias: Array | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    comm: Any = None,
) -> tuple[Array, Array | None, Array | None]:
    """`batch_norm` of the whole batch, whichever rank holds which part of it.

    Args:
        input: (N, C, ...), the parts of all ranks one after the other; the other arguments as in `batch_norm`.
        comm: not used: who computes does not change what is true.
    """
    return batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


@algorithm_of(sync_batch_norm)
def _sync_batch_norm_folded(*args: Any) -> Any:
    return _batch_norm_folded(*args[:8])


def _without_saved(outputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return outputs[0], *outputs[3:]


def native_batch_norm(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Array, Array, Array, Array | None, Array | None]:
    """(out, μ, 1/√(σ² + ε)) and the new running statistics; the saved ones are empty without `training`.

    Args:
        input, weight, bias, running_mean, running_var, training, momentum, eps: as in `batch_norm`, in another order.
    """
    return _normalized(input, weight, bias, running_mean, running_var, training, momentum, eps)


def native_batch_norm_legit(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array,
    running_var: Array,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Array, Array, Array, Array | None, Array | None]:
    """As `native_batch_norm`.

    Args:
        input, weight, bias, running_mean, running_var, training, momentum, eps: as in `native_batch_norm`.
    """
    return _normalized(input, weight, bias, running_mean, running_var, training, momentum, eps)


def native_batch_norm_legit_no_stats(
    input: Array, weight: Array | None, bias: Array | None, training: bool, momentum: float, eps: float
) -> tuple[Array, Array, Array]:
    """As `native_batch_norm`, without running statistics.

    Args:
        input, weight, bias, training, momentum, eps: as in `native_batch_norm`.
    """
    return _normalized(input, weight, bias, None, None, training, momentum, eps)[:3]


def cudnn_batch_norm(
    input: Array,
    weight: Array,
    bias: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    training: bool,
    exponential_average_factor: float,
    epsilon: float,
) -> tuple[Array | None, ...]:
    """As `native_batch_norm`; the fourth output is bytes, of no value.

    Args:
        input, ..., training: as in `native_batch_norm`. exponential_average_factor, epsilon: its momentum and eps.
    """
    given = (running_mean, running_var, training, exponential_average_factor, epsilon)
    out, mean, invstd, new_mean, new_var = _normalized(input, weight, bias, *given)
    return out, mean, invstd, None, new_mean, new_var


def miopen_batch_norm(
    input: Array,
    weight: Array,
    bias: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    training: bool,
    exponential_average_factor: float,
    epsilon: float,
) -> tuple[Array, Array, Array, Array | None, Array | None]:
    """As `native_batch_norm`.

    Args:
        input, ..., training: as in `native_batch_norm`. exponential_average_factor, epsilon: its momentum and eps.
    """
    return _normalized(input, weight, bias, running_mean, running_var, training, exponential_average_factor, epsilon)


def _folded(formula: Callable[..., Any]) -> None:
    """Declares the folded form of constant statistics for a formula with aten's arguments."""

    @algorithm_of(formula)
    def other(*args: Any) -> tuple[Any, ...]:
        x, weight, bias, mean, var, training, momentum, eps = args
        outputs = _normalized(x, weight, bias, mean, var, training, momentum, eps, folded=True)
        return (*outputs[:3], None, *outputs[3:]) if formula is cudnn_batch_norm else outputs


for _formula in (native_batch_norm, native_batch_norm_legit, cudnn_batch_norm, miopen_batch_norm):
    _folded(_formula)


def native_batch_norm_backward(
    grad_out: Array,
    input: Array,
    weight: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    save_mean: Array | None,
    save_invstd: Array | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> Grads:
    """(d_input, d_weight, d_bias) of `batch_norm` for the cotangent `grad_out`; masked ones are None.

    With `train`, the values of `save_mean` and `save_invstd` are those given; their derivatives are those of the
    statistics of `input`, with ε = 1/save_invstd² − σ² held constant.

    Args:
        grad_out, input: (N, C, ...).
        weight, running_mean, running_var, save_mean, save_invstd: (C,) or None; the saved ones are used with `train`,
            the running ones without.
        train: whether the output came from the statistics of the batch.
        eps: ε, used without `train`.
        output_mask: which of the three are wanted.
    """
    return _gradients(
        grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask
    )


def batch_norm_backward(
    grad_out: Array,
    input: Array,
    weight: Array,
    running_mean: Array | None,
    running_var: Array | None,
    save_mean: Array | None,
    save_var: Array | None,
    update: bool,
    eps: float,
    output_mask: Sequence[bool],
    reserve: Any,
) -> Grads:
    """As `native_batch_norm_backward`; `save_var` is 1/√(σ² + ε).

    Args:
        grad_out, ..., output_mask: in the order of `native_batch_norm_backward`. reserve: bytes, of no value.
    """
    return _gradients(grad_out, input, weight, running_mean, running_var, save_mean, save_var, update, eps, output_mask)


def cudnn_batch_norm_backward(
    input: Array,
    grad_output: Array,
    weight: Array,
    running_mean: Array | None,
    running_var: Array | None,
    save_mean: Array | None,
    save_var: Array | None,
    epsilon: float,
    reserveSpace: Any,
) -> Grads:
    """As `native_batch_norm_backward` in training; `save_var` is 1/√(σ² + ε).

    Args:
        input, grad_output, weight, running_mean, running_var, save_mean, save_var, epsilon: as there, in another order.
        reserveSpace: bytes, of no value.
    """
    saved = (running_mean, running_var, save_mean, save_var)
    return _gradients(grad_output, input, weight, *saved, True, epsilon, (True, True, True))


def miopen_batch_norm_backward(
    input: Array,
    grad_output: Array,
    weight: Array,
    running_mean: Array | None,
    running_var: Array | None,
    save_mean: Array | None,
    save_var: Array | None,
    epsilon: float,
) -> Grads:
    """As `native_batch_norm_backward` in training; `save_var` is 1/√(σ² + ε).

    Args:
        input, grad_output, weight, running_mean, running_var, save_mean, save_var, epsilon: as there, in another order.
    """
    saved = (running_mean, running_var, save_mean, save_var)
    return _gradients(grad_output, input, weight, *saved, True, epsilon, (True, True, True))


def _gradients(
    grad_out: Array,
    input: Array,
    weight: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    save_mean: Array | None,
    save_invstd: Array | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> Grads:
    axes, count = _axes(input), _elements(input)
    if train:
        assert save_invstd is not None
        mu, _, total = _batch(input, 0.0)
        # The saved value counts, even where it is not that of the given ε; the ε that it implies is held constant.
        variance = total / count if count != 1 else total
        implied = constant(1.0 / np.square(save_invstd) - variance)
        r = _spread(attach(save_invstd, 1.0 / np.sqrt(variance + implied)), input)
        centred = input - _spread(attach(save_mean, mu), input)
    else:
        assert running_var is not None
        r = _spread(1.0 / np.sqrt(running_var + eps), input)
        centred = input - _spread(running_mean, input)
    normalized = centred * r
    g = grad_out if weight is None else grad_out * _spread(weight, grad_out)
    # In training the statistics depend on every input, which subtracts the means of g and of g x̂; running statistics
    # are constants.
    if train:
        slope = np.mean(g * normalized, axis=axes, keepdims=True)
        d_input = r * (g - np.mean(g, axis=axes, keepdims=True) - normalized * slope)
    else:
        d_input = g * r
    grads = (d_input, np.sum(grad_out * normalized, axis=axes), np.sum(grad_out, axis=axes))
    d_input, d_weight, d_bias = (g if wanted else None for g, wanted in zip(grads, output_mask, strict=True))
    return d_input, d_weight, d_bias
