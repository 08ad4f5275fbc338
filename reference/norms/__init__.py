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
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ..algorithms import Inapplicable, also
from ..array import attach, constant

Array = Any
Grads = tuple[Array | None, Array | None, Array | None]


#: Ways to evaluate a norm. USUAL is how the formula reads, and OTHER is what counts besides without being named.
#: FOLDED, one factor and one term per element, and SHIFTED, moments about the first one, count where an op allows them.
USUAL, OTHER, FOLDED, SHIFTED = "usual", "other", "folded", "shifted"
_Formula = TypeVar("_Formula", bound=Callable[..., Any])


def _in_other_ways(formula: _Formula) -> _Formula:
    """Declare the other ways of a formula, whose keyword-only parameter is `way`, as algorithms of it."""
    for name in ("", FOLDED, SHIFTED):
        formula = also(name, way=name or OTHER)(formula)
    return formula


def _moments(x: Array, axes: tuple[int, ...], eps: float, way: str = USUAL) -> tuple[Array, Array, Array]:
    """(x − μ, μ, 1/√(σ² + ε)); the statistics have length 1 along the axes that share them."""
    if way == SHIFTED:
        return _shifted_moments(x, axes, eps)
    mean = np.mean(x, axis=axes, keepdims=True)
    centred = x - mean
    return centred, mean, 1.0 / np.sqrt(np.mean(np.square(centred), axis=axes, keepdims=True) + eps)


def _shifted_moments(x: Array, axes: tuple[int, ...], eps: float) -> tuple[Array, Array, Array]:
    """`_moments` of data that are shifted by their first element: E[(x − x₀)²] − E[x − x₀]².

    T. F. Chan, G. H. Golub, R. J. LeVeque, Algorithms for computing the sample variance, Amer. Statist. 37, 1983.
    """
    if not np.size(x):
        raise Inapplicable
    along = {axis % np.ndim(x) for axis in axes}
    first = constant(x[tuple(slice(0, 1) if axis in along else slice(None) for axis in range(np.ndim(x)))])
    shifted = x - first
    mean = np.mean(shifted, axis=axes, keepdims=True)
    variance = np.mean(np.square(shifted), axis=axes, keepdims=True) - np.square(mean)
    return x - (first + mean), first + mean, 1.0 / np.sqrt(variance + eps)


def _folded(x: Array, mean: Array, scale: Array, bias: Array | None) -> Array:
    """x s + (b − μ s): one multiplication and one addition per element."""
    return x * scale + (-mean * scale if bias is None else bias - mean * scale)


def _folded_by_one_scale(x: Array, mean: Array, rstd: Array, weight: Array | None, bias: Array | None) -> Array:
    """Values of `_folded`, where the error of s is the same in both products and cancels with what they have in common.

    Both products, the shift and the result are rounded: (x s (1 + δ1) + (b − μ s (1 + δ2)) (1 + δ3)) (1 + δ4), and that
    is s (x (1 + δ1) − μ (1 + δ2) (1 + δ3)) + b (1 + δ3) but for the last rounding. A sum with zero reads as one
    rounding. Derivatives are those of the usual way.

    Args:
        x: the input. mean, rstd: its statistics. weight, bias: as they broadcast against x.
    """
    centred = (x + 0.0) - (mean + 0.0 + 0.0)
    return _weighted(centred * rstd, weight, None if bias is None else bias + 0.0)


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


def _gradient_as_line(g: Array, x: Array, mean: Array, r: Array) -> Array:
    """`_input_gradient` of a row of one element as r g + b x + c, all of which cancels.

    There b = (g μ − g x) r³ and c = −b μ − g r. The usual way gives exactly zero; this one is off on the scale of its
    terms, which is all that can be asked of it.
    """
    slope = (g * mean - g * x) * r * r * r
    return r * g + slope * x + (-slope * mean - g * r)


# ---------------------------------------------------------------------------------------------- layer norm


def _row_axes(normalized_shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(range(-len(normalized_shape), 0))


@_in_other_ways
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


@_in_other_ways
def native_layer_norm(
    input: Array, normalized_shape: Sequence[int], weight: Array | None, bias: Array | None, eps: float,
    *, way: str = USUAL,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """(out, μ, 1/√(σ² + ε)); the statistics keep the normalised axes with length 1.

    Args:
        input, normalized_shape, weight, bias, eps: as in `layer_norm`.
        way: how it is evaluated.
    """
    # In a row of one element x − μ is exactly zero, but not its folded form: there it is judged on the scale of what
    # cancels. Of longer rows the folded form counts by its name alone.
    if way == OTHER and math.prod(normalized_shape) != 1:
        raise Inapplicable
    centred, mean, rstd = _moments(input, _row_axes(normalized_shape), eps, way)
    if way == OTHER:
        return _folded(input, mean, rstd if weight is None else rstd * weight, bias), mean, rstd
    if way == FOLDED:
        return _folded_by_one_scale(input, mean, rstd, weight, bias), mean, rstd
    return _weighted(centred * rstd, weight, bias), mean, rstd


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
        output_mask: which of the three are wanted.
        rstd_first: see `_input_gradient`. line: for rows of one element, whether their gradient is evaluated as a line.
    """
    axes = _row_axes(normalized_shape)
    if line and math.prod(normalized_shape) != 1:
        raise Inapplicable
    normalized, r = _saved_statistics(input, mean, rstd, axes)
    g = grad_out if weight is None else grad_out * weight
    if line:
        mu = attach(mean, np.mean(input, axis=axes, keepdims=True))
        normalized, d_input = input * r - mu * r, _gradient_as_line(g, input, mu, r)
    else:
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
    scale = rstd if w is None else rstd * w
    out = _folded(x, mean, scale, b) if folded else _weighted(centred * rstd, w, b)
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
