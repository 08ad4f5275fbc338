"""Paddle on the CPU, `elu`, `celu` and `selu`: small negative numbers lose their digits

exp(x) − 1 is computed as it stands: of −1e-8 comes 0, and at −1e-4 the fourth digit is wrong. `paddle.expm1` is there,
and right.

**Documented**: α (exp(x) − 1) for negative numbers.

**Does it matter?** Beside activations of size 1 the error is a rounding. The ratio of output to input, which is 1 near
0, is not.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "paddlepaddle", "3.3.1"
KIND, SEVERITY = "less accurate", "low"


def proof() -> Proof:
    import paddle

    x = torch.tensor([-1e-8, -1e-4, -0.01, 1.0])
    computed = torch.tensor(paddle.nn.functional.elu(paddle.to_tensor(x.tolist(), place="cpu")).tolist())
    exact = [mpmath.expm1(value) if value < 0 else value for value in numbers(x)]
    call = "paddle.nn.functional.elu of [-1e-8, -1e-4, -0.01, 1]"
    return Proof(call, computed, exact, torch.nn.functional.elu, (x,))


run(__name__, LIBRARY, VERSION, proof)
