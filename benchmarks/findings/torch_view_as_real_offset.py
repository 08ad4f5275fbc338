"""`torch.view_as_real`, and `torch.stft`: the backward raises for a gradient at an odd place in memory

The backward views the gradient as complex numbers, which torch does at even offsets alone. A gradient that is a slice
from an odd element on raises, although nobody has asked for a view of it.

**Documented**: nothing but that it is a view; a gradient may lie in memory as it likes.

**Does it matter?** The gradient of two results that were concatenated is such a slice: after `torch.cat` of one number
and a spectrum nothing can be trained.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, result_or_nan, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "medium"


def spec(weight: torch.Tensor) -> torch.Tensor:
    return weight * 1.0


def proof() -> Proof:
    z = torch.ones(2, dtype=torch.complex128, requires_grad=True)
    weights = torch.arange(5.0, dtype=torch.float64)

    def gradient() -> torch.Tensor:
        joined = torch.cat([weights[:1], torch.view_as_real(z).flatten()])
        return torch.view_as_real(torch.autograd.grad(joined, z, weights)[0]).flatten()

    return Proof(
        "gradient of torch.cat([1 number, torch.view_as_real(z).flatten()]) in z",
        result_or_nan(gradient, weights[1:]), [mpmath.mpf(k) for k in range(1, 5)], spec, (weights[1:].clone(),),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
