"""torchmetrics, `r2_score`: 1 for any prediction of small targets

A sum of squares of residuals below 1e-4 counts as zero, whatever the targets are, and the score is 1 then. Four
targets of 1e-3 to 4e-3, predicted in the opposite order, have a score of 1 where −3 is right. `R2Score` computes the
same.

**Documented**: 1 − SS_res / SS_tot. A comment in the code speaks of targets that are nearly constant; scikit-learn
compares with 0.

**Does it matter?** Whoever evaluates small targets (daily returns, concentrations, normalised fluxes) in batches or in
a small test set is told that the model is perfect, whatever it predicts.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torchmetrics", "1.9.0"
KIND, SEVERITY = "wrong result", "high"


def spec(predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return 1 - ((targets - predictions) ** 2).sum() / ((targets - targets.mean()) ** 2).sum()


def proof() -> Proof:
    from torchmetrics.functional import r2_score

    targets = torch.tensor([0.001, 0.002, 0.003, 0.004])
    predictions, values = targets.flip(0), numbers(targets)
    mean = mpmath.fsum(values) / 4
    residual = mpmath.fsum((a - b) ** 2 for a, b in zip(values, reversed(values), strict=True))
    exact = 1 - residual / mpmath.fsum((value - mean) ** 2 for value in values)
    call = "torchmetrics.functional.r2_score of [0.004, 0.003, 0.002, 0.001] for [0.001, 0.002, 0.003, 0.004]"
    return Proof(call, r2_score(predictions, targets), [exact], spec, (predictions, targets))


run(__name__, LIBRARY, VERSION, proof)
