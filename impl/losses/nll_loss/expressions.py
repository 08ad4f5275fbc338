"""The form behind every loss here, and the adjoints of it, as differentiable torch expressions.

A loss of class scores y (log-probabilities) and class weights w, with smoothing s, is per position i with target t

    l_i(y, w) = -(1 - s) w_t y_it - s/C sum_c w_c y_ic,    and 0 where the target is ignored.

It is linear in y and linear in w. So its derivatives are itself and its two adjoints, and nothing else is needed at any
order. The part without smoothing is the forward op of the negative log likelihood, its adjoint in y the backward op.
Everything is evaluated, and returned, in float32 for the half types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ...operator import sums
from ...operator.torch_private import dispatch_mode_count, transforms_active
from .kernels_cpu import MEAN, NONE, class_dim, spread


def differentiated() -> bool:
    """Whether a result computed now may be differentiated; false in a plain backward pass."""
    return torch.is_grad_enabled() or transforms_active() or torch.autograd.forward_ad._current_level >= 0


class Form(NamedTuple):
    """l for one target; see the module.

    Attributes:
        forward, backward, total_weight: the ops of the negative log likelihood.
        target: (*batch) or (*batch, N, d1, ..., dk); scores have C after N.
        classes: C. ignore_index, batch_ndim: as for the ops. smoothing: s.
    """

    forward: Callable[[Tensor, Tensor, Tensor | None, int, int, int], tuple[Tensor, Tensor]]
    backward: Callable[[Tensor, Tensor, Tensor | None, int, int, int, torch.dtype], Tensor]
    total_weight: Callable[[Tensor, Tensor, int, int], Tensor]
    target: Tensor
    classes: int
    ignore_index: int
    batch_ndim: int
    smoothing: float = 0.0

    @property
    def dim(self) -> int:
        """The dim of the classes in a tensor of scores."""
        return class_dim(self.target.dim() + 1, self.batch_ndim)

    def ignored(self) -> Tensor:
        """Where the target is ignored."""
        return self.target == self.ignore_index

    def may_ignore(self) -> bool:
        """False only where the target shows that no position is ignored.

        Masking scores takes as long as a softmax, and its derivative as long again; reading the target takes no time.
        But values can be read only of plain tensors outside of transforms and traces, and on CUDA reading waits for
        the device.
        """
        target = self.target
        if type(target) is not Tensor or not target.is_cpu or transforms_active() or dispatch_mode_count():
            return True
        return bool(self.ignored().any())

    def value(self, y: Tensor, weight: Tensor | None, reduction: int) -> Tensor:
        """l, or its sum per batch index, or that over the total weight."""
        out, total = self.forward(y, self.target, weight, reduction, self.ignore_index, self.batch_ndim)
        if not self.smoothing:
            return out
        smooth = -sums.total(y if weight is None else y * self._weights(weight, y), (self.dim,))
        # An ignored position may hold an infinity or a NaN, whose product with 0 is NaN; so its loss is set
        # to 0 instead.
        smooth = smooth.masked_fill(self.ignored(), 0.0)
        if reduction != NONE:
            smooth = sums.total(smooth, range(self.batch_ndim, smooth.dim()))
        if reduction == MEAN:
            smooth = smooth / self.total(weight, total)
        # Without classes all positions are ignored and the term is 0; the divisor of 1 avoids Python's
        # ZeroDivisionError.
        return out * (1.0 - self.smoothing) + smooth * (self.smoothing / max(self.classes, 1))

    def total(self, weight: Tensor | None, output: Tensor) -> Tensor:
        """The total weight, as a function of the weight alone; its value is `output`, which a loss returned.

        `output` is an output of the loss, and so on the graph of all the loss has read, the scores among it. Its
        derivative by the scores is 0; but behind a quotient by a total weight of 0 the chain rule makes 0 times
        infinity of that, NaN. So `output` serves, detached, where nothing is differentiated. Elsewhere the total is
        computed again, from the weight.
        """
        if weight is None or not differentiated():
            return output.detach()
        return self.of_weight(weight)

    def of_weight(self, weight: Tensor) -> Tensor:
        """The total weight, computed from the weight."""
        return self.total_weight(weight, self.target, self.ignore_index, self.batch_ndim)

    def to_scores(self, g: Tensor, weight: Tensor | None) -> Tensor:
        """The adjoint of l in y: cotangents of l, one per position or one per batch index, to the scores'."""
        hit = self.backward(g, self.target, weight, self.classes, self.ignore_index, self.batch_ndim, g.dtype)
        if not self.smoothing:
            return hit
        every = self._masked(g, hit) * (self.smoothing / max(self.classes, 1))
        every = every if weight is None else every * self._weights(weight, hit)
        return hit * (1.0 - self.smoothing) - every

    def to_weight(self, g: Tensor, y: Tensor) -> Tensor:
        """The adjoint of l in w, (*batch, C): cotangents of l to the weight's."""
        # l is linear in w. So its derivative by w_c is the loss with weights of one, summed over the
        # positions whose target is c.
        loss = self.forward(y, self.target, None, NONE, self.ignore_index, self.batch_ndim)[0]
        out = self.at_targets(self.at_positions(g) * loss)
        if not self.smoothing:
            return out
        every = self._over_positions(self._masked(g, y) * y)
        return out * (1.0 - self.smoothing) - every * (self.smoothing / max(self.classes, 1))

    def at_targets(self, g: Tensor) -> Tensor:
        """The sum of g over the positions that have a class as target, (*batch, C): the adjoint of `weight[target]`."""
        # With weights of one the backward op writes -g at every target that is not ignored. Summed over the
        # positions and negated, that is g by class.
        placed: Tensor = self.backward(g, self.target, None, self.classes, self.ignore_index, self.batch_ndim, g.dtype)
        return -self._over_positions(placed)

    def over_classes(self, g: Tensor) -> Tensor:
        """g, one per position or one per batch index, viewed to broadcast against scores."""
        return self.at_positions(g).unsqueeze(self.dim)

    def _masked(self, g: Tensor, scores: Tensor) -> Tensor:
        """g, 0 at positions that are ignored, to broadcast to scores."""
        return sums.spread(self.at_positions(g).masked_fill(self.ignored(), 0.0).unsqueeze(self.dim), scores.shape)

    def at_positions(self, g: Tensor) -> Tensor:
        """g, one per position or one per batch index, to broadcast to every position."""
        return sums.spread(spread(g, self.target), self.target.shape)

    def _weights(self, weight: Tensor, scores: Tensor) -> Tensor:
        """A weight, to broadcast to scores."""
        # Between the batch and the classes is N, unless there is one row; after the classes are the positions.
        before, after = self.dim - self.batch_ndim, self.target.dim() - self.dim
        weight = weight.reshape(*weight.shape[:-1], *(1,) * before, weight.shape[-1], *(1,) * after)
        return sums.spread(weight, scores.shape)

    def _over_positions(self, t: Tensor) -> Tensor:
        """The sum of t, shaped as scores, to (*batch, C)."""
        dims = tuple(d for d in range(self.batch_ndim, t.dim()) if d != self.dim)
        return sums.total(t, dims)


def masked_scores(x: Tensor, form: Form) -> Tensor:
    """x with zeros at ignored positions. Probabilities are finite there, whatever x holds, and 0 times them is 0."""
    return x.masked_fill(form.ignored().unsqueeze(form.dim), 0.0)
