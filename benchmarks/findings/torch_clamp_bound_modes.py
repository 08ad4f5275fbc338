"""`torch.clamp` with a tensor as limit: at the limit forward and reverse mode disagreed

At a number that equals its bound forward mode took the tangent of the bound, and reverse mode gave all of the
gradient to the number. In 2.15.0 both share it, as the convention for functions of several operands says.

**Documented**: notes/autograd: of a function with several subgradients the one of the smallest norm is taken; between
a number and its bound that is a half for each.

**Does it matter?** A Jacobian by `jacfwd` was another one than by `jacrev`, wherever a learned bound is reached.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "low"


def spec(x: torch.Tensor, bound: torch.Tensor) -> torch.Tensor:
    return (x + bound) / 2.0


def proof() -> Proof:
    one, tangents = torch.ones(1), (torch.tensor([10.0]), torch.tensor([1.0]))
    _, forward = torch.func.jvp(lambda x, low: torch.clamp(x, min=low), (one, one), tangents)
    gradients = torch.func.grad(lambda x, low: torch.clamp(x, min=low).sum(), (0, 1))(one, one)
    reverse = sum(gradient * tangent for gradient, tangent in zip(gradients, tangents, strict=True))
    x, low = (torch.cat((tangent, tangent)) for tangent in tangents)
    return Proof(
        "the derivative of torch.clamp(x, min=low), both 1, along 10 and 1, by forward and by reverse mode",
        torch.cat((forward, reverse)), [mpmath.mpf(11) / 2] * 2, spec, (x, low),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
