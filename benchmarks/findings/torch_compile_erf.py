"""`torch.compile` on CPUs: `torch.erf` of small float32 numbers is 0

In vectors, compiled erf is 1 minus a polynomial times exp(−x²), whose error is absolute: erf(1e-7) is 0 and erf(1e-5)
is off by 2 percent. Above a half it is off by up to 10 halves of a unit in the last place. Without the compiler it is
within 1.1 halves everywhere.

**Documented**: torch.compile promises the results of the same code without it; nothing of their digits.

**Does it matter?** A quotient erf(d) / d of a small d loses all of its digits. Beside 1 the error is nothing.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "low"


def proof() -> Proof:
    x = torch.tensor([1e-7, 1e-5, 1e-3, 0.5] * 16)
    compiled = torch.compile(torch.erf)
    call = "torch.compile(torch.erf) of 64 numbers, 1e-7, 1e-5, 1e-3, 0.5"
    return Proof(call, compiled(x), [mpmath.erf(value) for value in numbers(x)], torch.erf, (x,))


run(__name__, LIBRARY, VERSION, proof)
