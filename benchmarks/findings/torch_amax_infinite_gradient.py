"""`torch.amax` and other extremes: an infinite gradient is NaN at all elements that are not the largest

Reverse mode of `amax`, `amin`, `aminmax` and of the infinite norms multiplies the gradient by a mask and divides by how
many elements are equal, and 0 · ∞ is NaN. `torch.max`, along a dim or of all elements, leaves zeros there.

**Documented**: the gradient is shared by the elements that are equal to the result.

**Does it matter?** Gradients overflow in half types, and a root or logarithm at 0 has an infinite slope. One such row
then spoils all weights behind it, where it would have spoilt one.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "low"


def spec(smaller: torch.Tensor) -> torch.Tensor:
    return smaller * 0.0


def proof() -> Proof:
    x = torch.tensor([1.0, 3.0, 2.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(torch.amax(x, 0), x, torch.tensor(torch.inf, dtype=torch.float64))
    return Proof(
        "gradient of torch.amax([1, 3, 2], 0) for an infinite one, at 1 and 2",
        slope[::2], [mpmath.mpf(0)] * 2, spec, (x.detach()[::2],),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
