"""`F.gelu` of float32 on CPUs: NaN of infinity, and infinite from 1.7e38 on

torch hands float32 tensors to oneDNN, which makes NaN of infinity, and infinity of a number whose double overflows.
torch's own kernel, which runs in float64, with `approximate="tanh"` and without oneDNN, is right at the same numbers.

**Documented**: x Φ(x), which is x for all numbers above 6 in this format.

**Does it matter?** To few: an activation that large is lost anyway. But whether oneDNN is there decides what it is.
"""

from __future__ import annotations

import mpmath
import torch
import torch.nn.functional as F
from proof import Proof, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "low"


def spec(x: torch.Tensor) -> torch.Tensor:
    return x * 1.0  # Φ(x) is 1 but for 1e-300


def proof() -> Proof:
    x = torch.tensor([torch.inf, 3e38, 100.0, 50.0] * 8)
    exact = [mpmath.mpf(float(value)) for value in x]
    return Proof("F.gelu of 32 numbers, inf, 3e38, 100 and 50", F.gelu(x), exact, spec, (x,))


run(__name__, LIBRARY, VERSION, proof)
