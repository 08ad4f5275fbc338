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

from .algorithms import also
from .array import attach, constant

Array = Any
Grads = tuple[Array | None, Array | None, Array | None]


def _moments(x: Array, axes: tuple[int, ...], eps: float) -> tuple[Array, Array, Array]:
    """(x − μ, μ, 1/√(σ² + ε)); the statistics have length 1 along the axes that share them."""
    mean = np.mean(x, axis=axes, keepdims=True)
    centred = x - mean
    return centred, mean, 1.0 / np.sqrt(np.mean(np.square(centred), axis=axes, keepdims=True) + eps)


def _weighted(y: Array, weight: Array | None, bias: Array | None) -> Array:
    """y · w + b, as far as there are a weight and a bias; both broadcast against y."""
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _wanted(grads: Sequence[Array | None], output_mask: Sequence[bool]) -> Grads:
    """The three gradients with None for those that are not asked for."""
    d_input, d_weight, d_bias = (g if asked else None for g, asked in zip(grads, output_mask, strict=True))
    return d_input, d_weight, d_bias


def _saved_statistics(x: Array, mean: Array, rstd: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """(x̂, 1/√(σ² + ε)) of saved statistics: their values, with the derivatives of the statistics of x along the axes.

    Args:
        x: the input. mean, rstd: its saved statistics, of length 1 along the axes. axes: those that share statistics.
    """
    mu = np.mean(x, axis=axes, keepdims=True)
    variance = np.mean(np.square(x - mu), axis=axes, keepdims=True)
    # The op is not told ε, but what was saved implies it. Held constant, it makes the slope of r that of 1/√(σ² + ε) at
    # the very r that is given.
    eps = constant(1.0 / np.square(rstd) - variance)
    r = attach(rstd, 1.0 / np.sqrt(variance + eps))
    return (x - attach(mean, mu)) * r, r


def _input_gradient(g: Array, normalized: Array, r: Array, axes: tuple[int, ...], rstd_first: bool = False) -> Array:
    """d_x = r (g − mean(g) − x̂ mean(g x̂)), for g = ḡ w and the normalised input x̂.

    The factor r may be multiplied in first or last. The rounding errors differ, so where an implementation may do
    either, both are declared as algorithms of the formula.

    Args:
        g, normalized, r: see above. axes: those that share statistics. rstd_first: whether r is multiplied in first.
    """
    g = g * r if rstd_first else g
    slope = np.mean(g * normalized, axis=axes, keepdims=True)
    projected = g - np.mean(g, axis=axes, keepdims=True) - normalized * slope
    return projected if rstd_first else r * projected


# ---------------------------------------------------------------------------------------------- layer norm


def _row_axes(normalized_shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(range(-len(normalized_shape), 0))


def layer_norm(
    input: Array, normalized_shape: Sequence[int], weight: Array | None = None, bias: Array | None = None,
    eps: float = 1e-5,
) -> Array:  # fmt: skip
    """out = (x − μ) / √(σ² + ε) · w + b over the trailing `normalized_shape` axes.

    Args:
        input: (..., *normalized_shape).
        normalized_shape: lengths of the normalised axes, at least one.
        weight, bias: of shape `normalized_shape`, or None.
        eps: ε.
    """
    return native_layer_norm(input, normalized_shape, weight, bias, eps)[0]


def native_layer_norm(
    input: Array, normalized_shape: Sequence[int], weight: Array | None, bias: Array | None, eps: float
) -> tuple[Array, Array, Array]:
    """(out, μ, 1/√(σ² + ε)); the statistics keep the normalised axes with length 1.

    Args:
        input, normalized_shape, weight, bias, eps: as in `layer_norm`.
    """
    centred, mean, rstd = _moments(input, _row_axes(normalized_shape), eps)
    return _weighted(centred * rstd, weight, bias), mean, rstd


@also(rstd_first=True)
def native_layer_norm_backward(
    grad_out: Array, input: Array, normalized_shape: Sequence[int], mean: Array, rstd: Array, weight: Array | None,
    bias: Array | None, output_mask: Sequence[bool], *, rstd_first: bool = False,
) -> Grads:  # fmt: skip
    """(d_input, d_weight, d_bias) of `layer_norm` for the cotangent `grad_out`; masked ones are None.

    The values of `mean` and `rstd` are those given; their derivatives are those of the statistics of
    `input`, with ε = 1/rstd² − σ² held constant.

    Args:
        grad_out: as `input`.
        input, normalized_shape, weight, bias: as in `layer_norm`; the values of `bias` are not used.
        mean, rstd: as `native_layer_norm` returns them.
        output_mask: which of the three are wanted.
        rstd_first: see `_input_gradient`.
    """
    axes = _row_axes(normalized_shape)
    normalized, r = _saved_statistics(input, mean, rstd, axes)
    g = grad_out if weight is None else grad_out * weight
    d_input = _input_gradient(g, normalized, r, axes, rstd_first)
    rows = tuple(range(np.ndim(input) - len(normalized_shape)))
    d_weight = np.sum(grad_out * normalized, axis=rows)
    d_bias = np.sum(grad_out, axis=rows)
    return _wanted((d_input, d_weight if weight is not None else None, d_bias), output_mask)


# ---------------------------------------------------------------------------------------------- group norm


@also(folded=True)
def group_norm(
    input: Array, num_groups: int, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5,
    *, folded: bool = False,
) -> Array:  # fmt: skip
    """out = (x − μ) / √(σ² + ε) · w + b; μ, σ² over the channels of a group and all positions, w, b per channel.

    Wu, He: Group Normalization, arXiv:1803.08494, equations 1, 2, 6 and 7.

    Args:
        input: (N, C, ...).
        num_groups: into how many groups of consecutive channels C is divided; a divisor of C.
        weight, bias: (C,) or None.
        eps: ε. folded: see `native_group_norm`.
    """
    return native_group_norm(input, weight, bias, *_lengths(input), num_groups, eps, folded=folded)[0]


def _lengths(x: Array) -> tuple[int, int, int]:
    """(N, C, HxW) of x of shape (N, C, *)."""
    n, channels, *positions = np.shape(x)
    return n, channels, math.prod(positions)


@also(folded=True)
def native_group_norm(
    input: Array, weight: Array | None, bias: Array | None, N: int, C: int, HxW: int, group: int, eps: float,
    *, folded: bool = False,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """(out, μ, 1/√(σ² + ε)) of `input` read as (N, C, HxW); the statistics are (N, group).

    Args:
        input: N·C·HxW elements, in the order of (N, C, HxW).
        weight, bias: (C,) or None.
        N, C, HxW: the lengths, as torch names them.
        group: the number of groups. eps: ε.
        folded: x scale + shift with scale = w/√(σ² + ε) and shift = b − μ scale, one each per sample and channel.
    """
    x = np.reshape(input, (N, group, C // group, HxW))
    w, b = (None if t is None else np.reshape(t, (1, group, C // group, 1)) for t in (weight, bias))
    centred, mean, rstd = _moments(x, (2, 3), eps)
    # The folded form needs one multiplication and one addition per element. It is another algorithm and not only
    # another order: where b and μ scale nearly cancel in the shift, its error is larger.
    if folded:
        scale = rstd if w is None else rstd * w
        out = x * scale + (-mean * scale if b is None else b - mean * scale)
    else:
        out = _weighted(centred * rstd, w, b)
    return np.reshape(out, np.shape(input)), np.reshape(mean, (N, group)), np.reshape(rstd, (N, group))


@also(rstd_first=True)
def native_group_norm_backward(
    grad_out: Array, input: Array, mean: Array, rstd: Array, weight: Array | None, N: int, C: int, HxW: int,
    group: int, output_mask: Sequence[bool], *, rstd_first: bool = False,
) -> Grads:  # fmt: skip
    """(d_input, d_weight, d_bias) of `group_norm` for the cotangent `grad_out`; masked ones are None.

    The values of `mean` and `rstd` are those given; their derivatives are those of the statistics of
    `input`, with ε = 1/rstd² − σ² held constant.

    Args:
        grad_out: as `input`.
        input, weight, N, C, HxW, group: as in `native_group_norm`.
        mean, rstd: (N, group), as `native_group_norm` returns them.
        output_mask: which of the three are wanted.
        rstd_first: see `_input_gradient`.
    """
    x, dy = (np.reshape(t, (N, group, C // group, HxW)) for t in (input, grad_out))
    mean, rstd = (np.reshape(t, (N, group, 1, 1)) for t in (mean, rstd))
    normalized, r = _saved_statistics(x, mean, rstd, (2, 3))
    g = dy if weight is None else dy * np.reshape(weight, (1, group, C // group, 1))
    d_input = np.reshape(_input_gradient(g, normalized, r, (2, 3), rstd_first), np.shape(input))
    d_weight = np.reshape(np.sum(dy * normalized, axis=(0, 3)), (C,))
    d_bias = np.reshape(np.sum(dy, axis=(0, 3)), (C,))
    return _wanted((d_input, d_weight if weight is not None else None, d_bias), output_mask)
