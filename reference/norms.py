"""Formulas of layer norm and group norm.

Ba, Kiros, Hinton: Layer Normalization, arXiv:1607.06450, equations 3 and 4. The statistics are population
moments; `eps` stands inside the root. Group norm cites its own source.

What is hard here are the backward ops. They are given statistics that a forward op has saved, rounded, and are judged
by the value that follows from these very numbers. But their derivatives are taken as if the statistics were computed
from the input again, for so they are differentiated in a training step. `attach` says both: the saved value, and the
slope of the expression that it was the value of.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .array import algorithm_of, attach, constant

Array = Any
Grads = tuple[Array | None, Array | None, Array | None]


def _row_axes(normalized_shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(range(-len(normalized_shape), 0))


def layer_norm(
    input: Array,
    normalized_shape: Sequence[int],
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
) -> Array:
    """out = (x − μ) / √(σ² + ε) · w + b over the trailing `normalized_shape` axes.

    Args:
        input: (..., *normalized_shape).
        normalized_shape: lengths of the normalised axes, at least one.
        weight, bias: of shape `normalized_shape`, or None.
        eps: ε.
    """
    return native_layer_norm(input, normalized_shape, weight, bias, eps)[0]


def native_layer_norm(
    input: Array,
    normalized_shape: Sequence[int],
    weight: Array | None,
    bias: Array | None,
    eps: float,
) -> tuple[Array, Array, Array]:
    """(out, μ, 1/√(σ² + ε)); the statistics keep the normalised axes with length 1.

    Args:
        input, normalized_shape, weight, bias, eps: as in `layer_norm`.
    """
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
) -> Grads:
    """(d_input, d_weight, d_bias) of `layer_norm` for the cotangent `grad_out`; masked ones are None.

    The values of `mean` and `rstd` are those given; their derivatives are those of the statistics of
    `input`, with ε = 1/rstd² − σ² held constant.

    Args:
        grad_out: as `input`.
        input, normalized_shape, weight, bias: as in `layer_norm`; the values of `bias` are not used.
        mean, rstd: as `native_layer_norm` returns them.
        output_mask: which of the three are wanted.
    """
    return _layer_norm_gradients(
        grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask, rstd_first=False
    )


@algorithm_of(native_layer_norm_backward)
def _rstd_first(*args: Any) -> Grads:
    return _layer_norm_gradients(*args, rstd_first=True)


def _layer_norm_gradients(
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
) -> Grads:
    axes = _row_axes(normalized_shape)
    mu = np.mean(input, axis=axes, keepdims=True)
    variance = np.mean(np.square(input - mu), axis=axes, keepdims=True)
    # The op is not told ε, but what was saved implies it. Held constant, it makes the slope of r that of 1/√(σ² + ε) at
    # the very r that is given.
    eps = constant(1.0 / np.square(rstd) - variance)
    r = attach(rstd, 1.0 / np.sqrt(variance + eps))
    normalized = (input - attach(mean, mu)) * r
    # With g = ḡ w and x̂ the normalised input: d_x = r (g − mean(g) − x̂ mean(g x̂)). The factor r may be multiplied in
    # first or last. The rounding errors differ, so both are declared as algorithms of the formula.
    g = grad_out if weight is None else grad_out * weight
    g = g * r if rstd_first else g
    slope = np.mean(g * normalized, axis=axes, keepdims=True)
    projected = g - np.mean(g, axis=axes, keepdims=True) - normalized * slope
    d_input = projected if rstd_first else r * projected
    rows = tuple(range(np.ndim(input) - len(normalized_shape)))
    d_weight = np.sum(grad_out * normalized, axis=rows)
    d_bias = np.sum(grad_out, axis=rows)
    return _wanted((d_input, d_weight if weight is not None else None, d_bias), output_mask)


def _wanted(grads: Sequence[Array | None], output_mask: Sequence[bool]) -> Grads:
    """The three gradients with None for those that are not asked for."""
    d_input, d_weight, d_bias = (g if wanted else None for g, wanted in zip(grads, output_mask, strict=True))
    return d_input, d_weight, d_bias


# ---------------------------------------------------------------------------------------------- group norm


def group_norm(
    input: Array,
    num_groups: int,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
) -> Array:
    """out = (x − μ) / √(σ² + ε) · w + b; μ, σ² over the channels of a group and all positions, w, b per channel.

    Wu, He: Group Normalization, arXiv:1803.08494, equations 1, 2, 6 and 7.

    Args:
        input: (N, C, ...).
        num_groups: into how many groups of consecutive channels C is divided; a divisor of C.
        weight, bias: (C,) or None.
        eps: ε.
    """
    return native_group_norm(input, weight, bias, *_lengths(input), num_groups, eps)[0]


@algorithm_of(group_norm)
def _group_norm_folded(
    input: Array, num_groups: int, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5
) -> Array:
    return _native_group_norm_folded(input, weight, bias, *_lengths(input), num_groups, eps)[0]


def _lengths(x: Array) -> tuple[int, int, int]:
    """(N, C, HxW) of x of shape (N, C, *)."""
    n, channels, *positions = np.shape(x)
    return n, channels, math.prod(positions)


def native_group_norm(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> tuple[Array, Array, Array]:
    """(out, μ, 1/√(σ² + ε)) of `input` read as (N, C, HxW); the statistics are (N, group).

    Args:
        input: N·C·HxW elements, in the order of (N, C, HxW).
        weight, bias: (C,) or None.
        N, C, HxW: the lengths, as torch names them.
        group: the number of groups. eps: ε.
    """
    return _group_norm(input, weight, bias, N, C, HxW, group, eps, folded=False)


@algorithm_of(native_group_norm)
def _native_group_norm_folded(*args: Any) -> tuple[Array, Array, Array]:
    return _group_norm(*args, folded=True)


def _group_norm(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
    *,
    folded: bool,
) -> tuple[Array, Array, Array]:
    """`folded`: x scale + shift with scale = w/√(σ² + ε) and shift = b − μ scale, one each per sample and channel."""
    x = np.reshape(input, (N, group, C // group, HxW))
    w, b = (None if t is None else np.reshape(t, (1, group, C // group, 1)) for t in (weight, bias))
    mean = np.mean(x, axis=(2, 3), keepdims=True)
    centred = x - mean
    rstd = 1.0 / np.sqrt(np.mean(np.square(centred), axis=(2, 3), keepdims=True) + eps)
    # The folded form needs one multiplication and one addition per element. It is another algorithm and not only
    # another order: where b and μ scale nearly cancel in the shift, its error is larger.
    if folded:
        scale = rstd if w is None else rstd * w
        shift = -mean * scale if b is None else b - mean * scale
        out = x * scale + shift
    else:
        out = centred * rstd if w is None else centred * rstd * w
        out = out if b is None else out + b
    return np.reshape(out, np.shape(input)), np.reshape(mean, (N, group)), np.reshape(rstd, (N, group))


def native_group_norm_backward(
    grad_out: Array,
    input: Array,
    mean: Array,
    rstd: Array,
    weight: Array | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Sequence[bool],
) -> Grads:
    """(d_input, d_weight, d_bias) of `group_norm` for the cotangent `grad_out`; masked ones are None.

    The values of `mean` and `rstd` are those given; their derivatives are those of the statistics of
    `input`, with ε = 1/rstd² − σ² held constant.

    Args:
        grad_out: as `input`.
        input, weight, N, C, HxW, group: as in `native_group_norm`.
        mean, rstd: (N, group), as `native_group_norm` returns them.
        output_mask: which of the three are wanted.
    """
    args = (grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask)
    return _group_norm_gradients(*args, rstd_first=False)


@algorithm_of(native_group_norm_backward)
def _group_rstd_first(*args: Any) -> Grads:
    return _group_norm_gradients(*args, rstd_first=True)


def _group_norm_gradients(
    grad_out: Array,
    input: Array,
    mean: Array,
    rstd: Array,
    weight: Array | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Sequence[bool],
    *,
    rstd_first: bool,
) -> Grads:
    x, dy = (np.reshape(t, (N, group, C // group, HxW)) for t in (input, grad_out))
    mean, rstd = (np.reshape(t, (N, group, 1, 1)) for t in (mean, rstd))
    mu = np.mean(x, axis=(2, 3), keepdims=True)
    variance = np.mean(np.square(x - mu), axis=(2, 3), keepdims=True)
    # As in layer norm's backward: the ε that the saved statistics imply, held constant, and both places for the factor
    # r.
    eps = constant(1.0 / np.square(rstd) - variance)
    r = attach(rstd, 1.0 / np.sqrt(variance + eps))
    normalized = (x - attach(mean, mu)) * r
    g = dy if weight is None else dy * np.reshape(weight, (1, group, C // group, 1))
    g = g * r if rstd_first else g
    slope = np.mean(g * normalized, axis=(2, 3), keepdims=True)
    projected = g - np.mean(g, axis=(2, 3), keepdims=True) - normalized * slope
    d_input = np.reshape(projected if rstd_first else r * projected, np.shape(input))
    d_weight = np.reshape(np.sum(dy * normalized, axis=(0, 3)), (C,))
    d_bias = np.reshape(np.sum(dy, axis=(0, 3)), (C,))
    return _wanted((d_input, d_weight if weight is not None else None, d_bias), output_mask)
