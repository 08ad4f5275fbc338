"""Paddle on the CPU, `softshrink`: NaN of infinity

Both branches are multiplied by whether they apply and added, so that an infinity is multiplied by 0.

**Documented**: x − λ where x > λ, x + λ where x < −λ, and 0 otherwise.

**Does it matter?** Only where an activation is infinite already.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "paddlepaddle", "3.3.1"
KIND, SEVERITY = "wrong result", "low"


def proof() -> Proof:
    import paddle

    x = torch.tensor([torch.inf, -torch.inf, 2.0])
    computed = torch.tensor(paddle.nn.functional.softshrink(paddle.to_tensor(x.tolist(), place="cpu")).tolist())
    exact = [value - mpmath.sign(value) / 2 for value in numbers(x)]
    call = "paddle.nn.functional.softshrink of [inf, -inf, 2]"
    return Proof(call, computed, exact, torch.nn.functional.softshrink, (x,))


run(__name__, LIBRARY, VERSION, proof)
