"""Paddle, `linalg.cov` and `linalg.corrcoef`: off in the second digit at a mean of 1000, and not symmetric

Deviations from the mean are multiplied by the numbers themselves, and not by their deviations. That is right as long
as the deviations sum up to 0, which roundings prevent: what is left of their sum is multiplied by the mean. Of rows
around 1000 with a spread of 0.6 a variance of 0.354 comes out as 0.345, and a covariance of −0.107 as −0.115.

**Documented**: the covariance, with NumPy's arguments.

**Does it matter?** Rows with a mean, such as prices and temperatures, have wrong correlations; and a matrix that is
not symmetric, or not positive definite, breaks what follows.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, around, numbers, run

LIBRARY, VERSION = "paddlepaddle", "3.3.1"
KIND, SEVERITY = "wrong result", "medium"


def proof() -> Proof:
    import paddle

    x = torch.stack([around(1000.0), around(1000.0).flip(0)])
    computed = torch.tensor(paddle.linalg.cov(paddle.to_tensor(x.tolist())).tolist())
    rows = [numbers(row) for row in x]
    rows = [[value - mpmath.fsum(row) / 8 for value in row] for row in rows]
    exact = [mpmath.fdot(left, right) / 7 for left in rows for right in rows]
    return Proof("paddle.linalg.cov of two rows of eight numbers around 1000", computed, exact, torch.cov, (x,))


run(__name__, LIBRARY, VERSION, proof)
