"""`F.layer_norm` in half types on CPUs: gradients of weight and bias are summed in the half type

The gradient of the bias is the sum of the rows of the result's gradient. It is added up row by row in bfloat16 or
float16: of 64 rows an element was off by 38 halves of a unit in the last place, and of many rows the sum stops growing
where a row is less than half a unit of it. So is the gradient of the weight.

**Documented**: nothing of the format of sums. On GPUs they are taken in float32.

**Does it matter?** In training in half types on a CPU, yes: with batch times length in the thousands the two gradients
have few right digits.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "less accurate", "medium"


def proof() -> Proof:
    draws = torch.Generator().manual_seed(0)
    x, g = (torch.randn((64, 16), generator=draws).bfloat16() for _ in range(2))
    bias = torch.zeros(16, dtype=torch.bfloat16, requires_grad=True)
    weight = torch.ones(16, dtype=torch.bfloat16)
    (slope,) = torch.autograd.grad(torch.nn.functional.layer_norm(x, (16,), weight, bias), bias, g)
    exact = [mpmath.fsum(numbers(g[:, i])) for i in range(16)]
    return Proof("the gradient of F.layer_norm in its bias, 64 rows, bfloat16", slope, exact, lambda g: g.sum(0), (g,))


run(__name__, LIBRARY, VERSION, proof)
