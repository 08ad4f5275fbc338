"""Paddle on the CPU, `sqrt`: NaN of infinity in tensors of eight and more

Of eight numbers at once the root is x times an approximate 1 / sqrt(x), which is ∞ · 0 for an infinity; shorter
tensors, and what is left of long ones, get ∞. `hypot` is made of it. Other roots are up to two units in the last place
off, where IEEE's instruction is exact, so that a root depends on where in a tensor it stands.

**Documented**: the square root.

**Does it matter?** A norm or a standard deviation that has overflowed comes out as NaN, which passes through
comparisons otherwise than infinity; and equal numbers have unequal roots.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "paddlepaddle", "3.3.1"
KIND, SEVERITY = "wrong result", "medium"


def proof() -> Proof:
    import paddle

    x = torch.full((8,), torch.inf)
    computed = torch.tensor(paddle.sqrt(paddle.to_tensor(x.tolist(), place="cpu")).tolist())
    exact = [mpmath.sqrt(value) for value in numbers(x)]
    return Proof("paddle.sqrt of eight infinities", computed, exact, torch.sqrt, (x,))


run(__name__, LIBRARY, VERSION, proof)
