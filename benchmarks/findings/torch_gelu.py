"""`F.gelu`: the negative tail has no right digit

x·(1 + erf(x/√2))/2 cancels for negative x: 17 % of the value is missing at −5, and from −5.5 on the result may be 0.
How much is missing depends on how many elements there are: a single −5 is 4 % off.

**Documented**: x·Φ(x), and no accuracy.

**Does it matter?** Rarely: the error is 2.4e-7 where activations are of size 1, a few roundings of 1. This is why
opassay allows `F.gelu` an absolute error of erf and accepts these numbers for it; the spec here has erfc, and no such
allowance. Whoever divides by the value sees it.
"""

from __future__ import annotations

import mpmath
import numpy as np
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "less accurate", "low"


def proof() -> Proof:
    from opassay.reference.array import erfc

    x = torch.tensor([-3.0, -5.0, -6.0])
    exact = [value * mpmath.erfc(-value / mpmath.sqrt(2)) / 2 for value in numbers(x)]
    return Proof(
        "F.gelu(torch.tensor([-3.0, -5.0, -6.0]))",
        torch.nn.functional.gelu(x), exact, lambda x: 0.5 * x * erfc(-x / np.sqrt(2.0)), (x,),
        own=("F.gelu", torch.nn.functional.gelu),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
