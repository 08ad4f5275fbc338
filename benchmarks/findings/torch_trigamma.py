"""`torch.polygamma(1, x)` in float64 has nine digits, and so has the gradient of `digamma`

The asymptotic series of trigamma ends too early for a float64 number: six steps of the recurrence bring x to 6.5 or
more, where the first term that is left out is up to 5e-10 of the result. Orders from 2 on are right.

**Documented**: the derivative of digamma; torch promises no digits.

**Does it matter?** Fits of gamma, beta and Dirichlet distributions by Newton's method use it, in float64 on purpose,
and their last steps get no closer.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "less accurate", "medium"


def spec(x: torch.Tensor) -> torch.Tensor:
    return torch.special.polygamma(1, x)


def proof() -> Proof:
    x = torch.tensor([0.5, 1.0, 1.2, 3.0, 20.0], dtype=torch.float64)
    exact = [mpmath.polygamma(1, mpmath.mpf(number)) for number in x.tolist()]
    return Proof("torch.polygamma(1, [0.5, 1, 1.2, 3, 20])", torch.polygamma(1, x), exact, spec, (x,))


run(__name__, LIBRARY, VERSION, proof)
