"""`torch.cumprod`: reverse over forward mode is NaN at a zero

The rule for forward mode divides the tangent by the factors and multiplies by the products again; what becomes of a
factor of 0 is replaced afterwards. Reverse mode differentiates what was replaced as well, and 0 · ∞ is NaN, for all
elements. Reverse mode twice is right.

**Documented**: the products of the first elements, one after the other; nothing excepts 0.

**Does it matter?** Transmittance in volume rendering, and survival probabilities, are such products, and a factor of
0 is a wall or a death; Hessian-vector products of them are NaN.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "medium"


def spec(x: torch.Tensor) -> torch.Tensor:
    """The gradient of x₁ x₂ + x₀ x₂ + x₀ x₁."""
    return x.sum() - x


def proof() -> Proof:
    x = torch.tensor([2.0, 0.0, 5.0], dtype=torch.float64)

    def slope(x: torch.Tensor) -> torch.Tensor:
        _, tangent = torch.func.jvp(lambda x: torch.cumprod(x, 0)[2], (x,), (torch.ones_like(x),))
        return tangent

    whole = mpmath.fsum(numbers(x))
    return Proof(
        "torch.func.grad(lambda x: torch.func.jvp(lambda x: torch.cumprod(x, 0)[2], (x,), (t,))[1])(x), x = [2, 0, 5]",
        torch.func.grad(slope)(x), [whole - value for value in numbers(x)], spec, (x,),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
