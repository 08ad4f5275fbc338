"""`F.grouped_mm`: the backward raises for the gradient of a sum

The gradient of a sum is one number that is expanded, with strides of 0. The backward is a grouped product of it,
which refuses such strides. So `y.sum().backward()` raises, where `y.backward(torch.ones_like(y))` is right.
`torch.bmm` takes either.

**Documented**: gradients of any strides; the function documents strides of its operands, and its gradient is no
operand of the user.

**Does it matter?** The first test that anybody writes of a mixture of experts, a sum, ends with an error.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, result_or_nan, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "low"


def spec(x: torch.Tensor) -> torch.Tensor:
    return x * 0.0 + 8.0


def proof() -> Proof:
    x, weight = torch.ones(8, 16, requires_grad=True), torch.ones(2, 16, 8)
    y = torch.nn.functional.grouped_mm(x, weight, offs=torch.tensor([4, 8], dtype=torch.int32))
    return Proof(
        "the gradient of F.grouped_mm(x, weight, offs=ends).sum(), which raises",
        result_or_nan(lambda: torch.autograd.grad(y.sum(), x)[0], x)[0], [mpmath.mpf(8)] * 16, spec, (x[0].detach(),),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
