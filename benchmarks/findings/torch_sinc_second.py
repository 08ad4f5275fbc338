"""`torch.sinc`: the second derivative at 0 is 0 or NaN

The first derivative is a fraction that is 0/0 at 0, and `where` puts a constant 0 in its place. The derivative of
that constant is 0, which is what forward mode over either mode gives, and the derivative of the fraction, which is
multiplied by 0, is NaN, which is what reverse mode over either mode gives. Right is −π²/3.

**Documented**: sin(πx)/(πx), and 1 at 0.

**Does it matter?** Resampling and windowed filters have a tap at 0, so a Hessian or a gradient penalty of a learned
filter is NaN.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "medium"


def spec(x: torch.Tensor) -> torch.Tensor:
    return -((torch.atan(x + 1.0) * 4.0) ** 2) / 3.0


def proof() -> Proof:
    x = torch.zeros(1, dtype=torch.float64)
    slope = torch.func.grad(lambda x: torch.sinc(x).sum())
    _, forward = torch.func.jvp(slope, (x,), (torch.ones_like(x),))
    reverse = torch.func.grad(lambda x: slope(x).sum())(x)
    return Proof(
        "the derivative at 0 of torch.func.grad(lambda x: torch.sinc(x).sum()), by forward and by reverse mode",
        torch.cat((forward, reverse)), [-(mpmath.pi**2) / 3] * 2, spec, (torch.zeros(2, dtype=torch.float64),),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
