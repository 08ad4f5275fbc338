"""`torch.erf` of half types: small arguments lose their digits

With AVX2 or AVX-512, erf of bfloat16 and float16 is computed by a polynomial whose error is absolute: 2⁻²² gives
4.2e-7, which is 1.55 times the value, and 1.8e-7 gives 0, whatever the number of elements. Of float32, and by ATen's
kernels without vectors (`ATEN_CPU_CAPABILITY=default`), the same call is right.

**Documented**: the error function, and no accuracy.

**Does it matter?** Rarely: beside 1 the error is nothing. bfloat16 has the exponents of float32, so an erf of it is
expected to be 1.128 x for small x, at every size.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "less accurate", "low"


def proof() -> Proof:
    x = torch.tensor([2.0**-22, 2.0**-18, 2.0**-14, 0.5] * 16, dtype=torch.bfloat16)
    exact = [mpmath.erf(value) for value in numbers(x)]
    return Proof("torch.erf of 64 numbers of bfloat16: 2^-22, 2^-18, 2^-14, 0.5", torch.erf(x), exact, torch.erf, (x,))


run(__name__, LIBRARY, VERSION, proof)
