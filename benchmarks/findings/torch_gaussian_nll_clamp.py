"""`F.gaussian_nll_loss`: below `eps` reverse mode has a gradient of −1e11, and forward mode 0

A variance below `eps` is raised to it in place, where gradients are off. Reverse mode does not see the write, and
gives the gradient as if the variance were a free number of that size; forward mode sees it, and gives 0, as the value
says. Which of the two is meant is documented nowhere.

**Documented**: `eps` is a floor of the variance, as the page of the module says (that of the function says that it is
added); nothing on gradients.

**Does it matter?** With the default `eps` of 1e-6 a predicted variance of 0 gets a gradient of half of 1e12 times the
squared error, which no step survives; a check of one mode by the other fails.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "low"


def spec(variance: torch.Tensor) -> torch.Tensor:
    return variance * 0.0


def proof() -> Proof:
    variance, x, target = torch.tensor([1e-8]), torch.tensor([1.0]), torch.tensor([0.5])
    loss = torch.nn.functional.gaussian_nll_loss
    return Proof(
        "torch.func.grad(lambda variance: F.gaussian_nll_loss([1], [0.5], variance))([1e-8])",
        torch.func.grad(lambda variance: loss(x, target, variance))(variance), [mpmath.mpf(0)], spec, (variance,),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
