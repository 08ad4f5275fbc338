"""Triton's interpreter: float32 becomes bfloat16 by truncation

`x.to(tl.bfloat16)` cuts the low 16 bits off under `TRITON_INTERPRET=1`; compiled kernels round to the nearest even
number. All results are biased towards zero, by up to twice the error.

**Documented**: that operations on bfloat16 are not supported in the interpreter, and that they are to be cast to
float32; the cast itself is offered, and `to` documents rounding to nearest as its default.

**Does it matter?** For whoever tests kernels on a machine without a GPU: a right kernel fails a sharp comparison, and a
systematic error of 2⁻⁸ hides another one. No kernel on a GPU is touched.
"""

from __future__ import annotations

import os
from typing import Any

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "triton", "3.9.0"
KIND, SEVERITY = "less accurate", "low"


def _kernel() -> Any:
    import triton
    import triton.language as tl

    @triton.jit
    def cast(source: Any, target: Any, size: tl.constexpr) -> None:
        places = tl.arange(0, size)
        tl.store(target + places, tl.load(source + places).to(tl.bfloat16))

    return cast


def proof() -> Proof:
    os.environ["TRITON_INTERPRET"] = "1"
    x = torch.tensor([1.0 + 2.0**-8 + 2.0**-9, -(1.0 + 2.0**-8 + 2.0**-9), 3.0, 1.0 + 2.0**-9])
    computed = torch.zeros(4, dtype=torch.bfloat16)
    _kernel()[(1,)](x, computed, 4)
    exact = [mpmath.mpf(float(value)) for value in numbers(x)]
    call = "x.to(tl.bfloat16) in a kernel, x = ±(1 + 3/512), 3, 1 + 1/512"
    return Proof(call, computed, exact, lambda x: x.to(torch.bfloat16), (x,), "strict")


run(__name__, LIBRARY, VERSION, proof)
