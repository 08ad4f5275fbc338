"""torchmetrics, `log_cosh_error`: infinite from residuals of 89 on, and 0 below 2e-4

log((exp(d) + exp(−d)) / 2) is computed as it stands. exp(89) overflows, so that one residual of 100 makes the metric
infinite; and what a residual of 1e-4 adds to 1 is rounded away, so that 0 comes in place of 5e-9.

**Documented**: the formula, by name of the log of a hyperbolic cosine.

**Does it matter?** The metric is chosen for targets with outliers, and the first large one makes it infinite.
"""

from __future__ import annotations

import math

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torchmetrics", "1.9.0"
KIND, SEVERITY = "wrong result", "medium"


def spec(residuals: torch.Tensor) -> torch.Tensor:
    near, size = residuals.clamp(-1, 1), residuals.abs()
    far = size + torch.log1p(torch.exp(-2 * size)) - math.log(2)
    return torch.where(size < 1, 0.5 * torch.log1p(torch.sinh(near) ** 2), far)


def proof() -> Proof:
    from torchmetrics.functional import log_cosh_error

    residuals = torch.tensor([1e-4, 1e-3, 100.0])
    computed = log_cosh_error(residuals[None], torch.zeros(1, 3))
    exact = [mpmath.log(mpmath.cosh(value)) for value in numbers(residuals)]
    call = "torchmetrics.functional.log_cosh_error of [1e-4, 1e-3, 100] for 0"
    return Proof(call, computed, exact, spec, (residuals,))


run(__name__, LIBRARY, VERSION, proof)
