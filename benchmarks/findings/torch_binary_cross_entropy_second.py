"""`F.binary_cross_entropy`: the second derivative has 1e-12 in its divisor

The second derivative of -t log x - (1 - t) log(1 - x) is t / x² + (1 - t) / (1 - x)². torch adds 1e-12 to x and to
1 - x before it divides, in every dtype. In float64 that is 1e-11 of the result in the middle of the domain, and more
than half of it at 1e-12, where a probability of float64 has all digits.

**Documented**: gradients of gradients are those of the formula; only the logarithms are said to be clamped, at -100.

**Does it matter?** `gradgradcheck` passes, because it allows more. Newton steps and curvature of small probabilities in
float64 are off without a word; in float32 too, from 1e-6 on.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from proof import Proof, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "less accurate", "low"


def spec(x: torch.Tensor) -> torch.Tensor:
    return 1 / (x * x)


def proof() -> Proof:
    x = torch.tensor([0.25, 2.0**-20, 2.0**-40], dtype=torch.float64, requires_grad=True)
    loss = F.binary_cross_entropy(x, torch.ones_like(x), reduction="sum")
    (slope,) = torch.autograd.grad(loss, x, create_graph=True)
    (second,) = torch.autograd.grad(slope.sum(), x)
    exact = [2**4, 2**40, 2**80]
    return Proof(
        "the second derivative of F.binary_cross_entropy(x, 1) at 2^-2, 2^-20 and 2^-40 in float64",
        second, exact, spec, (x.detach(),),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
