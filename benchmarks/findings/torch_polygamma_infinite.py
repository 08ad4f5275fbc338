"""`torch.polygamma` of order 2 and more: NaN at infinity, where it is 0

ψ⁽ⁿ⁾(x) tends to 0 as x grows, and from order 2 on infinity has NaN; order 1 has 0. At the largest finite number all
are 0.

**Documented**: the n-th derivative of digamma.

**Does it matter?** To few: an infinite parameter of a distribution has NaN in a second or third derivative.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "low"


def spec(x: torch.Tensor) -> torch.Tensor:
    return 0.0 * torch.exp(-x)


def proof() -> Proof:
    x = torch.tensor([torch.inf], dtype=torch.float64)
    return Proof("torch.polygamma(2, inf)", torch.polygamma(2, x), [mpmath.mpf(0)], spec, (x,))


run(__name__, LIBRARY, VERSION, proof)
