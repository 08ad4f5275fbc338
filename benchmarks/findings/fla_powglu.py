"""flash-linear-attention, `powglu`: NaN of an infinite gate, for which the formula tends to 1

x to the power m / (√x + 1) is computed as the exponential of the power times log x, which is 0 · ∞ for an infinite x.
The power tends to 1, and torch's `pow` has 1 there. SwiGLU, which it replaces, gives ∞.

**Documented**: the formula; the paper names bounded growth as its purpose.

**Does it matter?** Only where an activation has overflowed already, as it may in float16 or bfloat16: this unit would
keep the model going, and makes NaN of it.
"""

from __future__ import annotations

import os

import mpmath
import torch
from proof import Proof, run

LIBRARY, VERSION = "fla-core", "0.6.0"
KIND, SEVERITY = "wrong result", "low"


def spec(x: torch.Tensor) -> torch.Tensor:
    return torch.pow(x, 3 / (torch.sqrt(x) + 1)) * torch.sigmoid(x)


def proof() -> Proof:
    os.environ["TRITON_INTERPRET"] = "1"
    from fla.modules.activations.ops import powglu_fwd_kernel

    x, computed = torch.tensor([1.0, torch.inf]), torch.empty(2)
    powglu_fwd_kernel.fn[(1,)](x, torch.ones(2), computed, 2, 2, 2, 3.0, 2, 2, 2)  # without the tuner
    exact = [1 / (1 + mpmath.exp(-1)), mpmath.mpf(1)]  # the limit
    return Proof("fla.modules.activations.ops.powglu_fwd_kernel of [1, inf] and 1", computed, exact, spec, (x,))


run(__name__, LIBRARY, VERSION, proof)
