"""What the formulas of the norms share: moments, the line through them, and the gradients of both.

What is hard here are the backward ops. They are given statistics that a forward op has saved, rounded, and are judged
by the value that follows from these very numbers. But their derivatives are taken as if the statistics were computed
from the input again, for so they are differentiated in a training step. `attach` says both: the saved value, and the
slope of the expression that it was the value of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ..algorithms import Inapplicable, also
from ..array import attach, constant, order_of

Array = Any
Grads = tuple[Array | None, Array | None, Array | None]


#: Ways to evaluate a norm. USUAL is how the formula reads, and OTHER is what counts besides without being named.
#: FOLDED, one factor and one term per element, and SHIFTED, moments about the first one, count where an op allows them.
USUAL, OTHER, FOLDED, SHIFTED = "usual", "other", "folded", "shifted"
_Formula = TypeVar("_Formula", bound=Callable[..., Any])


def in_other_ways(formula: _Formula) -> _Formula:
    """Declare the other ways of a formula, whose keyword-only parameter is `way`, as algorithms of it."""
    for name in ("", FOLDED, SHIFTED):
        formula = also(name, way=name or OTHER)(formula)
    return formula


def moments_of(x: Array, axes: tuple[int, ...], eps: float, way: str = USUAL) -> tuple[Array, Array, Array]:
    """(x − μ, μ, 1/√(σ² + ε)); the statistics have length 1 along the axes that share them."""
    if way == SHIFTED:
        return shifted_moments(x, axes, eps)
    mean = np.mean(x, axis=axes, keepdims=True)
    centred = x - mean
    return centred, mean, 1.0 / np.sqrt(np.mean(np.square(centred), axis=axes, keepdims=True) + eps)


def shifted_moments(x: Array, axes: tuple[int, ...], eps: float) -> tuple[Array, Array, Array]:
    """`moments_of` data that are shifted by their first element: E[(x − x₀)²] − E[x − x₀]².

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


def on_line(x: Array, mean: Array, scale: Array, bias: Array | None) -> Array:
    """x s + (b − μ s): one multiplication and one addition per element."""
    return x * scale + (-mean * scale if bias is None else bias - mean * scale)


def folded_by_one_scale(x: Array, mean: Array, rstd: Array, weight: Array | None, bias: Array | None) -> Array:
    """Values of `on_line`, where the error of s is the same in both products and cancels with what they have in common.

    Both products, the shift and the result are rounded: (x s (1 + δ1) + (b − μ s (1 + δ2)) (1 + δ3)) (1 + δ4), and that
    is s (x (1 + δ1) − μ (1 + δ2) (1 + δ3)) + b (1 + δ3) but for the last rounding. A sum with zero reads as one
    rounding. Derivatives are those of the usual way.

    Args:
        x: the input. mean, rstd: its statistics. weight, bias: as they broadcast against x.
    """
    centred = (x + 0.0) - (mean + 0.0 + 0.0)
    out = scale_and_shift(centred * rstd, weight, None if bias is None else bias + 0.0)
    # Whether a weight is not finite is asked of balls that have such numbers: a reading without values has no answer.
    if weight is None or not getattr(constant(weight), "special", False):
        return out
    # Both products with an infinite weight are infinite, and the line between them may be NaN.
    beyond = np.logical_not(np.isfinite(constant(weight)))
    return np.where(beyond, on_line(x, mean, rstd * weight, bias), out)


def derived_on_lines(
    x: Array, mean: Array, rstd: Array, axes: tuple[int, ...], eps: float, out: Array, affine: tuple[Array | None, ...]
) -> Array:
    """The values of `out` with first derivatives as of x r − μ r, from which the mean is never subtracted.

    So ATen evaluates them: r's cotangent is Σ g x − μ Σ g, from sums on the scale of x, and that of x is r g + b x + c
    with c = −b μ − …, as in `gradient_of_sums`: x and μ are rounded twice in it. What else they are made of has the
    values of the usual way.

    Args:
        x, mean, rstd: the input and its statistics. axes: those that share statistics. eps: ε.
        out: the result of the usual way. affine: weight and bias, as they broadcast against x.
    """
    if order_of(out) != 1:
        raise Inapplicable
    # The variance has no slope in the mean, because x − μ sums to zero, and an evaluation on lines leaves it out.
    moved = (x + 0.0 + 0.0) - (constant(mean) + 0.0 + 0.0)
    r = attach(rstd, 1.0 / np.sqrt(np.mean(np.square(moved), axis=axes, keepdims=True) + eps), always=True)
    normalized = attach(on_line_by_one_scale(x, mean) * r, x * r - mean * r, always=True)
    return attach(out, scale_and_shift(normalized, *affine), always=True)


def scale_and_shift(y: Array, weight: Array | None, bias: Array | None) -> Array:
    """y · w + b, as far as there are a weight and a bias; both broadcast against y."""
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def mask_gradients(grads: Sequence[Array | None], output_mask: Sequence[bool]) -> Grads:
    """The three gradients with None for those that are not asked for."""
    d_input, d_weight, d_bias = (g if is_asked else None for g, is_asked in zip(grads, output_mask, strict=True))
    return d_input, d_weight, d_bias


def saved_statistics(
    x: Array, mean: Array, rstd: Array, axes: tuple[int, ...], in_derivative: bool
) -> tuple[Array, Array]:
    """(x̂, 1/√(σ² + ε)) of saved statistics: their values, with the derivatives of the statistics of x along the axes.

    Args:
        x: the input. mean, rstd: its saved statistics, of length 1 along the axes. axes: those that share statistics.
        in_derivative: see `given_statistic`.
    """
    mu = np.mean(x, axis=axes, keepdims=True)
    variance = np.mean(np.square(x - mu), axis=axes, keepdims=True)
    # The op is not told ε, but what was saved implies it. Held constant, it makes the slope of r that of 1/√(σ² + ε) at
    # the very r that is given.
    eps = constant(1.0 / np.square(rstd) - variance)
    r = given_statistic(rstd, 1.0 / np.sqrt(variance + eps), in_derivative)
    return (x - given_statistic(mean, mu, in_derivative)) * r, r


def given_statistic(statistic: Array, slope: Array, in_derivative: bool) -> Array:
    """A saved statistic with the derivatives of the expression that it was the value of.

    The op itself is evaluated from the saved statistic, which has no error there. An evaluation of its derivatives, in
    whatever operand, needs the statistic as a function of x and may compute it again: with a rounded mean the rows of
    x̂ do not add up to zero, which costs derivatives digits that a mean computed again with the sum of x − μ does not.

    Args:
        statistic, slope: see above. in_derivative: whether a derivative of the op is evaluated, see `is_derived`.
    """
    return attach(statistic, slope, always=not in_derivative)


def is_derived(*operands: Array | None) -> bool:
    """Whether a derivative of a formula is being read, in any of its operands and of any order."""
    return any(map(order_of, operands))


def input_gradient(g: Array, normalized: Array, r: Array, axes: tuple[int, ...], rstd_first: bool = False) -> Array:
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


def gradient_as_line(g: Array, x: Array, mean: Array, r: Array) -> Array:
    """`input_gradient` of a row of one element as r g + b x + c, all of which cancels.

    There b = (g μ − g x) r³ and c = −b μ − g r. The usual way gives exactly zero; this one is off on the scale of its
    terms, which is all that can be asked of it.
    """
    slope = (g * mean - g * x) * r * r * r
    return r * g + slope * x + (-slope * mean - g * r)


def on_line_by_one_scale(x: Array, mean: Array) -> Array:
    """x − μ as it stands in x s − μ s, of which both products are rounded: a sum with zero reads as one rounding."""
    return (x + 0.0) - (mean + 0.0)


def gradient_of_sums(g: Array, x: Array, mean: Array, r: Array, axes: tuple[int, ...]) -> Array:
    """Values of `input_gradient` as r g + b x + c, with b = (μ Σg − Σ g x) r³ / n, c = −b μ − t and t = r Σg / n.

    So ATen evaluates it for layer and group norm. The sums are of g and of g x, because μ is not subtracted before; so
    their errors are on the scale of x, and not of x − μ. What comes after them is, for errors |δ| ≤ u,

        ((r g + b x (1 + δ1)) (1 + δ2) + (−b μ (1 + δ3) − t) (1 + δ4)) (1 + δ5)
            = (r g (1 + δ2) + b (x (1 + δ1) (1 + δ2) − μ (1 + δ3) (1 + δ4)) − t (1 + δ4)) (1 + δ5),

    with the very b in both places, so its error acts on x − μ alone. A sum with zero reads as one rounding.

    Args:
        g, x, mean, r: as in `input_gradient`, and the input. axes: those that share statistics.
    """
    if any(map(order_of, (g, x, mean, r))):
        raise Inapplicable  # Its derivatives are those of the usual way.
    count = int(np.prod([np.shape(x)[axis] for axis in axes]))
    total = np.sum(g, axis=axes, keepdims=True)
    slope = (total * mean - np.sum(g * x, axis=axes, keepdims=True)) * r * r * r / count
    return (r * g + 0.0) + slope * ((x + 0.0 + 0.0) - (mean + 0.0 + 0.0)) - (total * r / count + 0.0)
