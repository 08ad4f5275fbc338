"""`F.hardsigmoid` in float64: the slope is 1/6 rounded to float32

The kernel of the gradient multiplies by a constant that is written as a quotient of float32 numbers, in all dtypes.
So the gradient of float64 has eight right digits. The value divides by 6, and is right.

**Documented**: relu6(x + 3) / 6.

**Does it matter?** Nobody trains hard sigmoids in float64; `gradcheck` does not see it, as it allows for more. A
comparison of two programs in float64 stops at the eighth digit.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "less accurate", "low"


def spec(x: torch.Tensor) -> torch.Tensor:
    return (x * 0.0 + 1.0) / 6.0


def proof() -> Proof:
    x = torch.tensor([0.25, -1.0, 2.0], dtype=torch.float64)
    slope = torch.func.grad(lambda x: torch.nn.functional.hardsigmoid(x).sum())(x)
    return Proof(
        "torch.func.grad(lambda x: F.hardsigmoid(x).sum())(x), x = [0.25, -1, 2] in float64",
        slope, [mpmath.mpf(1) / 6] * 3, spec, (x,),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
