"""`torch.fmax` and `torch.fmin` at ties: forward and reverse mode disagree

Where both operands are equal reverse mode gives all of the slope to the first and forward mode all of it to the second.
2.15.0 shares it in both, as `maximum` and `minimum` do.

**Documented**: nothing of ties, but a derivative is one, by whichever mode it is computed.

**Does it matter?** A Jacobian by columns is another one than by rows, and a check of one mode by the other fails.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "low"


def spec(reverse: torch.Tensor) -> torch.Tensor:
    return reverse * 1.0


def proof() -> Proof:
    x = torch.ones(1, dtype=torch.float64)
    reverse = torch.func.grad(lambda x: torch.fmax(x, torch.ones_like(x)).sum())(x)
    _, forward = torch.func.jvp(lambda x: torch.fmax(x, torch.ones_like(x)), (x,), (x,))
    return Proof(
        "derivative of torch.fmax(x, 1) at 1 in x, by forward mode, against reverse mode",
        forward, [mpmath.mpf(reverse.item())], spec, (reverse,),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
