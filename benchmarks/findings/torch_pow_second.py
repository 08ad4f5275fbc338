"""`torch.pow` with a tensor as exponent: second derivatives at base 0 are NaN

The derivative by the exponent is result · log(base), and `where` hides what it is at base 0. Reverse mode over
forward mode differentiates the hidden branch, and 0 · ∞ is NaN, also where the exponent has no tangent. So do
`float_power`, `0 ** x`, and the Hessian in both operands by reverse mode twice.

**Documented**: base to the power of the exponent; nothing excepts 0, where the first derivatives are right.

**Does it matter?** A Hessian of polynomials, of norms and of physical laws with learned exponents is NaN at every 0
of the data, by `hessian` and by gradient penalties.
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
    x, two = torch.zeros(1, dtype=torch.float64), torch.full((1,), 2.0, dtype=torch.float64)

    def slope(x: torch.Tensor) -> torch.Tensor:
        _, tangent = torch.func.jvp(lambda x: torch.pow(x, two), (x,), (torch.ones_like(x),))
        return tangent.sum()

    return Proof(
        "torch.func.grad(lambda x: torch.func.jvp(lambda x: torch.pow(x, two), (x,), (one,))[1].sum())(x), x = [0]",
        torch.func.grad(slope)(x), [mpmath.mpf(2)], spec, (x,),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
