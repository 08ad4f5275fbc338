"""`F.prelu`: at 0 forward mode has another slope than reverse mode

At 0 forward mode takes the slope from the right, 1, and reverse mode that from the left, the weight. `F.leaky_relu`,
the same function with a number for the weight, has the weight in both modes.

**Documented**: max(0, x) + weight · min(0, x); nothing on 0.

**Does it matter?** Either is a subgradient, but a Jacobian by `jacfwd` is another one than by `jacrev`, and zeros are
common behind a relu or in padding.
"""

from __future__ import annotations

import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "low"


def spec(weight: torch.Tensor) -> torch.Tensor:
    return weight * 1.0


def proof() -> Proof:
    x, weight = torch.zeros(1), torch.tensor([0.25])
    _, slope = torch.func.jvp(lambda x: torch.nn.functional.prelu(x, weight), (x,), (torch.ones(1),))
    return Proof(
        "torch.func.jvp(lambda x: F.prelu(x, weight), ([0],), ([1],))[1], of which reverse mode gives the weight",
        slope, numbers(weight), spec, (weight,),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
