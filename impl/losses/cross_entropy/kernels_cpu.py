"""Kernels of cross entropy: log-softmax, selection and reduction in one, in float32 or float64.

Shapes, batch dims and weights are those of nll_loss.kernels_cpu. Nothing but the input is kept for the backward kernel:
computing the probabilities again is as fast as reading them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ...operator import sums
from ...operator.precision import HALF, compute_dtype
from ..nll_loss import kernels_cpu as nll
from ..nll_loss.kernels_cpu import check_index, class_dim, pick, reduce_losses, spread, weights_at

_CHUNK = 1 << 20
"""Elements of a half-precision input that are taken to float32 at a time; with fewer, threads would meet too often."""

_NARROW, _MANY = 16, 1 << 9
"""With fewer classes than the first, and at least as many elements as the second, ATen's softmax along the last dim is
slower than its parts."""


class SmoothedLoss(NamedTuple):
    """The arguments of cross entropy.

    Attributes:
        x: logits, (*batch, C) or (*batch, N, C, d1, ..., dk).
        target, weight, reduction, ignore_index, batch_ndim: as of a `nll_loss.kernels_cpu.Loss`.
        smoothing: the share of the target that goes to all classes, from 0 to 1.
    """

    x: Tensor
    target: Tensor
    weight: Tensor | None
    reduction: int
    ignore_index: int
    smoothing: float
    batch_ndim: int


class SmoothedLossBackward(NamedTuple):
    """The arguments of the backward op.

    Attributes:
        grad_output: (*batch), or of the target's shape, in the dtype of sums; for a mean divided by the total weight.
        x, ..., batch_ndim: as of a `SmoothedLoss`.
    """

    grad_output: Tensor
    x: Tensor
    target: Tensor
    weight: Tensor | None
    ignore_index: int
    smoothing: float
    batch_ndim: int


def cross_entropy(args: SmoothedLoss) -> tuple[Tensor, Tensor]:
    """(output, total_weight), as of the negative log likelihood.

    Raises:
        IndexError: a target is neither a class nor ignore_index.
    """
    x, target, weight, reduction, ignore_index, smoothing, batch_ndim = args
    dim = class_dim(x.dim(), batch_ndim)
    # Without batch dims, smoothing and half types the result is the plain loss of ATen's log-softmax, and that loss
    # checks targets as it reads them.
    if x.is_cpu and batch_ndim == 0 and not smoothing and x.dtype not in HALF:
        z = _log_probabilities(x, dim)
        return nll.nll_loss(nll.Loss(z, target, weight, reduction, ignore_index, 0), "cross_entropy")
    classes = x.shape[dim]
    index, ignored = check_index("cross_entropy", target, classes, ignore_index)
    up = compute_dtype(x.dtype)
    view, at = _class_table(x, dim), index.reshape(_positions(x, dim))
    loss = view.new_empty(at.shape, dtype=up)
    smooth = torch.empty_like(loss) if smoothing else None
    weights = None if smooth is None else _class_weights(weight, x, dim, batch_ndim)
    for rows in _pieces(view):
        z = _log_probabilities(view[rows].to(up), 1)
        # One or two numbers per position leave the loop. The log-probabilities of a piece are dropped
        # before the next one, so a half-precision input is never copied to float32 as a whole.
        loss[rows] = pick(z, at[rows], 1).neg_()
        if smooth is not None:
            smooth[rows] = sums.total(z if weights is None else z.mul_(weights[rows]), (1,))
    loss = loss.reshape(target.shape)
    hits = None if weight is None else weights_at(weight, index, batch_ndim)
    if hits is not None:
        loss.mul_(hits)
    if smooth is not None:
        loss.mul_(1.0 - smoothing).sub_(smooth.reshape(target.shape).mul_(smoothing / max(classes, 1)))
    # The ignored positions are set to 0 after all products: they may hold NaN, and 0 times NaN is NaN.
    if ignored is not None:
        loss.masked_fill_(ignored, 0.0)
    out, total_weight = reduce_losses(loss, hits, ignored, reduction, batch_ndim)
    return out.to(x.dtype), total_weight


def cross_entropy_backward(args: SmoothedLossBackward) -> Tensor:
    """The logits' gradient p (a + sum b) - a onehot - b with a = (1 - s) g w_t, b = s/C g w, in x's dtype and shape.

    Raises:
        IndexError: a target is neither a class nor ignore_index.
    """
    grad_output, x, target, _, ignore_index, _, batch_ndim = args
    dim = class_dim(x.dim(), batch_ndim)
    index, ignored = check_index("cross_entropy", target, x.shape[dim], ignore_index)
    # Targets were checked all the same: whether one is wrong must not depend on the size of another dim.
    if not x.numel():
        return torch.empty(x.shape, dtype=x.dtype, device=x.device)
    up = compute_dtype(x.dtype)
    g = spread(grad_output, target).expand(target.shape)
    if ignored is not None:
        g = g.masked_fill(ignored, 0.0)
    terms = _terms(args, g, index, ignored)
    view = _class_table(x, dim)
    if x.dtype is up:
        return _gradient(view, terms, slice(None)).reshape(x.shape)
    out = torch.empty(view.shape, dtype=x.dtype, device=x.device)
    # The assignment rounds a piece to the half type; this is the only rounding.
    for rows in _pieces(view):
        out[rows] = _gradient(view[rows].to(up), terms, rows)
    return out.reshape(x.shape)


class _Terms(NamedTuple):
    """The terms of the gradient, one number per position of a table.

    Attributes:
        index, ignored: of the target. hit: a. every: s/C g. scale: a + sum b.
        weights: w in b, as `_class_weights` views it.
    """

    # A NamedTuple is a tuple, whose method `index` this field hides; the method is not called anywhere.
    index: Tensor  # type: ignore[assignment]
    ignored: Tensor | None
    hit: Tensor
    every: Tensor | None
    scale: Tensor
    weights: Tensor | None


def _terms(args: SmoothedLossBackward, g: Tensor, index: Tensor, ignored: Tensor | None) -> _Terms:
    """The terms from which `_gradient` computes the gradient.

    Args:
        args: of the backward op. g: the cotangent of every position's loss, 0 where ignored.
        index, ignored: of `check_index`.
    """
    _, x, _, weight, _, smoothing, batch_ndim = args
    dim = class_dim(x.dim(), batch_ndim)
    shape = _positions(x, dim)
    hit = g if weight is None else g * weights_at(weight, index, batch_ndim)
    if ignored is not None:
        hit, ignored = hit.masked_fill(ignored, 0.0), ignored.reshape(shape)
    index, hit = index.reshape(shape), hit.reshape(shape)
    if not smoothing:
        return _Terms(index, ignored, hit, None, hit, None)
    hit, every = hit * (1.0 - smoothing), g * (smoothing / x.shape[dim])
    # The sum of b over the classes is g itself, up to the smoothing, where there are no weights.
    mass = g * smoothing if weight is None else every * spread(sums.total(weight, (-1,)), g)
    every, mass = every.reshape(shape), mass.reshape(shape)
    return _Terms(index, ignored, hit, every, hit + mass, _class_weights(weight, x, dim, batch_ndim))


def _gradient(x: Tensor, terms: _Terms, rows: slice) -> Tensor:
    """The gradient for some rows of a table."""
    d = _probabilities(x, 1)
    # p (a + sum b) - b - a onehot adds up to 0 over the classes, since a constant added to all logits
    # changes nothing.
    d.mul_(terms.scale[rows].unsqueeze(1))
    if terms.every is not None:
        every = terms.every[rows].unsqueeze(1)
        d.sub_(every if terms.weights is None else every * terms.weights[rows])
    d.scatter_add_(1, terms.index[rows].unsqueeze(1), -terms.hit[rows].unsqueeze(1))
    # The gradient of an ignored position is 0. Its scale and its hit are 0 already, so every term of a finite row with
    # finite weights is 0, and the pass that writes zeros is not needed. A row whose softmax or whose sum of weights is
    # not finite is NaN in every class, so class 0 tells.
    if terms.ignored is not None and bool(d.select(1, 0).isnan().any()):
        d.masked_fill_(terms.ignored[rows].unsqueeze(1), 0.0)
    return d


def _is_narrow(x: Tensor, dim: int) -> bool:
    return dim == x.dim() - 1 and x.shape[dim] < _NARROW and x.numel() >= _MANY and x.is_cpu


def _log_probabilities(x: Tensor, dim: int) -> Tensor:
    """Log-softmax of a float32 or float64 input."""
    if not _is_narrow(x, dim):
        return torch.log_softmax(x, dim)
    # The largest logit cancels in the result. Without it exp cannot overflow, and the sum is at least 1, so
    # its logarithm is finite.
    centred = x - x.amax(dim, keepdim=True)
    return centred.sub_(centred.exp().sum(dim, keepdim=True).log_())


def _probabilities(x: Tensor, dim: int) -> Tensor:
    """Softmax of a float32 or float64 input.

    Along any but the last dim ATen computes columns that fill no vector in another way, and which these are depends on
    the number of threads: where deterministic algorithms are asked for, the dim is made the last.
    """
    if torch.are_deterministic_algorithms_enabled():
        return torch.softmax(x.movedim(dim, -1).contiguous(), -1).movedim(-1, dim).contiguous()
    if not _is_narrow(x, dim):
        return torch.softmax(x, dim)
    # The largest exponential is 1, so none overflows and the sum to divide by is at least 1.
    exponentials = (x - x.amax(dim, keepdim=True)).exp_()
    return exponentials.div_(exponentials.sum(dim, keepdim=True))


def _class_table(x: Tensor, dim: int) -> Tensor:
    """x as (rows, C), or (rows, C, positions) where positions follow the classes."""
    after = math.prod(x.shape[dim + 1 :])
    shape = (math.prod(x.shape[:dim]), x.shape[dim])
    return x.reshape(shape if after == 1 else (*shape, after))


def _positions(x: Tensor, dim: int) -> tuple[int, ...]:
    """The shape of one number per position of `_class_table`."""
    rows, after = math.prod(x.shape[:dim]), math.prod(x.shape[dim + 1 :])
    return (rows,) if after == 1 else (rows, after)


def _pieces(view: Tensor) -> Iterator[slice]:
    """Rows of a table that are worked on together: all, unless they are converted first."""
    rows, row = view.shape[0], math.prod(view.shape[1:])
    step = max(1, _CHUNK // max(row, 1)) if view.dtype in HALF else max(1, rows)
    for start in range(0, rows, step):
        yield slice(start, start + step)


def _class_weights(weight: Tensor | None, x: Tensor, dim: int, batch_ndim: int) -> Tensor | None:
    """The weights of each row of a table, to broadcast against it; without batch dims all are one, not copied."""
    if weight is None:
        return None
    # A batch index is several rows of the table, and each of them gets the weights of its index.
    batch, rows, classes = math.prod(x.shape[:batch_ndim]), math.prod(x.shape[batch_ndim:dim]), x.shape[dim]
    weight = weight.reshape(batch, 1, classes).expand(batch, rows, classes).flatten(0, 1)
    return weight if len(_positions(x, dim)) == 1 else weight.unsqueeze(-1)
