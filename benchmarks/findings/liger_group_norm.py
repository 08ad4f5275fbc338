"""Liger, `LigerGroupNormFunction`: wrong in the first digit at a mean of 1000, NaN at 4000

The variance is E[x²] − E[x]² in float32 (the comment above it speaks of an online algorithm), and nothing keeps it from
becoming negative.

**Documented**: the formula of torch's group norm.

**Does it matter?** Yes: the output is 2.7 in place of 1.7 at 1000, 300 in place of 1.7 at 3000, NaN at 4000.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from proof import Proof, around, normalisation, normalised, run

LIBRARY, VERSION = "liger-kernel", "0.8.5"
KIND, SEVERITY = "wrong result", "high"


class _Scalar(float):
    """What a kernel sees as `eps`: Triton's interpreter passes a Python number, which has no `to`."""

    def to(self, _dtype: Any) -> _Scalar:
        return self


def proof() -> Proof:
    os.environ["TRITON_INTERPRET"] = "1"
    import triton.language as tl
    from liger_kernel.ops import group_norm

    # libdevice's function does nothing in the interpreter; Triton's own is looked up when the kernel calls it.
    group_norm.rsqrt = lambda value: tl.rsqrt(value)
    x = around(4000.0)
    operands = (x.reshape(1, 2, 4), torch.ones(2), torch.zeros(2))
    computed = group_norm.LigerGroupNormFunction.apply(*operands, 2, 1, _Scalar(1e-5))
    call = "LigerGroupNormFunction.apply of 8 numbers around 4000, one group, eps 1e-5"
    return Proof(call, computed.reshape(-1), normalised(x, "1e-5"), normalisation(1e-5), (x,))


run(__name__, LIBRARY, VERSION, proof)
