"""`torch.native_group_norm`: the mean and the reciprocal deviation had no gradient

The operation returns the result, the mean and the reciprocal deviation, all as differentiable tensors, but its
backward ignored the gradients of the last two: without one of the result it gave none, which is counted as 0. Forward
mode has them. 2.15.0 has them in reverse mode, too.

**Documented**: nothing; the outputs say that they require a gradient.

**Does it matter?** Whoever calls the operation for its statistics, as decompositions and exported graphs do, got 0
for their gradients; `F.group_norm` returns none of them.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "low"


def spec(x: torch.Tensor) -> torch.Tensor:
    return (x * 0.0 + 1.0) / 3.0


def proof() -> Proof:
    x = torch.tensor([[[0.0, 1.0, 5.0]]])
    slope = torch.func.grad(lambda x: torch.native_group_norm(x, None, None, 1, 1, 3, 1, 1.0)[1].sum())(x)
    return Proof(
        "torch.func.grad(lambda x: torch.native_group_norm(x, None, None, 1, 1, 3, 1, 1.0)[1].sum())(x)",
        slope, [mpmath.mpf(1) / 3] * 3, spec, (x,),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
