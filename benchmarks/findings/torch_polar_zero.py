"""`torch.polar`: the gradient of an absolute value of 0 is 0

Reverse mode takes the direction of the number from the result, by `sgn`, which is 0 where the result is 0. The
derivative along the absolute value is cos θ + i sin θ whatever the absolute value is, and forward mode gives that. Of
an infinite absolute value the `sgn` is NaN, and so is the gradient.

**Documented**: abs · cos(angle) + abs · sin(angle) · i.

**Does it matter?** A magnitude that starts at 0, as one behind a relu may, never moves away from it: its gradient is 0.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "medium"


def spec(angle: torch.Tensor) -> torch.Tensor:
    return torch.cos(angle)


def proof() -> Proof:
    size = torch.tensor([0.0, 2.0], dtype=torch.float64, requires_grad=True)
    angle = torch.tensor([0.5, 0.5], dtype=torch.float64)
    (slope,) = torch.autograd.grad(torch.polar(size, angle).real.sum(), size)
    exact = [mpmath.cos(mpmath.mpf(0.5))] * 2
    return Proof("gradient of torch.polar([0, 2], 0.5).real in the absolute value", slope, exact, spec, (angle,))


run(__name__, LIBRARY, VERSION, proof)
