"""`torch.add` of complex tensors: an infinite second operand gives NaN, in gradients too

The second operand is multiplied by `alpha`, also where that is 1, as a complex number: (∞ + 0i)(1 + 0i) has the
imaginary part ∞ · 0 + 0 · 1, which is NaN. a + b is right where b + a is not. Autograd adds up gradients in this way,
so that the gradient of `torch.complex` and `torch.view_as_complex` has a NaN in the imaginary part for an infinite
one in the real part.

**Documented**: input + alpha × other, and addition of complex numbers goes part by part.

**Does it matter?** One infinite gradient or value makes a NaN of a number beside it that is right.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "low"


def spec(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a + b


def proof() -> Proof:
    parts = torch.tensor([0.0, 3.0], dtype=torch.float64), torch.tensor([torch.inf, 0.0], dtype=torch.float64)
    total = torch.view_as_complex(parts[0]) + torch.view_as_complex(parts[1])
    return Proof(
        "real and imaginary part of torch.add(0 + 3i, inf + 0i)", torch.view_as_real(total),
        [mpmath.inf, mpmath.mpf(3)], spec, parts,
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
