"""Formulas of RMS norm: a layer norm without a mean.

Zhang, Sennrich: Root Mean Square Layer Normalization, arXiv:1910.07467, equation 4; `eps` stands inside the root.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..array import STORAGE, attach, constant, store
from .moments import is_derived, scale_and_shift

Array = Any


def _mean(x: Array, normalized_shape: Sequence[int]) -> Array:
    return np.mean(x, axis=tuple(range(-len(normalized_shape), 0)), keepdims=True)


def rms_norm(
    input: Array, normalized_shape: Sequence[int], weight: Array | None = None, eps: float | None = None
) -> Array:
    """out = x / √(mean(x²) + ε) · w over the trailing `normalized_shape` axes.

    Args:
        input: (..., *normalized_shape).
        normalized_shape: lengths of the normalised axes, at least one.
        weight: of shape `normalized_shape`, or None.
        eps: ε, a number: what None stands for is for the declaration to say.
    """
    return fused_rms_norm(input, normalized_shape, weight, eps)[0]


def fused_rms_norm(
    input: Array, normalized_shape: Sequence[int], weight: Array | None, eps: float | None
) -> tuple[Array, Array]:
    """(out, 1/√(mean(x²) + ε)); the latter keeps the normalised axes with length 1. Arguments as in `rms_norm`."""
    rstd = 1.0 / np.sqrt(_mean(np.square(input), normalized_shape) + eps)
    return scale_and_shift(input * rstd, weight, None), rstd


def fused_rms_norm_backward(
    grad_out: Array, input: Array, normalized_shape: Sequence[int], rstd: Array, weight: Array | None,
    output_mask: Sequence[bool],
) -> tuple[Array | None, Array | None]:  # fmt: skip
    """(d_input, d_weight) of `rms_norm` for the cotangent `grad_out`; masked ones are None.

    The values of `rstd` are those given; its derivatives are those of 1/√(mean(x²) + ε), with ε = 1/rstd² − mean(x²)
    held constant: see `moments.saved_statistics`.
    """
    square = _mean(np.square(input), normalized_shape)
    eps = constant(1.0 / np.square(rstd) - square)
    r = attach(rstd, 1.0 / np.sqrt(square + eps), always=not is_derived(grad_out, input, weight))
    normalized = input * r
    g = grad_out if weight is None else grad_out * weight
    d_input = r * (g - normalized * _mean(g * normalized, normalized_shape))
    d_weight = np.sum(grad_out * normalized, axis=tuple(range(np.ndim(input) - len(normalized_shape))))
    has_d_weight = output_mask[1] and weight is not None
    return d_input if output_mask[0] else None, d_weight if has_d_weight else None


def fused_add_rms_norm(
    input: Array, residual: Array, normalized_shape: Sequence[int], weight: Array | None = None,
    eps: float | None = None,
) -> tuple[Array, Array]:  # fmt: skip
    """(rms_norm(x + residual), x + residual): the sum is stored with its derivatives, and what is stored is normalised.

    Args:
        input, residual: of one shape. normalized_shape, weight, eps: as in `rms_norm`.
    """
    total = input + residual
    return rms_norm(store(total, STORAGE), normalized_shape, weight, eps), total
