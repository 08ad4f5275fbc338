"""Paddle on the CPU, `gelu`: no digit is right in the negative tail

1 + erf and 1 + tanh cancel in the negative tail: 4 % off at −5, and −0 from −6 on, as in torch's `gelu`, whose section
is below. With erfc all digits are there.

**Documented**: 0.5 x (1 + erf(x / √2)), which is what is computed.

**Does it matter?** The error is a rounding of 1, small beside other activations.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "paddlepaddle", "3.3.1"
KIND, SEVERITY = "less accurate", "low"


def spec(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * torch.erfc(-x * 0.5**0.5)


def proof() -> Proof:
    import paddle

    x = torch.tensor([-6.0, -5.0, -3.0, 1.0])
    computed = torch.tensor(paddle.nn.functional.gelu(paddle.to_tensor(x.tolist(), place="cpu")).tolist())
    exact = [value * mpmath.erfc(-value / mpmath.sqrt(2)) / 2 for value in numbers(x)]
    return Proof("paddle.nn.functional.gelu of [-6, -5, -3, 1]", computed, exact, spec, (x,))


run(__name__, LIBRARY, VERSION, proof)
