"""Eigenvalues and their vectors: those of right evaluations are accepted, and every planted fault is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from opassay.oracles.bound.laws.factors import join_factors
from opassay.oracles.bound.laws.reflections import SWEEPS_OF_A_VALUE, sweeps_of_jacobi
from opassay.oracles.bound.laws.spectral import SpectralResidual, Spectrum
from tests.oracles.laws.residual_errors import ERRORS, hold_factors

Pair = tuple[Any, Any]


def hold(a: Any, values: Any, vectors: Any = None) -> tuple[int, int, str]:
    spectrum = Spectrum((a.astype(np.float64),) * 2, True, ERRORS[a.dtype.type])
    laws: list[Any] = [SpectralResidual("S", spectrum)]
    if vectors is None:
        return hold_factors(laws, [values[:, None]])
    return hold_factors([*laws, SpectralResidual("U", spectrum, vectors.shape)], [values[:, None], vectors])


def matrices(rng: np.random.Generator, n: int, dtype: Any) -> Iterator[Any]:
    """Symmetric ones: ordinary, graded, of repeated and of tiny eigenvalues, with both signs, diagonal, zero."""
    u = dtype(ERRORS[dtype].unit)
    q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    spectra = [rng.standard_normal(n), np.geomspace(1, u, n), np.where(np.arange(n) % 3 == 0, 2.0, -1.0), np.ones(n)]
    ordinary = rng.standard_normal((n, n))
    grades = np.geomspace(1, float(u), n)
    for each in [ordinary, *((q * s) @ q.T for s in spectra), grades[:, None] * ordinary * grades, np.zeros((n, n))]:
        lower = np.tril(each)
        yield (lower + np.tril(lower, -1).T).astype(dtype)
    yield np.diag(rng.standard_normal(n)).astype(dtype)


def in_order(values: Any, vectors: Any) -> Pair:
    order = np.argsort(values, kind="stable")
    return values[order], vectors[:, order]


def by_numpy(a: Any) -> Pair:
    values, vectors = np.linalg.eigh(a)
    return values, vectors


def by_jacobi(a: Any) -> Pair:
    a, v, u, least = a.copy(), np.eye(len(a), dtype=a.dtype), ERRORS[a.dtype.type].unit, np.abs(a).max()
    for _ in range(sweeps_of_jacobi(len(a), u)):
        rests = True
        for p, q in itertools.combinations(range(len(a)), 2):
            if abs(a[p, q]) <= u / 4 * least:
                continue
            rests, tau = False, (a[q, q] - a[p, p]) / (2 * a[p, q])
            t = np.copysign(1, tau) / (abs(tau) + np.sqrt(1 + tau * tau))
            c = 1 / np.sqrt(1 + t * t)
            turn = np.array([[c, t * c], [-t * c, c]], dtype=a.dtype)
            a[:, [p, q]] = a[:, [p, q]] @ turn
            a[[p, q]] = turn.T @ a[[p, q]]
            a[p, q] = a[q, p] = 0
            v[:, [p, q]] = v[:, [p, q]] @ turn
        if rests:
            return in_order(np.diag(a).copy(), v)
    raise AssertionError("more sweeps than the law counts")


def to_three_diagonals(a: Any) -> Pair:
    a, v = a.copy(), np.eye(len(a), dtype=a.dtype)
    for k in range(len(a) - 2):
        x = a[k + 1 :, k].copy()
        x[0] += np.copysign(np.sqrt(np.sum(x * x)), x[0])
        squared = np.sum(x * x)
        if squared == 0:
            continue
        tau, rest = 2 / squared, a[k + 1 :, k + 1 :]
        p = tau * (rest @ x)
        w = p - (tau / 2 * (p @ x)) * x
        a[k + 1 :, k + 1 :] = rest - np.outer(x, w) - np.outer(w, x)
        a[k + 1 :, k] -= tau * x * (x @ a[k + 1 :, k])
        a[k + 2 :, k] = 0
        a[k, k + 1 :] = a[k + 1 :, k]
        v[:, k + 1 :] -= tau * np.outer(v[:, k + 1 :] @ x, x)
    return a, v


def by_rotations(a: Any) -> Pair:
    """Three diagonals, and sweeps of rotations with Wilkinson's shift."""
    (a, v), u, sweeps, end = to_three_diagonals(a), ERRORS[a.dtype.type].unit, 0, len(a) - 1
    while end > 0:
        small = [i for i in range(end) if abs(a[i + 1, i]) <= u * (abs(a[i, i]) + abs(a[i + 1, i + 1]))]
        for i in small:
            a[i + 1, i] = a[i, i + 1] = 0
        if small and small[-1] == end - 1:
            end -= 1
            continue
        start, sweeps = small[-1] + 1 if small else 0, sweeps + 1
        assert sweeps <= SWEEPS_OF_A_VALUE * len(a)
        half, beside = (a[end - 1, end - 1] - a[end, end]) / 2, a[end, end - 1]
        shift = a[end, end] - beside * beside / (half + np.copysign(np.hypot(half, beside), half))
        x, z = a[start, start] - shift, a[start + 1, start]
        for k in range(start, end):
            r = np.hypot(x, z)
            c, s = (x / r, z / r) if r else (a.dtype.type(1), a.dtype.type(0))
            turn = np.array([[c, -s], [s, c]], dtype=a.dtype)
            a[k : k + 2] = turn.T @ a[k : k + 2]
            a[:, k : k + 2] = a[:, k : k + 2] @ turn
            v[:, k : k + 2] = v[:, k : k + 2] @ turn
            if k > start:
                a[k + 1, k - 1] = a[k - 1, k + 1] = 0
            if k + 2 <= end:
                x, z = a[k + 1, k], a[k + 2, k]
    return in_order(np.diag(a).copy(), v)


def by_dense_steps(a: Any) -> Pair:
    """Q R of the whole matrix less a shift, and R Q again, as textbooks begin; more steps than the law counts."""
    a, v, u, end = a.copy(), np.eye(len(a), dtype=a.dtype), ERRORS[a.dtype.type].unit, len(a)
    for _ in range(8 * len(a)):
        if end > 1 and np.abs(a[end - 1, : end - 1]).max() <= u / 2 * np.abs(a).max():
            end -= 1
            continue
        if end == 1:
            return in_order(np.diag(a).copy(), v)
        block = a[end - 2 : end, end - 2 : end].astype(np.float64)
        both = np.linalg.eigvalsh(block)
        shift = a.dtype.type(both[np.argmin(np.abs(both - block[1, 1]))])
        ones = shift * np.eye(end, dtype=a.dtype)
        q, r = np.linalg.qr(a[:end, :end] - ones)
        a[:end, :end] = r @ q + ones
        v[:, :end] = v[:, :end] @ q
    raise AssertionError("it does not converge")


RIGHT = [by_numpy, by_jacobi, by_rotations, by_dense_steps]


@pytest.mark.fast_cases("float32")
@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("evaluate", RIGHT)
def test_evaluations_are_right_whatever_the_matrix(evaluate: Callable[[Any], Pair], dtype: Any) -> None:
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 6, 10):
        for a in matrices(rng, n, dtype):
            values, vectors = evaluate(a)
            refusals, judged, text = hold(a, values, vectors)
            assert (refusals, text) == (0, "")
            assert judged in (0, n + n * n)  # A graded matrix may have squares that underflow.
            alone = SpectralResidual("U", Spectrum((a.astype(np.float64),) * 2, True, ERRORS[dtype]), a.shape)
            assert alone.accepts(vectors).all(), alone.explain(vectors)
    assert hold(np.zeros((0, 0), dtype), np.zeros(0), np.zeros((0, 0))) == (0, 0, "")


def _off(values: Any, by: float) -> Any:
    out = values.copy()
    out[2] += by * np.linalg.norm(values)
    return out


def _with_column(vectors: Any, factor: float, column: int = 1) -> Any:
    out = vectors.copy()
    out[:, column] *= factor
    return out


def in_bfloat16(a: Any) -> Pair:
    bits = a.astype(np.float32).view(np.uint32) & 0xFFFF0000
    return by_numpy(bits.view(np.float32).astype(a.dtype))


def _turned(vectors: Any) -> Any:
    c, s = np.cos(1e-3), np.sin(1e-3)
    out = vectors.copy()
    out[:, :2] = vectors[:, :2] @ np.array([[c, -s], [s, c]])
    return out


WRONG: dict[str, Callable[[Any], Pair]] = {
    "descending": lambda a: (by_numpy(a)[0][::-1], by_numpy(a)[1][:, ::-1]),
    "two exchanged": lambda a: (by_numpy(a)[0][[1, 0, 2, 3, 4, 5]], by_numpy(a)[1][:, [1, 0, 2, 3, 4, 5]]),
    "vectors transposed": lambda a: (by_numpy(a)[0], by_numpy(a)[1].T),
    "vectors in another order": lambda a: (by_numpy(a)[0], by_numpy(a)[1][:, ::-1]),
    "a vector that is not normal": lambda a: (by_numpy(a)[0], _with_column(by_numpy(a)[1], 1.001)),
    "vectors turned in a plane": lambda a: (by_numpy(a)[0], _turned(by_numpy(a)[1])),
    "a vector in place of another": lambda a: (by_numpy(a)[0], by_numpy(a)[1][:, [0, 0, 2, 3, 4, 5]]),
    "an eigenvalue that is off": lambda a: (_off(by_numpy(a)[0], 1e-3), by_numpy(a)[1]),
    "absolute values": lambda a: in_order(np.abs(by_numpy(a)[0]), by_numpy(a)[1]),
    "a matrix in bfloat16": in_bfloat16,
    "not a number": lambda a: (by_numpy(a)[0] * np.nan, by_numpy(a)[1]),
}


@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("fault", WRONG)
def test_faults_are_refused(fault: str, dtype: Any) -> None:
    a = next(matrices(np.random.default_rng(1), 6, dtype))
    refusals, judged, text = hold(a, *WRONG[fault](a))
    assert refusals > 0
    assert judged == 6 + 36
    assert text


@pytest.mark.parametrize(
    "fault", ["descending", "an eigenvalue that is off", "a matrix in bfloat16", "absolute values"]
)
@pytest.mark.parametrize("dtype", ERRORS)
def test_eigenvalues_alone_are_judged(fault: str, dtype: Any) -> None:
    a = next(matrices(np.random.default_rng(1), 6, dtype))
    assert hold(a, WRONG[fault](a)[0])[0] > 0
    assert hold(a, by_numpy(a)[0]) == (0, 6, "")


@pytest.mark.parametrize("fault", ["vectors in another order", "vectors transposed", "a vector that is not normal"])
@pytest.mark.parametrize("dtype", ERRORS)
def test_vectors_alone_are_judged(fault: str, dtype: Any) -> None:
    a = next(matrices(np.random.default_rng(1), 6, dtype))
    law = SpectralResidual("U", Spectrum((a.astype(np.float64),) * 2, True, ERRORS[dtype]), a.shape)
    assert not law.accepts(WRONG[fault](a)[1]).all()


def below(a: Any, number: Fraction) -> int:
    """How many eigenvalues of a matrix are below a number: the negative pivots of its elimination (Sylvester)."""
    rows = [[Fraction(x) - (number if i == j else 0) for j, x in enumerate(row)] for i, row in enumerate(a.tolist())]
    for k, top in enumerate(rows):
        for row in rows[k + 1 :]:
            factor = row[k] / top[k]
            row[k:] = [x - factor * y for x, y in zip(row[k:], top[k:], strict=True)]
    return sum(row[k] < 0 for k, row in enumerate(rows))


def test_the_exact_values_are_proven() -> None:
    for a in list(matrices(np.random.default_rng(2), 5, np.float64))[:5]:
        values, radius = Spectrum((a, a), True, ERRORS[np.float64]).values(()) or (np.zeros(5), np.inf)
        assert radius <= 1e-13 * np.linalg.norm(a)
        for k, value in enumerate(values):
            assert below(a, Fraction(value) - Fraction(radius)) <= k
            assert below(a, Fraction(value) + Fraction(radius)) >= k + 1


def test_a_matrix_between_ends_widens_the_laws() -> None:
    a = next(matrices(np.random.default_rng(3), 4, np.float64))
    values, vectors = by_numpy(a + 1e-6)
    for width, is_right in ((0.0, False), (1e-8, False), (1e-6, True)):
        spectrum = Spectrum((a - width, a + width), True, ERRORS[np.float64])
        laws = [SpectralResidual("S", spectrum), SpectralResidual("U", spectrum, a.shape)]
        numbers = [values[:, None], vectors]
        assert [law.accepts(x).all() for law, x in zip(join_factors(laws, numbers), numbers, strict=True)] == [
            is_right
        ] * 2


def test_matrices_without_a_law_are_not_judged() -> None:
    for a in (np.full((3, 3), np.nan), np.full((3, 3), 1e-25, np.float32), np.full((3, 3), 1e200)):
        assert hold(a, np.zeros(3), np.zeros((3, 3)))[:2] == (0, 0)


def test_the_order_of_equal_eigenvalues_is_exact() -> None:
    a, one = np.eye(3), np.nextafter(1.0, 2.0)
    assert hold(a, np.array([1.0, 1.0, one]), a) == (0, 12, "")
    assert hold(a, np.array([1.0, one, 1.0]), a) == (1, 12, "eigenvalues ascend")


@pytest.mark.parametrize("dtype", ERRORS)
def test_vectors_of_equal_values_may_be_less_orthogonal_but_are_normal(dtype: Any) -> None:
    # 4 n u / gap of multiple representations.
    unit, a = ERRORS[dtype].unit, np.eye(4, dtype=dtype)
    most = 16 * unit / (3e-3 if dtype is np.float32 else 1e-3)
    for between, normal, is_right in ((most, 0, True), (2 * most, 0, False), (0, most, False)):
        vectors = np.eye(4) * (1 + normal)
        vectors[0, 1] = between
        assert (hold(a, np.ones(4), vectors)[0] == 0) == is_right
