"""`F.cosine_similarity`: vectors longer than 1.8e19 are orthogonal to everything

Each vector is divided by its length, and the length is the root of a sum of squares that overflows: x/∞ is 0.
`F.rms_norm`, `F.normalize` and `F.layer_norm` of such numbers are 0 for the same reason. bfloat16 has the range of
float32, and so has the fault.

**Documented**: x₁·x₂ / (max(‖x₁‖, ε)·max(‖x₂‖, ε)), without a limit on the size.

**Does it matter?** Numbers of 1e20 are rare in float32, and come before a divergence: infinity or NaN would show it,
0 hides it. The error is all of the value.

The contract that opassay derives from the documented formula as it stands judges nothing here, because an evaluation
may overflow; the spec is therefore the same formula with both vectors scaled first.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "low"


def spec(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Both scaled by their largest elements, so that no square overflows."""
    a, b = (each / each.abs().amax(-1, keepdim=True) for each in (first, second))
    return (a * b).sum(-1) / torch.sqrt((a * a).sum(-1) * (b * b).sum(-1))


def proof() -> Proof:
    first, second = torch.tensor([[1e20, 1e20]]), torch.tensor([[1e20, 2e20]])
    a, b = numbers(first), numbers(second)
    exact = mpmath.fdot(a, b) / mpmath.sqrt(mpmath.fdot(a, a) * mpmath.fdot(b, b))
    return Proof(
        "F.cosine_similarity(torch.tensor([[1e20, 1e20]]), torch.tensor([[1e20, 2e20]]))",
        torch.nn.functional.cosine_similarity(first, second), [exact], spec, (first, second),
        own=("F.cosine_similarity", lambda a, b: torch.nn.functional.cosine_similarity(a, b)),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
