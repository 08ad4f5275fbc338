"""Paddle, `gaussian_nll_loss`: the variance gets no gradient

The variance is clipped from below under `no_grad`, and the clipped copy, which has no history, takes its place. The
loss is right; the gradient of the mean, too; the variance gets none, in silence, whether it comes from the same
network or is a parameter.

**Documented**: the loss of a mean and a variance, for "heteroscedastic" models, which are those that predict both.

**Does it matter?** A network that predicts its uncertainty, for which the loss is made, never learns it: weights that
lead to the variance alone stay as they were initialised.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "paddlepaddle", "3.3.1"
KIND, SEVERITY = "wrong result", "high"


def spec(variance: torch.Tensor) -> torch.Tensor:
    return 0.25 * (1 - 1 / variance) / variance


def proof() -> Proof:
    import paddle

    variance = torch.tensor([2.0, 0.5])
    leaf = paddle.to_tensor(variance.tolist(), stop_gradient=False)
    mean = paddle.ones([2])
    mean.stop_gradient = False
    paddle.nn.functional.gaussian_nll_loss(mean, paddle.zeros([2]), leaf).backward()
    computed = torch.zeros(2) if leaf.grad is None else torch.tensor(leaf.grad.tolist())
    exact = [(1 - 1 / value) / value / 4 for value in numbers(variance)]
    call = "the gradient of the variances [2, 0.5] of paddle.nn.functional.gaussian_nll_loss, None"
    return Proof(call, computed, [mpmath.mpf(value) for value in exact], spec, (variance,))


run(__name__, LIBRARY, VERSION, proof)
