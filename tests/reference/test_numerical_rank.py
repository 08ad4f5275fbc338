"""Ranks: what right evaluations count is accepted, whatever the tolerance, and other numbers are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opassay.reference.numerical_rank import NumericalRank
from opassay.reference.spectral import SpectralValuesResidual, Spectrum
from tests.reference.residual_errors import ERRORS, of_condition


def law_of(a: Any, absolute: Any = 0.0, relative: Any = 0.0, is_symmetric: bool = False, width: float = 0.0) -> Any:
    own, shape = a.astype(np.float64), np.broadcast_shapes(a.shape[:-2], np.shape(absolute), np.shape(relative))
    kinds = (True, False) if is_symmetric else (False,)
    ends, errors = (own - width, own + width), ERRORS[a.dtype.type]
    values = [SpectralValuesResidual(Spectrum(ends, each, errors)) for each in kinds]
    return NumericalRank(shape, values, (absolute, absolute), (relative, relative))


def ranks_between(law: Any) -> list[int]:
    return [rank for rank in range(9) if law.accepts(np.array(rank)).all()]


@pytest.mark.parametrize("dtype", ERRORS)
def test_evaluations_are_right(dtype: Any) -> None:
    rng, judged, ranks = np.random.default_rng(0), 0, 0
    for m, n in [(1, 1), (3, 2), (4, 7), (6, 6)]:
        for condition in (1.0, 30.0, 0.1 / ERRORS[dtype].unit):
            a = np.stack([of_condition(rng, m, n, dtype, condition) for _ in range(3)])
            values = np.linalg.svd(a, compute_uv=False)
            gram = a @ np.swapaxes(a, -1, -2)
            magnitudes = np.abs(np.linalg.eigvalsh(gram))
            for tolerance in (0.0, 1e-6, 0.2, float(values[0, -1]), float(values[1, 0]), 2.0):
                for absolute, relative in ((tolerance, 0.0), (0.0, tolerance), (np.full(3, tolerance), 1e-3)):
                    for sizes, law in (
                        (values, law_of(a, absolute, relative)),
                        (magnitudes, law_of(gram, absolute, relative, True)),
                    ):
                        most = np.maximum(np.broadcast_to(absolute, 3), relative * sizes.max(-1)).astype(dtype)
                        assert law.accepts((sizes > most[:, None]).sum(-1)).all()
                        judged, ranks = judged + int(law.refutable().sum()), ranks + 3
    assert judged > 0.8 * ranks


def test_the_ends_of_what_may_count_are_sharp() -> None:
    a = np.diag([4.0, 2.0, 1.0])
    off = float(np.max(np.subtract(*law_of(a)._values[0].ends_of_values(())[::-1]))) / 2
    for shift, right in ((-1.01, [2]), (-0.99, [1, 2]), (0.99, [1, 2]), (1.01, [1])):
        assert ranks_between(law_of(a, 2 + shift * off)) == right
    # Of eigenvalues magnitudes count.
    assert ranks_between(law_of(np.diag([-4.0, -2.0, 1.0]), 2 + 0.99 * off, is_symmetric=True)) == [1, 2]
    # The largest value is off, too, and its share with it.
    for shift, right in ((-0.38, [2]), (-0.37, [1, 2]), (0.37, [1, 2]), (0.38, [1])):
        assert ranks_between(law_of(a, relative=0.5 + shift * off)) == right
    assert ranks_between(law_of(a, 2.0, relative=0.1)) == [1, 2]
    assert ranks_between(law_of(a, 3.0, relative=0.5)) == [1]


@pytest.mark.parametrize("dtype", ERRORS)
def test_wrong_ranks_are_refused(dtype: Any) -> None:
    a = of_condition(np.random.default_rng(1), 5, 4, dtype, 100.0)
    law = law_of(np.stack([a, a, np.zeros_like(a)]), 0.1)
    for wrong in ([3, 2, 0], [2, 1, 0], [4, 4, 0], [2, 2, 1], [2, -1, 0]):
        assert not law.accepts(np.array(wrong)).all()
        assert "evaluations count" in law.explain(np.array(wrong))
    assert law.accepts(np.array([2, 2, 0])).all()
    assert law.explain(np.array([2, 2, 0])) == ""
    # Of a matrix of lower rank more may count without a tolerance.
    assert ranks_between(law_of(a[:, [0, 0]])) == [1, 2]
    assert ranks_between(law_of(a[:, [0, 0]], relative=1e-3)) == [1]


def test_what_is_not_known_is_not_judged() -> None:
    a = np.stack([np.eye(2) * np.nan, np.eye(2) * 1e300, np.eye(2)])
    law = law_of(a, np.array([[0.5], [0.5]]))
    assert law.refutable().tolist() == [[False, False, True]] * 2
    assert law.accepts(np.array([[0, 1, 2], [2, 1, 2]])).all()
    assert ranks_between(law_of(np.zeros((0, 3)))) == [0]
    wide = law_of(np.diag([4.0, 2.0, 1.0]), 1.5, width=0.01)
    assert ranks_between(wide) == [2]
    assert ranks_between(law_of(np.diag([4.0, 2.0, 1.0]), 2.0, width=0.01)) == [1, 2]
