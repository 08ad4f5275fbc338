"""Derivatives of softmax and log-softmax as differentiable torch expressions; higher orders follow from autograd.

Letters: p the probabilities along `dim`, z = log p, <t> the sum of t along `dim` with the dim kept, g the cotangent of
the forward output, v that of the backward op's result. The first-order maps, from the definition p = exp(x) / <exp(x)>,
are

    softmax      dp = p (dx - <p dx>),  which is its own adjoint
    log_softmax  dz = dx - <p dx>,      with the adjoint g - p <g>

Half-precision operands are taken to float32 on entry and each result is rounded once, on return.

A half-precision output is saved as it was rounded. It comes with its `shift`: zeros in float32 that stand for x minus
its own value, so that the output is a function of `shift`, and the higher derivatives pass through float32 alone. All
of its elements share the memory of one, except where a tangent may come, which torch gives the strides of its primal.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..operator import sums
from ..operator.precision import compute_dtype


def total(t: Tensor, dim: int) -> Tensor:
    """<t>: the sum along `dim`, with the dim kept (a tensor of no dims is its own sum)."""
    return sums.total(t, (dim,) if t.dim() else (), keepdim=True)


def forward_jvp(log: bool, p: Tensor, t: Tensor, dim: int) -> Tensor:
    """The tangent of (log-)softmax along t, for probabilities p."""
    centred = t - total(p * t, dim)
    return centred if log else p * centred


class Saved(NamedTuple):
    """A forward output as the backward op takes it, in the dtype of the formulas.

    Attributes:
        p: the probabilities, differentiable in `output`, or in `shift` where there is one.
        by_shift: whether there is.
    """

    log: bool
    dim: int
    p: Tensor
    by_shift: bool

    @classmethod
    def of(cls, log: bool, output: Tensor, shift: Tensor | None, dim: int) -> Saved:
        """From the backward op's arguments; where `shift` moves, p moves as the probabilities of x do."""
        wide = output.to(compute_dtype(output.dtype))
        if shift is None:
            return cls(log, dim, wide.exp() if log else wide, False)
        weights = (wide + shift).exp() if log else wide * shift.exp()
        return cls(log, dim, weights / total(weights, dim), True)

    def grad_of_output(self, g: Tensor, v: Tensor) -> Tensor:
        """The cotangent of the saved output, or of its shift, for the cotangent v of g's image.

        softmax      p (g - <p g>):  v (g - <p g>) - g <p v>, and from there through dp
        log_softmax  g - p <g>:      -p v <g>, and from there through the adjoint of dz: -p (v - <p v>) <g>
        """
        p, dim = self.p, self.dim
        if self.log:
            moved = v - total(p * v, dim) if self.by_shift else v
            return -(p * moved) * total(g, dim)
        cotangent = v * (g - total(p * g, dim)) - g * total(p * v, dim)
        return p * (cotangent - total(p * cotangent, dim)) if self.by_shift else cotangent

    def tangent(self, g: Tensor, t: Tensor) -> Tensor:
        """The tangent of g's image where the saved output, or its shift, moves along t."""
        p, dim = self.p, self.dim
        moved = forward_jvp(self.log, p, t, dim) if self.by_shift else t
        if self.log:
            return -(p * moved) * total(g, dim)
        return moved * (g - total(p * g, dim)) - p * total(g * moved, dim)

    def image(self, g: Tensor) -> Tensor:
        """g's image: the cotangent of x."""
        if self.log:
            return g - self.p * total(g, self.dim)
        return self.p * (g - total(self.p * g, self.dim))

    def adjoint(self, v: Tensor) -> Tensor:
        """The adjoint of `image`: the cotangent of g."""
        return forward_jvp(self.log, self.p, v, self.dim)


def up(t: Tensor) -> Tensor:
    """`t` in the dtype that formulas are evaluated in."""
    return t.to(compute_dtype(t.dtype))


def zero_shift(like: Tensor, shape: torch.Size, dense: bool) -> Tensor:
    """The shift of a half-precision output: float32 zeros of `shape`; in the memory of one, where it is not `dense`."""
    if dense:
        return like.new_zeros(shape, dtype=torch.float32)
    return like.new_zeros((), dtype=torch.float32).expand(shape)
