"""`torch.max` and `torch.min` of all elements: under vmap the gradient at ties goes to one of them

Of all elements `max` shares its gradient among those that are equally large. The rule of vmap makes `max` along a dim
of it, which gives all of it to one index. So a batch by vmap has other gradients than a loop.

**Documented**: torch.vmap gives what a loop gives; torch.amax documents that over all dimensions `max` and `min`
share their gradients evenly among equal elements.

**Does it matter?** Both are subgradients, so training goes on, but per-sample gradients differ from those of a loop,
and equal inputs get unequal gradients.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "low"


def spec(x: torch.Tensor) -> torch.Tensor:
    return x * 0.0 + 0.5


def proof() -> Proof:
    x = torch.ones(1, 2)
    return Proof(
        "torch.func.grad(lambda x: torch.vmap(torch.max)(x).sum())(torch.ones(1, 2))",
        torch.func.grad(lambda x: torch.vmap(torch.max)(x).sum())(x), [mpmath.mpf(1) / 2] * 2, spec, (x,),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
