"""`F.layer_norm` with a bias and no weight: the second backward raises

Double backward adds up what the directions of x and of the bias give, and without a weight one of the two is undefined.
Asked for the bias alone it leaves its part out. The same function without a bias, or with a weight, is right.

**Documented**: weight and bias are optional, each by itself.

**Does it matter?** A model of that kind has no gradient penalty and no Hessian, and the message does not say why.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, result_or_nan, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "low"


def spec(bias: torch.Tensor) -> torch.Tensor:
    return bias * 1.0


def proof() -> Proof:
    x = torch.tensor([[1.0, 3.0]], dtype=torch.float64, requires_grad=True)
    bias = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)

    def second() -> torch.Tensor:
        weight = torch.zeros_like(x, requires_grad=True)
        y = torch.nn.functional.layer_norm(x, (2,), None, bias)
        slopes = torch.autograd.grad(y, (x, bias), weight, create_graph=True)
        return torch.autograd.grad(slopes, weight, (torch.zeros_like(x), bias.detach()))[0].flatten()

    return Proof(
        "F.layer_norm(x, (2,), None, bias): the second backward, along 0 and [0.5, 2]",
        result_or_nan(second, bias), [mpmath.mpf(0.5), mpmath.mpf(2)], spec, (bias.detach(),),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
