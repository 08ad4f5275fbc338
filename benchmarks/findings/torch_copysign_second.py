"""`torch.copysign`: the second derivative at 0 is NaN

The derivative is taken as result / self, and replaced by 0 where self is 0. Reverse mode over either mode
differentiates the quotient as well, and 0 · ∞ is NaN. `torch.abs`, which is the same function for a positive sign,
has 0. For the same reason the gradient of an infinite number is NaN, ∞ / ∞, where `abs` has the sign.

**Documented**: the magnitude of the one operand with the sign of the other; its derivative at 0 is 0, as that of
`abs`.

**Does it matter?** A gradient penalty or a Hessian of anything that restores signs by `copysign` is NaN where a
number is 0, and numbers behind a relu often are.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "medium"


def spec(x: torch.Tensor) -> torch.Tensor:
    return x * 0.0 + 2.0


def proof() -> Proof:
    x, one = torch.tensor([0.0, 2.0], dtype=torch.float64), torch.ones((), dtype=torch.float64)
    slope = torch.func.grad(lambda x: (torch.copysign(x, one) + x**2).sum())
    return Proof(
        "the gradient of the sum of torch.func.grad(lambda x: (torch.copysign(x, one) + x**2).sum()), x = [0, 2]",
        torch.func.grad(lambda x: slope(x).sum())(x), [mpmath.mpf(2)] * 2, spec, (x,),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
