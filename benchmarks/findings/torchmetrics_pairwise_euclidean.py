"""torchmetrics, `pairwise_euclidean_distance`: NaN between equal points

The square of a distance is |x|² + |y|² − 2 x·y, which in float64 still comes out below 0 for some equal points, and
its square root is NaN. Points at a distance of 1e-7 are at 0, at 5e-7, or at NaN. Of fifty random pairs of equal
points with 17 coordinates one gave NaN.

**Documented**: the root of the sum of (x − y)²; a comment speaks of float64 against precision issues.

**Does it matter?** Duplicates are common in data, and one NaN goes through every mean and every nearest neighbour. The
distances within one tensor have zeros on the diagonal, which hides it there, but not between duplicates.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torchmetrics", "1.9.0"
KIND, SEVERITY = "wrong result", "medium"


def spec(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(x - y, dim=-1)


def proof() -> Proof:
    from torchmetrics.functional import pairwise_euclidean_distance

    x = torch.arange(1, 18)[None] / 15
    call = "torchmetrics.functional.pairwise_euclidean_distance of (1, 2, ..., 17) / 15 and a copy of it"
    computed = pairwise_euclidean_distance(x, x.clone())
    exact = [mpmath.sqrt(mpmath.fsum((value - value) ** 2 for value in numbers(x)))]
    return Proof(call, computed, exact, spec, (x, x.clone()))


run(__name__, LIBRARY, VERSION, proof)
