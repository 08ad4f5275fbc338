"""The rounding errors of evaluations in the tests of results that are judged by their residuals, and their matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opassay.oracles.bound.laws.factors import join_factors
from opassay.oracles.bound.laws.residual import SubstitutionErrors

#: From a matrix to three factors of it.
Factors = Callable[[Any], tuple[Any, Any, Any]]

#: Rounding to nearest, quotients by reciprocals, and roots that are off by an ulp.
ERRORS = {
    np.float32: SubstitutionErrors(2.0**-24, 0.0, 2, 5, 2.0**-138, 2.0**116),
    np.float64: SubstitutionErrors(2.0**-53, 0.0, 2, 5, 2.0**-1063, 2.0**1012),
}


def law_between(law: Callable[..., Any], a: Any, b: Any, width: float = 0.0) -> Any:
    """The law of a solution of A X = B, with the elements of A between ends that are so far from them."""
    own, right = a.astype(np.float64), b.astype(np.float64)
    return law((own - width, own + width), (right, right), ERRORS[a.dtype.type])


def law_of_inverse(law: Callable[..., Any], a: Any) -> Any:
    own = a.astype(np.float64)
    return law((own, own), ERRORS[a.dtype.type])


def of_condition(rng: np.random.Generator, m: int, n: int, dtype: Any, condition: float) -> Any:
    """A matrix with singular values from 1 to the reciprocal of a condition."""
    rank = min(m, n)
    left, right = (np.linalg.qr(rng.standard_normal((size, rank)))[0] for size in (m, n))
    return ((left * np.geomspace(1.0, 1.0 / condition, rank)) @ right.T).astype(dtype)


def hold_factors(laws: Sequence[Any], values: Sequence[Any]) -> tuple[int, int, str]:
    """How many elements of factors of one matrix are refused, how many are judged, and why the first is refused."""
    numbers = [each.astype(np.float64) for each in values]
    pairs = list(zip(join_factors(laws, numbers), numbers, strict=True))
    refusals = sum(int(np.count_nonzero(~law.accepts(each))) for law, each in pairs)
    judged = sum(int(np.count_nonzero(law.refutable(each))) for law, each in pairs)
    return refusals, judged, next((text for law, each in pairs if (text := law.explain(each))), "")


def with_change(evaluate: Factors, place: int, change: Callable[[Any], Any]) -> Factors:
    """An evaluation of three factors of which one is changed."""

    def evaluate_wrongly(a: Any) -> tuple[Any, Any, Any]:
        values = [each.copy() for each in evaluate(a)]
        values[place] = change(values[place])
        return values[0], values[1], values[2]

    return evaluate_wrongly
