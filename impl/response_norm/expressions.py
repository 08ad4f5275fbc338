"""The derivatives of local response normalisation as differentiable torch expressions.

Letters, as in the kernels: a the input, g the cotangent of the output, t a direction, W the sum over each channel's
window, W' its adjoint, c = alpha / size, kappa = 2 beta c, s = k + c W a^2, pn = s^(-beta - n).

    out          = a p0
    J t          = t p0 - kappa a p1 W(a t)
    J' g         = g p0 - kappa a W'(g a p1)

Half-precision operands are taken to float32 on entry, and the caller rounds the result once.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ..operator.batching import one_more_dim
from ..operator.operator import Kernels, Operator
from ..operator.precision import raised
from ..operator.rules import Linear
from . import kernels_cpu, kernels_cuda


class Coefficients(NamedTuple):
    """The window size and the coefficients of a call."""

    size: int
    alpha: float
    beta: float
    k: float


class _Base(NamedTuple):
    """The quantities at a that the derivatives are made of, in a's compute dtype."""

    a: Tensor
    p0: Tensor
    p1: Tensor
    before: int
    after: int
    kappa: float

    def window(self, t: Tensor) -> Tensor:
        """W t."""
        return _window(t, self.before, self.after)

    def mirrored(self, t: Tensor) -> Tensor:
        """W' t."""
        return _window(t, self.after, self.before)


def _window(t: Tensor, before: int, after: int) -> Tensor:
    # A window of one channel is the identity, whatever the op would do.
    return window_sum(t, before, after) if before or after else t


def _base(x: Tensor, coefficients: Coefficients) -> _Base:
    size, alpha, beta, k = coefficients
    a, c = raised(x), alpha / size
    before, after = kernels_cpu.reach(size, x.shape[-3])
    # Squares never cancel: for alpha and k that are not negative, s is not smaller than any of its terms.
    s = _window(a * a, before, after) * c + k
    p0 = s.pow(-beta)
    # Where s = 0 and beta is negative, p0 / s is not finite where p1 may be, and its product with zero is zero.
    p1 = p0 / s if beta > 0 else s.pow(-beta - 1)
    return _Base(a, p0, p1, before, after, 2.0 * beta * c)


def moved_output(x: Tensor, t: Tensor, coefficients: Coefficients) -> Tensor:
    """J t."""
    at = _base(x, coefficients)
    return t * at.p0 - at.kappa * (at.a * at.p1 * at.window(at.a * t))


def images_gradient(g: Tensor, x: Tensor, coefficients: Coefficients) -> Tensor:
    """J' g."""
    if coefficients.beta == 0:  # the identity, whatever s is
        return g
    at = _base(x, coefficients)
    return g * at.p0 - at.kappa * (at.a * at.mirrored(g * at.a * at.p1))


#: The sum over the channels from `before` to `after` of each; mirrored, its own adjoint.
window_sum: Operator[Tensor, int, int, Tensor] = Operator(
    "channel_window_sum(Tensor input, int before, int after) -> Tensor",
    Kernels(kernels_cpu.window_sum, kernels_cuda.window_sum, lambda args: args.input.new_empty(args.input.shape)),
    one_more_dim,
    Linear(lambda grad, shape, before, after: window_sum(grad, after, before)),
)
