"""Formulas of softmax, log-softmax and their backward ops.

J. S. Bridle, Probabilistic interpretation of feedforward classification network outputs, Neurocomputing, Springer
1990: p = exp(x) / Σ exp(x) along one axis. The largest x is subtracted first, which changes nothing in exact arithmetic
and keeps exp from overflowing: P. Blanchard, D. J. Higham, N. J. Higham, Accurately computing the log-sum-exp and
softmax functions, IMA J. Numer. Anal. 41, 2021.

Derivatives are evaluated from the output that was saved, rounded to its format. So each forward formula gives its
value, with the slope of the same function written in terms of the saved output and of a shift: x minus its own value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .array import attach, constant, order_of, store

Array = Any


def _shift(x: Array) -> Array:
    """x minus its own value: exactly zero, with the derivatives of x, at an infinite x as well."""
    return attach(np.zeros(np.shape(x)), x, always=True)


def _as_stored(output: Array, dtype: Any) -> Array:
    """The output as backward reads it; where `dtype` asks for more than a half format, it is in that."""
    return output if dtype is not None and dtype.itemsize > 2 else store(output)


def _sum_along(x: Array, axis: int) -> Array:
    return np.sum(x, axis=axis, keepdims=True)


def _one(total: Array) -> Array:
    """A sum that is 1: of probabilities that were normalised before. It is 1 exactly, with the derivatives of the sum.

    A sum of saved probabilities is not taken again where first derivatives are evaluated, so their errors are none of
    it. What was divided by in the first place has its errors in the probabilities themselves. Second derivatives may be
    those of an expression that normalises again.
    """
    return attach(np.ones(np.shape(total)), total, always=order_of(total) <= 1)


def _with_zero(row: Array, axis: int) -> Array:
    """A row of one element with a zero behind it, so that Σ p g has not the error of g itself, from which it is taken.

    Kernels of attention compute Σ p g as the product of an output with its cotangent (T. Dao et al., FlashAttention,
    NeurIPS 2022, appendix B.2), and g from another product. In rows of one element their difference is no 0.
    """
    return np.concatenate([row, np.zeros(np.shape(row))], axis) if np.shape(row)[axis] == 1 else row


def _is_row(x: Array) -> bool:
    return np.ndim(x) == 0


def softmax(input: Array, dim: int, dtype: Any = None) -> Array:
    """p = exp(x) / Σ exp(x) along `dim`."""
    if np.size(input) == 0:
        return input
    if _is_row(input):
        return np.reshape(softmax(np.reshape(input, (1,)), 0, dtype), ())
    # The value is computed without derivatives. The slope comes from the expression in `moved`, which has the same
    # value.
    x = constant(input)
    weights = np.exp(x - np.max(x, axis=dim, keepdims=True))
    p = weights / _sum_along(weights, dim)
    if x is input:  # nobody asks for derivatives
        return p
    # exp(shift) is 1 with the derivatives of exp(x): the saved p, moved as x moves, and normalised again.
    moved = _as_stored(p, dtype) * np.exp(_shift(input))
    return attach(p, moved / _one(_sum_along(_with_zero(moved, dim), dim)), always=True)


def log_softmax(input: Array, dim: int, dtype: Any = None) -> Array:
    """log p = x − log Σ exp(x) along `dim`."""
    return log_softmax_by(_of_shifted, input, dim, dtype)


def log_softmax_by(text: Callable[[Array, int], Array], input: Array, dim: int, dtype: Any = None) -> Array:
    """`log_softmax` whose value is computed by a text.

    Args:
        text: of x and the axis, with log p as its value. input, dim, dtype: as there.
    """
    if np.size(input) == 0:
        return input
    if _is_row(input):
        return np.reshape(log_softmax_by(text, np.reshape(input, (1,)), 0, dtype), ())
    x = constant(input)
    z = text(x, dim)
    if x is input:
        return z
    # The same for logarithms: the saved z, moved as x moves, and normalised again. Its sum of exponentials is about 1,
    # so nothing overflows although no maximum is subtracted.
    moved = _as_stored(z, dtype) + _shift(input)
    return attach(z, moved - np.log(_one(_sum_along(np.exp(moved), dim))), always=True)


def _of_shifted(x: Array, dim: int) -> Array:
    centred = x - np.max(x, axis=dim, keepdims=True)
    return centred - np.log(_sum_along(np.exp(centred), dim))


def of_stored_sum(x: Array, dim: int) -> Array:
    """log p with its sum and the logarithm of it stored, as torch computes half types along the last axis."""
    centred = x - np.max(x, axis=dim, keepdims=True)
    total = store(_sum_along(np.exp(centred), dim), always=False)
    return centred - store(np.log(total), always=False)


def less_log_sum(x: Array, dim: int) -> Array:
    """x − (max + log Σ exp(x − max)), whose second term kernels save; where x is large, this rounds more."""
    largest = np.max(x, axis=dim, keepdims=True)
    return x - (largest + np.log(_sum_along(np.exp(x - largest), dim)))


def softmax_backward_data(grad_output: Array, output: Array, dim: int, input_dtype: Any) -> Array:
    """The cotangent of x for the cotangent g of p: p (g − Σ p g)."""
    if _is_row(output):
        grads = softmax_backward_data(np.reshape(grad_output, (1,)), np.reshape(output, (1,)), 0, input_dtype)
        return np.reshape(grads, ())
    return output * (grad_output - _sum_along(output * grad_output, dim))


def log_softmax_backward_data(grad_output: Array, output: Array, dim: int, input_dtype: Any) -> Array:
    """The cotangent of x for the cotangent g of log p: g − p Σ g."""
    if _is_row(output):
        return grad_output - np.exp(output) * grad_output
    return grad_output - np.exp(output) * _sum_along(grad_output, dim)
