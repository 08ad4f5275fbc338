"""`torch.select_scatter` under vmap: the gradient of the source is multiplied by the size of the dim

Under vmap the operation becomes a scatter in which each element of the source is written as often as the dim is long,
to one place. The value is right, but every one of these copies gets the gradient of the place, and they are added up.
With a dim of 4 the gradient is 4 times too large. Without vmap, and for `slice_scatter` and `diagonal_scatter`, it is
right.

**Documented**: torch.vmap gives what a loop over the slices gives.

**Does it matter?** Ensembles and batched simulations that write a row or a column in place of another one train on
gradients of the wrong size, and nothing is said.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "high"


def spec(source: torch.Tensor) -> torch.Tensor:
    return source * 0.0 + 1.0


def proof() -> Proof:
    x, source = torch.zeros(2, 3, 4), torch.ones(2, 3)

    def total(source: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda x, s: torch.select_scatter(x, s, 1, 2))(x, source).sum()

    return Proof(
        "torch.func.grad(lambda s: torch.vmap(lambda x, s: torch.select_scatter(x, s, 1, 2))(x, s).sum())(s)",
        torch.func.grad(total)(source), [mpmath.mpf(1)] * 6, spec, (source,),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
