"""`torch.logit` with `eps`: the second derivative is NaN at 0 and 1, where the function is constant

With `eps` the argument is clamped to [eps, 1 - eps]. At 0 and 1 the result is constant, its first derivative is 0, and
so is the second. Reverse mode over the first derivative multiplies that 0 by the derivative of 1 / (x (1 - x)), which
is infinite there.

**Documented**: `torch.logit`: "When eps is not None, input is clamped to [eps, 1 - eps]."

**Does it matter?** Probabilities of exactly 0 and 1 are why one asks for the clamp. One of them makes a gradient
penalty or a Hessian of all parameters NaN.
"""

from __future__ import annotations

import torch
from proof import Proof, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "medium"


def spec(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(x) * x


def proof() -> Proof:
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    (slope,) = torch.autograd.grad(torch.logit(x, eps=0.25).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(slope.sum(), x)
    return Proof("the second derivative of torch.logit(x, eps=0.25) at 0 and 1", second, [0, 0], spec, (x.detach(),))


run(__name__, LIBRARY, VERSION, proof)
