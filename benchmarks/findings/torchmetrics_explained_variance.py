"""torchmetrics, `explained_variance`, `r2_score`, `relative_squared_error`: wrong where the targets' mean is large

The variance is the mean of squares less the square of the mean, in the dtype of the inputs. Of targets around 1000
with a spread of 0.6 the second digit of the explained variance is wrong, and around 10,000 no digit is right. The
classes of the same names keep these sums from batch to batch, and compute the same.

**Documented**: 1 − Var(y − ŷ) / Var(y), and the other two by sums of (y − mean)².

**Does it matter?** Temperatures in kelvin, pressures, years and prices have such means. A score that is off in its
second digit, or above 1, decides which model is kept.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, around, numbers, run

LIBRARY, VERSION = "torchmetrics", "1.9.0"
KIND, SEVERITY = "wrong result", "medium"


def spec(predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return 1 - (targets - predictions).var(correction=0) / targets.var(correction=0)


def _variance(values: list[mpmath.mpf]) -> mpmath.mpf:
    mean = mpmath.fsum(values) / len(values)
    return mpmath.fsum((value - mean) ** 2 for value in values)


def proof() -> Proof:
    from torchmetrics.functional import explained_variance

    targets = around(1000.0)
    predictions = targets + torch.tensor([0.1, -0.1, 0.2, 0.3, -0.2, 0.1, 0.0, 0.1])
    residuals = [a - b for a, b in zip(numbers(targets), numbers(predictions), strict=True)]
    exact = 1 - _variance(residuals) / _variance(numbers(targets))
    call = "torchmetrics.functional.explained_variance of eight targets around 1000"
    return Proof(call, explained_variance(predictions, targets), [exact], spec, (predictions, targets))


run(__name__, LIBRARY, VERSION, proof)
