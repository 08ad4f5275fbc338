"""Derivatives of the norms up to second order as differentiable torch expressions; higher orders follow from autograd.

One set of formulas for all of them: layer, group and batch norm differ in which dims share statistics and which share
an affine parameter, and `Layout` says that.

Letters: N elements x that share statistics (a row), mean m, r = 1/sqrt(var + eps), xh = (x - m) r, bar = mean over the
row, g = dy w, dm and ds the cotangents of the outputs mean and rstd. The row's first-order maps are

    d xh = r (dx - bar(dx) - xh bar(dx xh)),   d m = bar(dx),   d r = -r^2 bar(dx xh)

which is differentiating the definition of Ba, Kiros, Hinton, Layer Normalization, arXiv:1607.06450, eq. 3-4.

Half-precision operands are taken to float32 on entry and each result is rounded once, on return, so no two
half-precision contributions are ever added. The statistics are recomputed from x, never taken from saved outputs: a
saved statistic does not carry its dependence on x to the next order.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ..operator import sums
from ..operator.precision import compute_dtype


class Layout(Protocol):
    """Which elements of x share statistics, and which share an element of the affine parameters."""

    def dims(self, ndim: int) -> tuple[int, ...]:
        """The dims of x that statistics are taken over."""
        ...

    def affine_shape(self, shape: torch.Size) -> tuple[int, ...]:
        """The shape of d_weight and d_bias for x of `shape`."""
        ...

    def spread(self, affine: Tensor, ndim: int) -> Tensor:
        """A weight, a bias or a cotangent of theirs, viewed to broadcast against x of `ndim` dims."""
        ...

    def collect(self, t: Tensor) -> Tensor:
        """The adjoint of `spread`: t, shaped as x, summed to `affine_shape`; float32 for the half types."""
        ...


class Rows(NamedTuple):
    """Layer norm: x is (*batch, *lead, *row), a weight (*row), or (*batch, *row) where each batch dim is full or 1."""

    row_ndim: int
    batch_ndim: int = 0

    def dims(self, ndim: int) -> tuple[int, ...]:
        return tuple(range(ndim - self.row_ndim, ndim))

    def affine_shape(self, shape: torch.Size) -> tuple[int, ...]:
        return (*shape[: self.batch_ndim], *shape[len(shape) - self.row_ndim :])

    def spread(self, affine: Tensor, ndim: int) -> Tensor:
        if affine.dim() == self.row_ndim:
            return affine
        batch, row = affine.shape[: self.batch_ndim], affine.shape[self.batch_ndim :]
        return affine.reshape(*batch, *(1,) * (ndim - self.batch_ndim - self.row_ndim), *row)

    def collect(self, t: Tensor) -> Tensor:
        return _sum(t, tuple(range(self.batch_ndim, t.dim() - self.row_ndim)))


class Channels(NamedTuple):
    """Group and batch norm: x is viewed as (N, groups, channels per group, positions), a weight is (channels,).

    Statistics are taken over channels of a group and positions, and over N as well where `across_batch`.
    """

    groups: int
    across_batch: bool

    def dims(self, ndim: int) -> tuple[int, ...]:
        return (0, 2, 3) if self.across_batch else (2, 3)

    def affine_shape(self, shape: torch.Size) -> tuple[int, ...]:
        return (shape[1] * shape[2],)

    def spread(self, affine: Tensor, ndim: int) -> Tensor:
        # unflatten, not reshape with -1: zero channels have a shape, too
        each = affine.shape[0] // self.groups if self.groups else 1
        spread: Tensor = affine.unflatten(0, (self.groups, each)).unsqueeze(-1)
        return spread

    def collect(self, t: Tensor) -> Tensor:
        return _sum(t, (0, 3)).flatten()


def _sum(t: Tensor, dims: tuple[int, ...]) -> Tensor:
    return sums.total(t, dims, dtype=compute_dtype(t.dtype))


class Row(NamedTuple):
    """The rows of x and what every formula needs of them; `n` is the row length."""

    dims: tuple[int, ...]
    n: int
    xh: Tensor
    r: Tensor

    def bar(self, t: Tensor) -> Tensor:
        """Mean over the row, dims kept."""
        return sums.mean(t, self.dims, keepdim=True)

    def centre(self, t: Tensor) -> Tensor:
        """t - bar(t). The view is a node of its own: in reverse mode the two terms' cotangents, which nearly cancel,
        meet there before any other cotangent of t is added to them."""
        t = t.view_as(t)
        return t - self.bar(t)

    def normalize(self, t: Tensor) -> Tensor:
        """r (t - bar(t) - xh bar(t xh)): the derivative of xh, which is its own adjoint."""
        centred = self.centre(t)
        return self.r * (centred - self.xh * self.bar(centred * self.xh))

    def slope(self, t: Tensor) -> Tensor:
        """-r^2 bar(t xh): the derivative of r. t is centred first, for the rows of xh sum to zero only nearly."""
        return -self.r * self.r * self.bar(self.centre(t) * self.xh)


def row_statistics(x: Tensor, dims: tuple[int, ...], eps: float | None, rstd: Tensor | None) -> Row:
    """Statistics of x over `dims` as differentiable functions of x.

    Args:
        eps: None when only `rstd` is known; then eps = 1/rstd^2 - var, a constant per row.
    """
    # sqrt and reciprocal, not rsqrt: torch differentiates rsqrt by way of r^3, which underflows long before r does.
    centred = x - sums.mean(x, dims, keepdim=True)
    var = sums.mean(centred * centred, dims, keepdim=True)
    if eps is not None:
        r = (var + eps).sqrt().reciprocal()
    else:
        assert rstd is not None
        r = (var + (rstd.detach().pow(-2) - var.detach())).sqrt().reciprocal()
    n = 1
    for dim in dims:
        n *= x.shape[dim]
    return Row(dims, n, centred * r, r)


def _up(t: Tensor | None) -> Tensor | None:
    return None if t is None else t.to(compute_dtype(t.dtype))


def _plus(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """a + b where None is zero."""
    if a is None or b is None:
        return b if a is None else a
    return a + b


def _times(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """a b where a missing weight (None) is one."""
    return a if b is None or a is None else a * b


def forward_jvp(
    x: Tensor,
    weight: Tensor | None,
    layout: Layout,
    eps: float,
    tangents: tuple[Tensor | None, Tensor | None, Tensor | None],
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Tangents of (out, mean, rstd): (d xh) w + xh tw + tb, bar(tx), -r^2 bar(tx xh)."""
    tx, tw, tb = map(_up, tangents)
    out = t_mean = t_rstd = None
    if tx is not None or tw is not None:
        row = row_statistics(x.to(compute_dtype(x.dtype)), layout.dims(x.dim()), eps, None)
        if tx is not None:
            w = _up(weight)
            t_mean, t_rstd = row.bar(tx), row.slope(tx)
            out = _times(row.normalize(tx), None if w is None else layout.spread(w, x.dim()))
        if tw is not None:
            out = _plus(out, row.xh * layout.spread(tw, x.dim()))
    out = _plus(out, None if tb is None else layout.spread(tb, x.dim()))
    zeros = torch.zeros_like(x, memory_format=torch.contiguous_format)
    if out is None:
        return zeros, None, None
    if out.shape != x.shape:  # only a bias tangent: one row for all
        out = zeros + out
    return out.to(x.dtype), t_mean, t_rstd


class Backward(NamedTuple):
    """One call of the backward op, as its derivative rules see it.

    A tensor that a rule does not need is None; so is a weight of ones and a missing `grad_rstd`.
    `weight_dtype` and `bias_dtype` are None where there is no such parameter. `shape` and `dtype`
    are those of input and grad_out alike.
    """

    shape: torch.Size
    dtype: torch.dtype
    weight_dtype: torch.dtype | None
    bias_dtype: torch.dtype | None
    layout: Layout
    eps: float | None
    mask: tuple[bool, bool, bool]
    grad_out: Tensor | None = None
    grad_rstd: Tensor | None = None
    x: Tensor | None = None
    rstd: Tensor | None = None
    weight: Tensor | None = None

    def tensors(self) -> tuple[Tensor | None, ...]:
        """The fields that are tensors, in the order of `with_tensors`."""
        return self.grad_out, self.grad_rstd, self.x, self.rstd, self.weight

    def with_tensors(
        self,
        grad_out: Tensor | None = None,
        grad_rstd: Tensor | None = None,
        x: Tensor | None = None,
        rstd: Tensor | None = None,
        weight: Tensor | None = None,
    ) -> Backward:
        """The same call with these tensors and no others."""
        return self._replace(grad_out=grad_out, grad_rstd=grad_rstd, x=x, rstd=rstd, weight=weight)

    def spread(self, affine: Tensor | None) -> Tensor | None:
        """`Layout.spread` for this op's shapes, in the dtype of the formulas."""
        up = _up(affine)
        return None if up is None else self.layout.spread(up, len(self.shape))

    def collect(self, t: Tensor | None, dtype: torch.dtype, device: torch.device) -> Tensor:
        """`Layout.collect` rounded to a parameter's dtype; zeros for None."""
        if t is None:
            return torch.zeros(self.layout.affine_shape(self.shape), dtype=dtype, device=device)
        return self.layout.collect(t.expand(self.shape)).to(dtype)

    def full(self, t: Tensor | None) -> Tensor | None:
        """`t` in the input's shape and dtype, contiguous."""
        # Expanded before it is rounded: the derivative then sums before it rounds, too.
        return None if t is None else t.expand(self.shape).to(self.dtype).contiguous()


def backward_jvp(
    op: Backward, tangents: tuple[Tensor | None, ...]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Tangents of (d_input, d_weight, d_bias) for tangents of (dy, dm, ds, x, w).

    With c = bar(g xh) + r ds / N and dx = r (g - bar(g) - xh c) + dm / N:
        tr = -r^2 bar(tx xh),  tg = tdy w + dy tw,  tc = bar(tg xh + g txh) + (tr ds + r tds) / N
        tdx = tr (g - bar(g) - xh c) + r (tg - bar(tg) - txh c - xh tc) + tdm / N
        tdw = sum(tdy xh + dy txh),  tdb = sum(tdy)
    """
    tdy, tdm, tds, tx = map(_up, tangents[:4])
    tw = op.spread(tangents[4])
    dy, x = _up(op.grad_out), _up(op.x)
    assert dy is not None
    assert x is not None
    row = row_statistics(x, op.layout.dims(x.dim()), op.eps, op.rstd)
    txh = None if tx is None else row.normalize(tx)
    d_input = d_weight = d_bias = None
    if op.mask[0]:
        d_input = _backward_jvp_input(op, row, dy, (tdy, tdm, tds, tx, tw), txh)
        d_input = op.full(torch.zeros_like(x) if d_input is None else d_input)
    if op.mask[1] and op.weight_dtype is not None:
        product = _plus(_times(tdy, row.xh), None if txh is None else dy * txh)
        d_weight = op.collect(product, op.weight_dtype, x.device)
    if op.mask[2] and op.bias_dtype is not None:
        d_bias = op.collect(tdy, op.bias_dtype, x.device)
    return d_input, d_weight, d_bias


def _backward_jvp_input(
    op: Backward, row: Row, dy: Tensor, tangents: tuple[Tensor | None, ...], txh: Tensor | None
) -> Tensor | None:
    """tdx of `backward_jvp`, or None where every tangent is missing."""
    tdy, tdm, tds, tx, tw = tangents
    xh, r, n, ds, w = row.xh, row.r, row.n, op.grad_rstd, op.spread(op.weight)
    g = row.centre(dy if w is None else dy * w)
    tg = _plus(_times(tdy, w), None if tw is None else dy * tw)
    c = row.bar(g * xh)
    if ds is not None:
        c = c + r * ds / n
    inner = tc = out = None
    if tg is not None:
        inner = row.centre(tg)
        tc = row.bar(inner * xh)
    if tx is not None and txh is not None:
        tr = row.slope(tx)
        out = tr * (g - xh * c)
        inner = _plus(inner, -txh * c)
        tc = _plus(tc, row.bar(g * txh))
        tc = _plus(tc, None if ds is None else tr * ds / n)
    tc = _plus(tc, None if tds is None else r * tds / n)
    inner = _plus(inner, None if tc is None else -xh * tc)
    out = _plus(out, None if inner is None else r * inner)
    return _plus(out, None if tdm is None else tdm / n)


class BackwardGrads(NamedTuple):
    """Per differentiable operand of the backward op: its cotangent (None for zero), or whether it is needed."""

    grad_out: Any = None
    grad_mean: Any = None
    grad_rstd: Any = None
    x: Any = None
    weight: Any = None


def backward_vjp(op: Backward, needs: BackwardGrads, cotangents: tuple[Tensor | None, ...]) -> BackwardGrads:
    """Cotangents of (dy, dm, ds, x, w) for cotangents (v, vw, vb) of (d_input, d_weight, d_bias).

    With a = bar(g), c = bar(g xh) + r ds / N, p = bar(v xh), gg = r (v - bar(v) - p xh):
        X  = -r (v c + p g) + vw dy
        R  = N (bar(v g) - bar(v) a - p c) - r p ds
        d_x = r (X - bar(X) - xh (bar(X xh) + r R / N))
        d_dy = gg w + vw xh + vb,  d_w = sum(gg dy),  d_dm = bar(v),  d_ds = -r^2 p
    """
    v, vw, vb = _up(cotangents[0]), op.spread(cotangents[1]), op.spread(cotangents[2])
    if op.x is None:  # only d_bias was asked for: a sum
        return BackwardGrads(grad_out=op.full(vb))
    dims = op.layout.dims(op.x.dim())
    row = row_statistics(op.x.to(compute_dtype(op.dtype)), dims, op.eps, op.rstd)
    dy, w, xh = _up(op.grad_out), op.spread(op.weight), row.xh
    gg = None if v is None else row.normalize(v)
    d_dy = d_dm = d_ds = d_x = d_w = None
    if needs.grad_out:
        d_dy = op.full(_plus(_plus(_times(gg, w), None if vw is None else vw * xh), vb))
    if needs.grad_mean and v is not None:
        d_dm = row.bar(v)
    if needs.grad_rstd and v is not None:
        d_ds = row.slope(v)
    if needs.weight and gg is not None and dy is not None and op.weight is not None:
        d_w = op.layout.collect(gg * dy)
        d_w = d_w.sum_to_size(op.weight.shape).to(op.weight.dtype)
    if needs.x and dy is not None:
        d_x = op.full(_backward_vjp_input(op, row, dy, w, v, vw))
    return BackwardGrads(d_dy, d_dm, d_ds, d_x, d_w)


def _backward_vjp_input(
    op: Backward, row: Row, dy: Tensor, w: Tensor | None, v: Tensor | None, vw: Tensor | None
) -> Tensor | None:
    """d_x of `backward_vjp`; without v everything but the term vw dy vanishes."""
    xh, r, n, ds = row.xh, row.r, row.n, op.grad_rstd
    total = None if vw is None else vw * dy
    scale = None
    if v is not None:
        # Centring g and v changes nothing in exact arithmetic, and cancels before the products round.
        g = row.centre(dy if w is None else dy * w)
        c = row.bar(g * xh)
        if ds is not None:
            c = c + r * ds / n
        v = row.centre(v)
        p = row.bar(v * xh)
        total = _plus(total, -r * (v * c + p * g))
        # R / N, kept as means so that nothing grows with N.
        scale = row.bar(v * g) - p * c
        if ds is not None:
            scale = scale - r * p * ds / n
    if total is None:
        return None
    along = row.bar(total * xh)
    along = along if scale is None else along + r * scale
    return r * (total - row.bar(total) - xh * along)
