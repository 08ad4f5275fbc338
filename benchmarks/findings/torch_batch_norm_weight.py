"""`F.batch_norm`: the gradient takes the numbers behind a weight that is a column of a matrix

For an input of shape (N, C), backward reads weight, running mean and running variance as if their elements stood side
by side in memory. A weight that is the first column of a matrix gives channel 1 the gradient of the second column's
first number. The forward result is right. Inputs with further axes are right unless they are stored channels last.

**Documented**: nothing about strides; every other argument may have any.

**Does it matter?** Ensembles and hypernetworks keep the weights of several layers in one tensor, and a loop over its
columns trains on wrong gradients without a word. What is read may be any memory, so a run may also end in NaN.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "high"


def spec(cotangent: torch.Tensor, weight: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    """In evaluation mode the statistics are constants, so the derivative is a factor per channel."""
    return cotangent * (weight / torch.sqrt(variance + 1e-5))


def proof() -> Proof:
    x = torch.tensor([[0.5, -1.0], [2.0, 0.25]], requires_grad=True)
    columns = torch.tensor([[1.0, 50.0], [2.0, 60.0]])
    mean, variance, weight = torch.zeros(2), torch.ones(2), columns[:, 0]
    y = torch.nn.functional.batch_norm(x, mean, variance, weight)
    (gradient,) = torch.autograd.grad(y, x, torch.ones(2, 2))
    factors = [w / mpmath.sqrt(v + mpmath.mpf(1e-5)) for w, v in zip(numbers(weight), numbers(variance), strict=True)]
    return Proof(
        "torch.autograd.grad(F.batch_norm(x, mean, variance, columns[:, 0]), x, ones), columns = [[1, 50], [2, 60]]",
        gradient, [*factors, *factors], spec, (torch.ones(2, 2), weight.contiguous(), variance),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
