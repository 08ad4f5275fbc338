"""flash-linear-attention, `logsigmoid`: 0 from 17 on, and digits are lost before

min(0, x) − log(1 + exp(−|x|)) rounds 1 + exp, so that small results are roundings of 1: 0.04 % off at 10, and 0 from
17 on. Triton's libdevice has `log1p`. The kernel was run in Triton's interpreter.

**Documented**: log(sigmoid(x)); torch's `F.logsigmoid` is the reference of the library's tests.

**Does it matter?** The error is a rounding of 1 for each token. Sums over many tokens of gates that are nearly open
have no right digit, and are small.
"""

from __future__ import annotations

import os

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "fla-core", "0.6.0"
KIND, SEVERITY = "less accurate", "low"


def spec(x: torch.Tensor) -> torch.Tensor:
    return -torch.log1p(torch.exp(-x))


def proof() -> Proof:
    os.environ["TRITON_INTERPRET"] = "1"
    from fla.modules.activations import ops

    x, computed, kernel = torch.tensor([0.0, 5.0, 10.0, 20.0]), torch.empty(4), ops.logsigmoid_fwd_kernel
    kernel.fn[(1,)](x, computed, 4, 4, 1.0, 4, 4, 4)  # without the tuner, which asks for a driver
    exact = [-mpmath.log1p(mpmath.exp(-value)) for value in numbers(x)]
    return Proof("fla.modules.activations.ops.logsigmoid_fwd_kernel of [0, 5, 10, 20]", computed, exact, spec, (x,))


run(__name__, LIBRARY, VERSION, proof)
