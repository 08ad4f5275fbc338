"""tinygrad, `Tensor.asin` and `Tensor.atan`: off by a fifth at 1e-6

asin is π/2 less a product of about that, whose error is absolute, and atan is taken from it: at 1e-3 the fourth digit
is wrong, and at 1e-6 the first.

**Documented**: the inverse sine and tangent, and no accuracy.

**Does it matter?** Angles of small displacements, as in poses and in geometry, have no digit that is right; beside an
angle of 1 the error is a few roundings.
"""

from __future__ import annotations

import os

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "tinygrad", "0.14.0"
KIND, SEVERITY = "wrong result", "low"


def proof() -> Proof:
    os.environ["DEV"] = "PYTHON"
    from tinygrad import Tensor

    x = torch.tensor([1e-6, 1e-3, 0.5])
    computed = torch.from_numpy(Tensor(x.tolist()).atan().numpy())
    return Proof(
        "Tensor([1e-6, 1e-3, 0.5]).atan()", computed, [mpmath.atan(value) for value in numbers(x)], torch.atan, (x,)
    )


run(__name__, LIBRARY, VERSION, proof)
