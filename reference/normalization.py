"""Formulas of the normalisation ops.

Ba, Kiros, Hinton: Layer Normalization, arXiv:1607.06450, equations 3 and 4. The statistics are population
moments; `eps` stands inside the root.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .array import algorithm_of, attach, constant

Array = Any


def _row_axes(normalized_shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(range(-len(normalized_shape), 0))


def layer_norm(
    input: Array,
    normalized_shape: Sequence[int],
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
) -> Array:
    """out = (x − μ) / √(σ² + ε) · w + b over the trailing `normalized_shape` axes."""
    return native_layer_norm(input, normalized_shape, weight, bias, eps)[0]


def native_layer_norm(
    input: Array,
    normalized_shape: Sequence[int],
    weight: Array | None,
    bias: Array | None,
    eps: float,
) -> tuple[Array, Array, Array]:
    """(out, μ, 1/√(σ² + ε)); the statistics keep the normalised axes with length 1."""
    axes = _row_axes(normalized_shape)
    mean = np.mean(input, axis=axes, keepdims=True)
    centred = input - mean
    rstd = 1.0 / np.sqrt(np.mean(np.square(centred), axis=axes, keepdims=True) + eps)
    out = centred * rstd
    if weight is not None:
        out = out * weight
    if bias is not None:
        out = out + bias
    return out, mean, rstd


def native_layer_norm_backward(
    grad_out: Array,
    input: Array,
    normalized_shape: Sequence[int],
    mean: Array,
    rstd: Array,
    weight: Array | None,
    bias: Array | None,
    output_mask: Sequence[bool],
) -> tuple[Array | None, Array | None, Array | None]:
    """(d_input, d_weight, d_bias) of `layer_norm` for the cotangent `grad_out`; masked ones are None.

    The values of `mean` and `rstd` are those given; their derivatives are those of the statistics of
    `input`, with ε = 1/rstd² − σ² held constant.
    """
    return _backward(grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask, rstd_first=False)


@algorithm_of(native_layer_norm_backward)
def _rstd_first(*args: Any) -> tuple[Array | None, Array | None, Array | None]:
    return _backward(*args, rstd_first=True)


def _backward(
    grad_out: Array,
    input: Array,
    normalized_shape: Sequence[int],
    mean: Array,
    rstd: Array,
    weight: Array | None,
    bias: Array | None,
    output_mask: Sequence[bool],
    *,
    rstd_first: bool,
) -> tuple[Array | None, Array | None, Array | None]:
    axes = _row_axes(normalized_shape)
    mu = np.mean(input, axis=axes, keepdims=True)
    variance = np.mean(np.square(input - mu), axis=axes, keepdims=True)
    eps = constant(1.0 / np.square(rstd) - variance)
    r = attach(rstd, 1.0 / np.sqrt(variance + eps))
    normalized = (input - attach(mean, mu)) * r
    g = grad_out if weight is None else grad_out * weight
    g = g * r if rstd_first else g
    slope = np.mean(g * normalized, axis=axes, keepdims=True)
    projected = g - np.mean(g, axis=axes, keepdims=True) - normalized * slope
    d_input = projected if rstd_first else r * projected
    rows = tuple(range(np.ndim(input) - len(normalized_shape)))
    d_weight = np.sum(grad_out * normalized, axis=rows)
    d_bias = np.sum(grad_out, axis=rows)
    grads = (d_input, d_weight if weight is not None else None, d_bias)
    return tuple(g if wanted else None for g, wanted in zip(grads, output_mask, strict=True))  # type: ignore[return-value]
