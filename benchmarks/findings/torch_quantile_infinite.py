"""`torch.quantile`: NaN where the place is an infinite element itself

The element at a place and the next one are joined by a line, also where the place is a whole number, so that the line
has no part: with a weight of 0 or between two equal infinities that is 0 · ∞ or ∞ − ∞. The largest of numbers with an
infinity is NaN by `quantile(x, 1)`, and so is the median of three numbers with two infinities.

**Documented**: between two data points a and b the result is a + (b − a) × fraction; here it is a data point.

**Does it matter?** Distances and scores have infinities for what is missing; a quantile that is among them is told to
be no number.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "medium"


def spec(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(-x[1:])


def proof() -> Proof:
    x = torch.tensor([1.0, torch.inf, torch.inf], dtype=torch.float64)
    computed = torch.exp(-torch.stack((torch.quantile(x, 0.5), torch.quantile(x, 1.0))))
    return Proof("exp(-torch.quantile([1, inf, inf], q)) for q = 0.5 and 1", computed, [mpmath.mpf(0)] * 2, spec, (x,))


run(__name__, LIBRARY, VERSION, proof)
