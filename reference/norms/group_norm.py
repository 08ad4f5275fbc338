"""Formulas of group norm.

Wu, He: Group Normalization, arXiv:1803.08494. The statistics are population moments; `eps` stands inside the root.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..algorithms import also
from . import moments
from .moments import Array, Grads


@also(folded=True)
@also(lines=True)
def group_norm(
    input: Array, num_groups: int, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5,
    *, folded: bool = False, lines: bool = False,
) -> Array:  # fmt: skip
    """out = (x − μ) / √(σ² + ε) · w + b; μ, σ² over the channels of a group and all positions, w, b per channel.

    Wu, He: Group Normalization, arXiv:1803.08494, equations 1, 2, 6 and 7.

    Args:
        input: (N, C, ...).
        num_groups: into how many groups of consecutive channels C is divided; a divisor of C.
        weight, bias: (C,) or None.
        eps: ε. folded, lines: see `native_group_norm`.
    """
    return native_group_norm(input, weight, bias, *_lengths(input), num_groups, eps, folded=folded, lines=lines)[0]


def _lengths(x: Array) -> tuple[int, int, int]:
    """(N, C, HxW) of x of shape (N, C, *)."""
    n, channels, *positions = np.shape(x)
    return n, channels, math.prod(positions)


@also(folded=True)
@also(lines=True)
def native_group_norm(
    input: Array, weight: Array | None, bias: Array | None, N: int, C: int, HxW: int, group: int, eps: float,
    *, folded: bool = False, lines: bool = False,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """(out, μ, 1/√(σ² + ε)) of `input` read as (N, C, HxW); the statistics are (N, group).

    Args:
        input: N·C·HxW elements, in the order of (N, C, HxW).
        weight, bias: (C,) or None.
        N, C, HxW: the lengths, as torch names them.
        group: the number of groups. eps: ε.
        folded: x scale + shift with scale = w/√(σ² + ε) and shift = b − μ scale, one each per sample and channel.
        lines: see `derived_on_lines`.
    """
    x = np.reshape(input, (N, group, C // group, HxW))
    w, b = (None if t is None else np.reshape(t, (1, group, C // group, 1)) for t in (weight, bias))
    centred, mean, rstd = moments.moments_of(x, (2, 3), eps)
    # The folded form needs one multiplication and one addition per element. It is another algorithm and not only
    # another order: where b and μ scale nearly cancel in the shift, its error is larger.
    out = moments.folded_by_one_scale(x, mean, rstd, w, b) if folded else moments.scale_and_shift(centred * rstd, w, b)
    if lines:
        out = moments.derived_on_lines(x, mean, rstd, (2, 3), eps, out, (w, b))
    return np.reshape(out, np.shape(input)), np.reshape(mean, (N, group)), np.reshape(rstd, (N, group))


@also(rstd_first=True)
@also(line=True)
def native_group_norm_backward(
    grad_out: Array, input: Array, mean: Array, rstd: Array, weight: Array | None, N: int, C: int, HxW: int,
    group: int, output_mask: Sequence[bool], *, rstd_first: bool = False, line: bool = False,
) -> Grads:  # fmt: skip
    """(d_input, d_weight, d_bias) of `group_norm` for the cotangent `grad_out`; masked ones are None.

    The values of `mean` and `rstd` are those given; their derivatives are those of the statistics of
    `input`, with ε = 1/rstd² − σ² held constant.

    Args:
        grad_out: as `input`.
        input, weight, N, C, HxW, group: as in `native_group_norm`.
        mean, rstd: (N, group), as `native_group_norm` returns them.
        output_mask: which of the three are asked for.
        rstd_first: see `input_gradient`.
        line: whether gradients are made of Σ g and Σ g x per channel; of values alone.
    """
    x, dy = (np.reshape(t, (N, group, C // group, HxW)) for t in (input, grad_out))
    mean, rstd = (np.reshape(t, (N, group, 1, 1)) for t in (mean, rstd))
    normalized, r = moments.saved_statistics(x, mean, rstd, (2, 3), moments.is_derived(grad_out, input, weight))
    g = dy if weight is None else dy * np.reshape(weight, (1, group, C // group, 1))
    if line:
        d_input = moments.gradient_of_sums(g, x, mean, r, (2, 3))
        along = np.sum(dy * x, axis=3) - np.sum(dy, axis=3) * np.reshape(mean, (N, group, 1))
        d_weight = np.sum(along * np.reshape(r, (N, group, 1)), axis=0)
    else:
        d_input = moments.input_gradient(g, normalized, r, (2, 3), rstd_first)
        d_weight = np.sum(dy * normalized, axis=(0, 3))
    d_input, d_weight = np.reshape(d_input, np.shape(input)), np.reshape(d_weight, (C,))
    d_bias = np.reshape(np.sum(dy, axis=(0, 3)), (C,))
    return moments.mask_gradients((d_input, d_weight if weight is not None else None, d_bias), output_mask)
