"""Formulas of layer norm.

Ba, Kiros, Hinton: Layer Normalization, arXiv:1607.06450, equations 3 and 4. The statistics are population moments;
`eps` stands inside the root.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..algorithms import also
from . import moments
from .moments import FOLDED, OTHER, USUAL, Array, Grads, in_other_ways


def _row_axes(normalized_shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(range(-len(normalized_shape), 0))


@in_other_ways
def layer_norm(
    input: Array, normalized_shape: Sequence[int], weight: Array | None = None, bias: Array | None = None,
    eps: float = 1e-5, *, way: str = USUAL,
) -> Array:  # fmt: skip
    """out = (x − μ) / √(σ² + ε) · w + b over the trailing `normalized_shape` axes.

    Args:
        input: (..., *normalized_shape).
        normalized_shape: lengths of the normalised axes, at least one.
        weight, bias: of shape `normalized_shape`, or None.
        eps: ε. way: see `native_layer_norm`.
    """
    return native_layer_norm(input, normalized_shape, weight, bias, eps, way=way)[0]


@in_other_ways
def native_layer_norm(
    input: Array, normalized_shape: Sequence[int], weight: Array | None, bias: Array | None, eps: float,
    *, way: str = USUAL,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """(out, μ, 1/√(σ² + ε)); the statistics keep the normalised axes with length 1.

    Args:
        input, normalized_shape, weight, bias, eps: as in `layer_norm`.
        way: how it is evaluated.
    """
    axes = _row_axes(normalized_shape)
    centred, mean, rstd = moments.moments_of(input, axes, eps, way)
    out = moments.scale_and_shift(centred * rstd, weight, bias)
    # In a row of one element x − μ is exactly zero, but not its folded form: there it is judged on the scale of what
    # cancels. Of longer rows the folded form of values counts by its name alone.
    if way == OTHER and math.prod(normalized_shape) != 1:
        return moments.derived_on_lines(input, mean, rstd, axes, eps, out, (weight, bias)), mean, rstd
    if way == OTHER:
        return moments.on_line(input, mean, rstd if weight is None else rstd * weight, bias), mean, rstd
    if way == FOLDED:
        return moments.folded_by_one_scale(input, mean, rstd, weight, bias), mean, rstd
    return out, mean, rstd


@also(rstd_first=True)
@also(line=True)
def native_layer_norm_backward(
    grad_out: Array, input: Array, normalized_shape: Sequence[int], mean: Array, rstd: Array, weight: Array | None,
    bias: Array | None, output_mask: Sequence[bool], *, rstd_first: bool = False, line: bool = False,
) -> Grads:  # fmt: skip
    """(d_input, d_weight, d_bias) of `layer_norm` for the cotangent `grad_out`; masked ones are None.

    The values of `mean` and `rstd` are those given; their derivatives are those of the statistics of
    `input`, with ε = 1/rstd² − σ² held constant.

    Args:
        grad_out: as `input`.
        input, normalized_shape, weight, bias: as in `layer_norm`; the values of `bias` are not used.
        mean, rstd: as `native_layer_norm` returns them.
        output_mask: which of the three are asked for.
        rstd_first: see `input_gradient`.
        line: whether x̂ and d_input are evaluated as lines in x, of which values alone are for rows of several elements.
    """
    axes = _row_axes(normalized_shape)
    in_derivative = moments.is_derived(grad_out, input, weight)
    normalized, r = moments.saved_statistics(input, mean, rstd, axes, in_derivative)
    g = grad_out if weight is None else grad_out * weight
    if line and math.prod(normalized_shape) != 1:
        normalized = moments.on_line_by_one_scale(input, mean) * r
        d_input = moments.gradient_of_sums(g, input, mean, r, axes)
    elif line:
        mu = moments.given_statistic(mean, np.mean(input, axis=axes, keepdims=True), in_derivative)
        normalized, d_input = input * r - mu * r, moments.gradient_as_line(g, input, mu, r)
    else:
        d_input = moments.input_gradient(g, normalized, r, axes, rstd_first)
    rows = tuple(range(np.ndim(input) - len(normalized_shape)))
    d_weight = np.sum(grad_out * normalized, axis=rows)
    d_bias = np.sum(grad_out, axis=rows)
    return moments.mask_gradients((d_input, d_weight if weight is not None else None, d_bias), output_mask)
