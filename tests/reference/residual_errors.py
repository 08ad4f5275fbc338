"""The rounding errors of evaluations in the tests of results that are judged by their residuals, and their matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from opassay.reference.residual import SubstitutionErrors

#: Rounding to nearest, quotients by reciprocals, and roots that are off by an ulp.
ERRORS = {
    np.float32: SubstitutionErrors(2.0**-24, 0.0, 2, 5, 2.0**-138, 2.0**116),
    np.float64: SubstitutionErrors(2.0**-53, 0.0, 2, 5, 2.0**-1063, 2.0**1012),
}


def of_condition(rng: np.random.Generator, m: int, n: int, dtype: Any, condition: float) -> Any:
    """A matrix with singular values from 1 to the reciprocal of a condition."""
    rank = min(m, n)
    left, right = (np.linalg.qr(rng.standard_normal((size, rank)))[0] for size in (m, n))
    return ((left * np.geomspace(1.0, 1.0 / condition, rank)) @ right.T).astype(dtype)
