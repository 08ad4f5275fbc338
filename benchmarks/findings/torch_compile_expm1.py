"""`torch.compile` on CPUs: `expm1`, `elu`, `celu`, `selu` and `atanh` of small numbers lose their digits

In vectors of float32, compiled expm1 is exp(x) − 1, and atanh the logarithm of (1 + x) / (1 − x): of 1e-6 they are off
by 1.3 and 2.7 percent, and of 1e-8 they are 0. Without the compiler both are within a unit in the last place.

**Documented**: torch.compile promises the results of the same code without it; nothing of their digits.

**Does it matter?** Where a small result is divided by, or its logarithm taken: pytorch#189803 has errors of 100 so. In
the sums of a layer the error beside 1 is nothing.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "low"


def spec(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.nn.functional.elu(x), torch.atanh(y)])


def proof() -> Proof:
    x, y = (torch.tensor([sign * 1e-8, sign * 1e-6, sign * 1e-3, sign * 0.5] * 16) for sign in (-1.0, 1.0))
    exact = [*map(mpmath.expm1, numbers(x)), *map(mpmath.atanh, numbers(y))]
    call = "compiled elu of 64 numbers, -1e-8, -1e-6, -1e-3, -0.5, and atanh of 1e-8, 1e-6, 1e-3, 0.5"
    return Proof(call, torch.compile(spec)(x, y), exact, spec, (x, y))


run(__name__, LIBRARY, VERSION, proof)
