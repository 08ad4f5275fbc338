"""The derivatives of the norms as differentiable torch expressions; higher orders follow from autograd.

One set of expressions for all of them: layer, group and batch norm differ in which dims share statistics and which
share an affine parameter, and `layout.Layout` says that. All tensors shaped as x come viewed by it.

Letters: N elements x that share statistics (a row), mean m, r = 1/sqrt(var + eps), xh = (x - m) r, bar = mean over the
row, g = dy w, dm and ds the cotangents of the outputs mean and rstd. The row's first-order maps are

    d xh = r (dx - bar(dx) - xh bar(dx xh)),   d m = bar(dx),   d r = -r^2 bar(dx xh)

which is differentiating the definition of Ba, Kiros, Hinton, Layer Normalization, arXiv:1607.06450, eq. 3-4. So

    d_x = r (g - bar(g) - xh (bar(g xh) + r ds / N)) + dm / N,   d_w = sum(dy xh),   d_b = sum(dy).

A norm without a mean (`centred=False`) has m = 0, and no bar(dx) nor bar(g) in these. Statistics that are constants
have no derivative: d xh = r dx, and d_x = r g.

Half-precision operands are taken to float32 on entry and each result is rounded once, by the caller, so no two
half-precision contributions are ever added. The statistics are recomputed from x: a saved one does not carry its
dependence on x to the next order. A saved rstd, which implies an eps, keeps its value; a saved mean was rounded, and is
computed again with a second term.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..operator import sums
from ..operator.precision import raised
from .kernels_cpu.operands import Gradients
from .layout import Layout

Constants = tuple[Tensor, Tensor]
"""Mean and variance, (C,), which are constants and no functions of x: they take no gradient, as in torch."""


class Row(NamedTuple):
    """The rows of x and what every formula needs of them.

    Attributes:
        shape: the shape of x.
        dims: the dims of a row.
        n: the row length.
        xh, r: see the module.
        centred: whether the norm takes off the mean.
        constant: whether mean and r are constants, and no functions of x.
    """

    shape: torch.Size
    dims: tuple[int, ...]
    n: int
    xh: Tensor
    r: Tensor
    centred: bool
    constant: bool = False

    def bar(self, t: Tensor) -> Tensor:
        """Mean over the row, dims kept."""
        return sums.mean(t, self.dims, keepdim=True)

    def along(self, t: Tensor) -> Tensor:
        """t, which has one element per row, or broadcasts against x for another reason, for use beside x."""
        return sums.spread(t, self.shape)

    def centre(self, t: Tensor) -> Tensor:
        """t - bar(t). The view is a node of its own: in reverse mode the two terms' cotangents, which nearly cancel,
        meet there before any other cotangent of t is added to them. Of a norm without a mean, t itself."""
        if not self.centred:
            return t
        t = t.view_as(t)
        return t - self.along(self.bar(t))

    def normalize(self, t: Tensor) -> Tensor:
        """r (t - bar(t) - xh bar(t xh)), or r t of constants: the derivative of xh, which is its own adjoint."""
        if self.constant:
            return self.along(self.r) * t
        # bar(t xh) equals bar((t - bar(t)) xh), because a row of xh sums to 0. It does so only nearly in
        # floating point, and a large bar(t) would leak in through the difference; a centred t has no mean to leak.
        centred = self.centre(t)
        return self.along(self.r) * (centred - self.xh * self.along(self.bar(centred * self.xh)))

    def slope(self, t: Tensor) -> Tensor:
        """-r^2 bar(t xh): the derivative of r. t is centred first, for the rows of xh sum to zero only nearly."""
        return -self.r * self.r * self.bar(self.centre(t) * self.xh)


def _deviation(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """x - bar(x)."""
    mean = sums.mean(x, dims, keepdim=True)
    centred = x - sums.spread(mean, x.shape)
    # The mean is rounded to the precision of x, which is coarse for a row far from zero. Rows of xh would then not sum
    # to zero, and derivatives of second order rely on that: each of their sums of t xh would take in a share of the
    # mean of t. The mean of the deviations is the second term of the mean, and corrects its value alone.
    return centred - sums.spread(sums.mean(centred.detach(), dims, keepdim=True), x.shape)


def row_statistics(
    x: Tensor, dims: tuple[int, ...], eps: float | None, rstd: Tensor | None, centred: bool = True
) -> Row:
    """Statistics of x over `dims` as differentiable functions of x.

    Args:
        x: in the dtype of formulas.
        dims: of x, those of a row.
        eps: None when only `rstd` is known; then eps = 1/rstd^2 - var, a constant per row.
        rstd: may be None where eps is known.
        centred: whether the norm takes off the mean.
    """
    deviation = _deviation(x, dims) if centred else x
    var = sums.mean(deviation * deviation, dims, keepdim=True)
    # sqrt and reciprocal, not rsqrt: torch differentiates rsqrt by way of r^3, which underflows long before r does.
    if eps is not None:
        r = (var + eps).sqrt().reciprocal()
    else:
        assert rstd is not None
        # This is 1 / sqrt(var + eps) with the eps that the given rstd implies, a number without a derivative. The
        # differences below are zero, so that the value is the given rstd, and the dependence on x is that of var alone.
        saved_rstd = rstd.detach()
        implied = (saved_rstd.pow(-2) + (var - var.detach())).sqrt().reciprocal()
        r = saved_rstd + (implied - implied.detach())
    n = 1
    for dim in dims:
        n *= x.shape[dim]
    return Row(x.shape, dims, n, deviation * sums.spread(r, x.shape), r, centred)


def _row(
    layout: Layout, x: Tensor, eps: float | None, rstd: Tensor | None, constants: Constants | None, centred: bool
) -> Row:
    """The rows of x by statistics of its own, or by constants; x as the layout views it."""
    x = raised(x)
    if constants is None:
        return row_statistics(x, layout.dims(x.dim()), eps, rstd, centred)
    assert eps is not None
    mean, var = (layout.view_statistics(raised(t.detach())) for t in constants)
    # As in `row_statistics`, torch's derivative of rsqrt would go by r^3.
    r = (var + eps).sqrt().reciprocal()
    return Row(x.shape, (), 1, (x - mean) * r, r, centred, constant=True)


def recompute_mean_var(
    input: Tensor, rstd: Tensor, inner_dim_indices: Sequence[int], keepdim: bool
) -> tuple[Tensor, Tensor]:
    """(mean, rstd) over the given dims as functions of the input: a saved rstd does not carry its dependence on it.

    rstd = 1 / sqrt(var + eps) with the eps that the given `rstd` implies, held constant. float32 for the half types.
    """
    # Name and signature are those of torch._decomp.decompositions_for_jvp, where torch's decompositions
    # find it.
    x, dims, saved_rstd = raised(input), tuple(inner_dim_indices), raised(rstd)
    keepdim_shape = tuple(1 if dim in {d % x.dim() for d in dims} else size for dim, size in enumerate(x.shape))
    row = row_statistics(x, dims, None, saved_rstd.reshape(keepdim_shape))
    mean, shape = row.bar(x), saved_rstd.shape
    return (mean, row.r) if keepdim else (mean.reshape(shape), row.r.reshape(shape))


def _plus(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """a + b where None is zero."""
    if a is None or b is None:
        return b if a is None else a
    return a + b


def moved_outputs(
    x: Tensor, weight: Tensor | None, layout: Layout, eps: float,
    tangents: tuple[Tensor | None, Tensor | None, Tensor | None], constants: Constants | None = None,
    centred: bool = True,
) -> tuple[Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """Tangents of (out, mean, rstd): (d xh) w + xh tw + tb, bar(tx), -r^2 bar(tx xh).

    Args:
        x: as the layout views it.
        weight: the weight, or None for ones.
        layout: which elements share statistics and parameters.
        eps: added to the variance.
        tangents: of x, weight and bias; None for zero.
        constants: the statistics, or None where they are functions of x.
        centred: whether the norm takes off the mean.

    Returns:
        The tangent of out in x's dtype, those of mean and rstd viewed to broadcast against x; None for zero.
    """
    tx, tw, tb = map(raised, tangents)
    out = t_mean = t_rstd = None
    if tx is not None or tw is not None:
        row = _row(layout, x, eps, None, constants, centred)
        if tx is not None:
            if not row.constant:  # These are d m = bar(dx) and d r = -r^2 bar(dx xh) of the module's docstring.
                t_mean, t_rstd = row.bar(tx), row.slope(tx)
            normalized = row.normalize(tx)
            out = normalized if weight is None else normalized * layout.spread(raised(weight), x.dim())
        if tw is not None:
            out = _plus(out, row.xh * layout.spread(tw, x.dim()))
    out = _plus(out, None if tb is None else layout.spread(tb, x.dim()))
    zeros = torch.zeros_like(x, memory_format=torch.contiguous_format)
    if out is None:
        return zeros, None, None
    if out.shape != x.shape:  # only a bias tangent: one row for all
        out = zeros + out
    return out.to(x.dtype), t_mean, t_rstd


def gradients(
    layout: Layout, grad_out: Tensor, x: Tensor, weight: Tensor | None, *, eps: float | None,
    rstd: Tensor | None = None, grad_mean: Tensor | None = None, grad_rstd: Tensor | None = None,
    mask: tuple[bool, bool, bool] = (True, True, True), constants: Constants | None = None, centred: bool = True,
) -> Gradients:  # fmt: skip
    """(d_input, d_weight, d_bias) of a norm; see the module.

    Args:
        layout: which elements share statistics and parameters.
        grad_out: the cotangent of out, viewed by the layout as x is.
        x: the input.
        weight: the weight, or None for ones.
        eps: added to the variance; None where only `rstd` is known.
        rstd: the given one, viewed to broadcast against x; `eps` is found from it if need be.
        grad_mean, grad_rstd: the cotangents of mean and rstd, viewed likewise; None for zero.
        mask: which of the three to compute.
        constants: the statistics, or None where they are functions of x.
        centred: whether the norm takes off the mean.

    Returns:
        d_input shaped as x, the others shaped as a weight; float32 for the half types.
    """
    dy, ndim = raised(grad_out), x.dim()
    d_input = d_weight = None
    # d_bias = sum(dy) reads neither x nor its statistics.
    if mask[0] or mask[1]:
        row = _row(layout, x, eps, rstd, constants, centred)
        if mask[0]:
            d_input = row.normalize(dy if weight is None else dy * row.along(layout.spread(raised(weight), ndim)))
            # This is the term r ds / N in the bracket of d_x. It stands apart because there is mostly no
            # cotangent of rstd, and -r xh (r ds / N) is all that it adds. It is centred for its own derivatives: they
            # are sums of directions times xh, whose rows sum to zero only nearly.
            if grad_rstd is not None:
                d_input = d_input - row.centre(row.xh * row.along(row.r * (row.r * grad_rstd / row.n)))
            if grad_mean is not None:
                d_input = d_input + row.along(grad_mean / row.n)
        if mask[1]:
            d_weight = layout.collect(dy * row.xh)
    return d_input, d_weight, layout.collect(dy) if mask[2] else None
