"""`torch.max` and `torch.min` of all elements: forward mode is NaN where another tangent is infinite

The rule for forward mode multiplies all tangents by a mask and adds them up, and 0 · ∞ is NaN. So the tangent of an
element that is not chosen spoils the result. `torch.amax`, and reverse mode, are right.

**Documented**: the largest element; the derivative is that of the element.

**Does it matter?** Infinite tangents come from roots and logarithms at 0, and taking the largest element is a way to
leave those out.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "low"


def spec(tangent: torch.Tensor) -> torch.Tensor:
    return tangent * 1.0


def proof() -> Proof:
    x, tangent = torch.tensor([2.0, 1.0]), torch.tensor([1.0, torch.inf])
    _, slope = torch.func.jvp(torch.max, (x,), (tangent,))
    return Proof(
        "torch.func.jvp(torch.max, ([2, 1],), ([1, inf],))[1]",
        slope.reshape(1), [mpmath.mpf(1)], spec, (tangent[:1],),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
