"""`torch.maximum`, `minimum`, `fmax` and `fmin`: a large tangent of the other operand wipes out that of the chosen one

The rule for forward mode was t + 1 · (s − t), with s the tangent of the operand that is chosen. Beside a t that is
larger by 2^53, or infinite, s is lost. 2.15.0 selects.

**Documented**: the larger of two numbers; the derivative is that of the number.

**Does it matter?** Tangents of very unequal size meet where a saturated branch is compared with one that is not; by
hand it is rarely seen.
"""

from __future__ import annotations

import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "low"


def spec(tangent: torch.Tensor) -> torch.Tensor:
    return tangent * 1.0


def proof() -> Proof:
    x, y, tangent = torch.tensor([3.0]), torch.tensor([2.0]), torch.tensor([1e-20])
    _, slope = torch.func.jvp(torch.maximum, (x, y), (tangent, torch.ones(1)))
    return Proof(
        "torch.func.jvp(torch.maximum, ([3], [2]), ([1e-20], [1]))[1]", slope, numbers(tangent), spec, (tangent,),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
