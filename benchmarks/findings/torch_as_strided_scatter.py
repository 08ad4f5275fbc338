"""`torch.as_strided_scatter`: the gradient passes through what is overwritten, and through nothing else

The result is the input, with a source in place of the elements that a view of it shows. So those elements have the
slope 0, and all others the slope 1. torch's gradient has them the other way round. torch's own `gradcheck` fails on it.

**Documented**: "Embeds the values of the src tensor into input along the elements corresponding to the result of
calling input.as_strided(size, stride, storage_offset)". The gradient is listed as supported.

**Does it matter?** Who uses it trains on a wrong gradient, in silence. Few do.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "medium"


def proof() -> Proof:
    x = torch.arange(6.0, requires_grad=True)
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    result = torch.as_strided_scatter(x, torch.zeros(2), (2,), (1,), 0)
    (slope,) = torch.autograd.grad(result, x, weights)
    exact = [mpmath.mpf(share) for share in (0, 0, 3, 4, 5, 6)]
    slopes = torch.tensor([0.0, 0.0, 1.0, 1.0, 1.0, 1.0])
    return Proof("the gradient of as_strided_scatter in its input", slope, exact, lambda g: g * slopes, (weights,))


run(__name__, LIBRARY, VERSION, proof)
