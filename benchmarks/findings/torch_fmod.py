"""`torch.fmod` and `torch.remainder`: NaN of the largest numbers

In vectors, the remainder of 3e38 divided by 0.7 is NaN, in float32 and bfloat16: the quotient overflows. Of fewer
elements than a vector has the same call gives the remainder.

**Documented**: C++'s `std::fmod`, which is exact for all finite numbers.

**Does it matter?** To few: a remainder of a number that large by a small one says nothing of what was rounded before.
But the result depends on how many elements there are.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "low"


def proof() -> Proof:
    x, y = torch.tensor([3e38, 1e38, 2.0**100, 5.0] * 16), torch.full((64,), 0.7)
    exact = [mpmath.fmod(a, b) for a, b in zip(numbers(x), numbers(y), strict=True)]
    return Proof(
        "torch.fmod of 64 numbers, 3e38, 1e38, 2^100 and 5, by 0.7", torch.fmod(x, y), exact, torch.fmod, (x, y)
    )


run(__name__, LIBRARY, VERSION, proof)
