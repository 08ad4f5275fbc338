"""Derivatives of softmax and log-softmax as differentiable torch expressions; higher orders follow from autograd.

Letters: p the probabilities along `dim`, z = log p, <t> the sum of t along `dim` with the dim kept, g the cotangent of
the forward output. The first-order maps, from the definition p = exp(x) / <exp(x)>, are

    softmax      dp = p (dx - <p dx>),  which is its own adjoint
    log_softmax  dz = dx - <p dx>,      with the adjoint g - p <g>

Half-precision operands are taken to float32 on entry and each result is rounded once, by the caller.

A half-precision output is saved as it was rounded. It comes with its `shift`: zeros in float32 that stand for x minus
its own value, so that the output is a function of `shift`, and the higher derivatives pass through float32 alone. All
of its elements share the memory of one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..operator import sums
from ..operator.precision import raised


def total(t: Tensor, dim: int) -> Tensor:
    """<t>: the sum along `dim`, with the dim kept (a tensor of no dims is its own sum), to broadcast to t again."""
    return sums.everywhere(t, (dim,) if t.dim() else ())


def moved_output(log: bool, p: Tensor, t: Tensor, dim: int) -> Tensor:
    """The tangent of (log-)softmax along t, for probabilities p."""
    centred = t - total(p * t, dim)
    return centred if log else p * centred


def softmax_gradient(log: bool, g: Tensor, output: Tensor, shift: Tensor | None, dim: int) -> Tensor:
    """The cotangent of x, as a function of g and of the output, or of its shift where there is one.

    Args:
        log: whether of log-softmax.
        g: the cotangent of the output, in the dtype of formulas.
        output: of the forward op, as it was rounded.
        shift: where there is one it moves, and the probabilities move as those of x do.
        dim: of the sums.
    """
    wide = raised(output)
    if shift is None:
        p = wide.exp() if log else wide
    else:
        # The output is a constant here and all dependence on x is the shift's. Rounded, its probabilities
        # do not add up to 1; divided by their sum they do, and have the derivatives of a softmax.
        weights = (wide.detach() + shift).exp() if log else wide.detach() * shift.exp()
        p = weights / total(weights, dim)
    return g - p * total(g, dim) if log else p * (g - total(p * g, dim))


def zero_shift(like: Tensor) -> Tensor:
    """The shift of a half-precision output: float32 zeros of the shape of a tensor, in the memory of one element."""
    # Zeros of the input's size would cost as much as the float32 copy that the rounded output saves.
    return like.new_zeros((), dtype=torch.float32).expand(like.shape)
