"""`torch.scatter_reduce` with "prod": the derivative by forward mode is zero

The rule for forward mode knows sums, means, largest and smallest elements. For a product it returns no tangent, which
counts as zero, where an error should say that there is no rule. Reverse mode is right.

**Documented**: torch.func.jvp of any differentiable operation; torch's own tests expect the forward mode of this
reduction to fail, and no user sees that.

**Does it matter?** Jacobians by `jacfwd` and directional derivatives through products over groups are 0 without a
word.
"""

from __future__ import annotations

import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "high"


def spec(x: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """The derivative of (x₀ s₀ s₁, x₁ s₂) where every operand grows by one."""
    return torch.stack((x[0] * source[0] + x[0] * source[1] + source[0] * source[1], x[1] + source[2]))


def proof() -> Proof:
    x, source, place = torch.tensor([2.0, 3.0]), torch.tensor([4.0, 5.0, 7.0]), torch.tensor([0, 0, 1])

    def product(x: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return torch.scatter_reduce(x, 0, place, source, "prod")

    _, slope = torch.func.jvp(product, (x, source), (torch.ones(2), torch.ones(3)))
    (a, b), (c, d, e) = numbers(x), numbers(source)
    return Proof(
        "torch.func.jvp(lambda x, s: torch.scatter_reduce(x, 0, place, s, 'prod'), (x, s), ones)[1]",
        slope, [a * c + a * d + c * d, b + e], spec, (x, source),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
