"""Paddle on the CPU, `softplus`, `log_sigmoid` and `mish`: 0 from 17 on

log(1 + exp(x)) is computed as it stands: of −20 comes 0 where 2.06e-9 is right, and 0.04 % are wrong at −10.
`log_sigmoid` of 20 is the same, and `mish` is made of it.

**Documented**: the formula. On GPUs it was changed to `log1p`.

**Does it matter?** For softplus as a positive parameter (a variance, a rate), yes: it is not positive, and its
logarithm is −∞. As a loss, hardly.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "paddlepaddle", "3.3.1"
KIND, SEVERITY = "wrong result", "medium"


def proof() -> Proof:
    import paddle

    x = torch.tensor([-20.0, -10.0, 1.0])
    computed = torch.tensor(paddle.nn.functional.softplus(paddle.to_tensor(x.tolist(), place="cpu")).tolist())
    exact = [mpmath.log1p(mpmath.exp(value)) for value in numbers(x)]
    call = "paddle.nn.functional.softplus of [-20, -10, 1]"
    return Proof(call, computed, exact, torch.nn.functional.softplus, (x,))


run(__name__, LIBRARY, VERSION, proof)
