"""Singular values and their vectors: those of right evaluations are accepted, and every planted fault is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from opassay.oracles.bound.laws.factors import join_factors
from opassay.oracles.bound.laws.reflections import SWEEPS_OF_A_VALUE, sweeps_of_jacobi
from opassay.oracles.bound.laws.spectral import SpectralResidual, Spectrum
from tests.oracles.laws.residual_errors import ERRORS, hold_factors, of_condition, with_change

Triple = tuple[Any, Any, Any]


def laws_of(a: Any, values: Triple) -> list[Any]:
    spectrum = Spectrum((a.astype(np.float64),) * 2, False, ERRORS[a.dtype.type])
    u, _, vh = values
    left, right = (SpectralResidual(role, spectrum, x.shape) for role, x in (("U", u), ("Vh", vh)))
    return [left, SpectralResidual("S", spectrum), right]


def hold(a: Any, values: Triple) -> tuple[int, int, str]:
    return hold_factors(laws_of(a, values), (values[0], values[1][:, None], values[2]))


def matrices(rng: np.random.Generator, m: int, n: int, dtype: Any) -> Iterator[Any]:
    """Ordinary, of all conditions, graded, with repeated singular values, of one rank, zero."""
    ordinary, rank, unit = rng.standard_normal((m, n)), min(m, n), ERRORS[dtype].unit
    yield ordinary.astype(dtype)
    for condition in (1.0, unit**-0.5, 1 / unit):
        yield of_condition(rng, m, n, dtype, condition)
    yield (ordinary * np.geomspace(1, unit, n)).astype(dtype)
    left, right = (np.linalg.qr(rng.standard_normal((size, rank)))[0] for size in (m, n))
    yield ((left * np.where(np.arange(rank) % 2, 1.0, 3.0)) @ right.T).astype(dtype)
    yield np.outer(ordinary[:, 0], ordinary[0]).astype(dtype)
    yield np.zeros((m, n), dtype)


def by_numpy(a: Any) -> Triple:
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    return u, s, vh


def in_order(a: Any, v: Any) -> Triple:
    """Of orthogonal columns A V, where none is zero."""
    s = np.sqrt(np.sum(a * a, axis=0))
    order = np.argsort(-s)
    return (a / s)[:, order], s[order], v[:, order].T


def by_jacobi(a: Any) -> Triple:
    """Rotations of columns; of rows where there are more columns."""
    if a.shape[0] < a.shape[1]:
        u, s, vh = by_jacobi(a.T)
        return vh.T, s, u.T
    a, v, unit, n = a.copy(), np.eye(a.shape[1], dtype=a.dtype), ERRORS[a.dtype.type].unit, a.shape[1]
    for _ in range(sweeps_of_jacobi(n, unit, of_columns=True)):
        rests = True
        for p, q in itertools.combinations(range(n), 2):
            x, y, both = a[:, p] @ a[:, p], a[:, q] @ a[:, q], a[:, p] @ a[:, q]
            if abs(both) <= 2 * len(a) * unit * np.sqrt(x * y):
                continue
            rests, tau = False, (y - x) / (2 * both)
            t = np.copysign(1, tau) / (abs(tau) + np.sqrt(1 + tau * tau))
            c = 1 / np.sqrt(1 + t * t)
            turn = np.array([[c, t * c], [-t * c, c]], dtype=a.dtype)
            for each in (a, v):
                each[:, [p, q]] = each[:, [p, q]] @ turn
        if rests:
            return in_order(a, v)
    raise AssertionError("more sweeps than the law counts")


def reflect(x: Any) -> tuple[Any, Any]:
    """What makes all of a vector but its first element zero: τ and v."""
    v = x.copy()
    v[0] += np.copysign(np.sqrt(np.sum(x * x)), x[0])
    squared = np.sum(v * v)
    return (x.dtype.type(2) / squared if squared else x.dtype.type(0)), v


def by_rotations(a: Any) -> Triple:
    """Two diagonals by reflections, and sweeps of rotations along these, with a shift where no value is tiny."""
    if a.shape[0] < a.shape[1]:
        u, s, vh = by_rotations(a.T)
        return vh.T, s, u.T
    (m, n), b, unit = a.shape, a.copy(), ERRORS[a.dtype.type].unit
    u, v = np.eye(m, dtype=a.dtype), np.eye(n, dtype=a.dtype)
    for k in range(n):
        tau, x = reflect(b[k:, k])
        b[k:, k:] -= tau * np.outer(x, x @ b[k:, k:])
        u[:, k:] -= tau * np.outer(u[:, k:] @ x, x)
        b[k + 1 :, k] = 0
        if k + 2 < n:
            tau, x = reflect(b[k, k + 1 :])
            b[k:, k + 1 :] -= tau * np.outer(b[k:, k + 1 :] @ x, x)
            v[:, k + 1 :] -= tau * np.outer(v[:, k + 1 :] @ x, x)
            b[k, k + 2 :] = 0
    end, sweeps, tiny = n - 1, 0, 2 * unit * np.abs(b).max()
    while end > 0:
        if abs(b[end - 1, end]) <= tiny:
            b[end - 1, end] = 0
            end -= 1
            continue
        start, sweeps = end - 1, sweeps + 1
        assert sweeps <= SWEEPS_OF_A_VALUE * n
        while start > 0 and abs(b[start - 1, start]) > tiny:
            start -= 1
        if start > 0:
            b[start - 1, start] = 0
        sweep_along(b, u, v, start, end, unit)
    s = np.diag(b).copy()
    order = np.argsort(-np.abs(s))
    return u[:, order], np.abs(s[order]), (v * np.where(s < 0, -1, 1).astype(a.dtype))[:, order].T


def sweep_along(b: Any, u: Any, v: Any, start: int, end: int, unit: float) -> None:
    d, e = b[end, end], b[end - 1, end]
    sizes, shift = np.abs(np.diag(b)[start : end + 1]), b.dtype.type(0)
    if sizes.min() > 1e2 * unit * sizes.max():
        above = b[end - 2, end - 1] if end - 2 >= start else shift
        half, beside = ((b[end - 1, end - 1] ** 2 + above**2) - (d * d + e * e)) / 2, b[end - 1, end - 1] * e
        shift = d * d + e * e - beside * beside / (half + np.copysign(np.hypot(half, beside), half))
    x, z = b[start, start] ** 2 - shift, b[start, start] * b[start, start + 1]
    if shift == 0:
        x, z = b[start, start], b[start, start + 1]
    for k in range(start, end):
        turn = rotation(x, z)
        b[:, k : k + 2], v[:, k : k + 2] = b[:, k : k + 2] @ turn, v[:, k : k + 2] @ turn
        if k > start:
            b[k - 1, k + 1] = 0
        turn = rotation(b[k, k], b[k + 1, k])
        b[k : k + 2], u[:, k : k + 2] = turn.T @ b[k : k + 2], u[:, k : k + 2] @ turn
        b[k + 1, k] = 0
        if k + 2 <= end:
            x, z = b[k, k + 1], b[k, k + 2]


def rotation(x: Any, z: Any) -> Any:
    r = np.hypot(x, z)
    c, s = (x / r, z / r) if r else (1, 0)
    return np.array([[c, -s], [s, c]], dtype=x.dtype)


@pytest.mark.fast_cases("float32")
@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("evaluate", [by_numpy, by_jacobi, by_rotations])
def test_evaluations_are_right_whatever_the_matrix(evaluate: Callable[[Any], Triple], dtype: Any) -> None:
    rng = np.random.default_rng(0)
    for m, n in [(1, 1), (2, 2), (5, 3), (3, 5), (6, 6), (9, 4), (10, 10), (1, 4)]:
        for number, a in enumerate(matrices(rng, m, n, dtype)):
            if evaluate is by_jacobi and number > 5:  # A column may become zero, and has no direction then.
                continue
            values = evaluate(a)
            refusals, judged, text = hold(a, values)
            assert (refusals, text) == (0, "")
            assert judged in (0, sum(each.size for each in values))  # Squares of a graded matrix may underflow.
            for law, each in zip(laws_of(a, values), values, strict=True):
                each = each if each.ndim == 2 else each[:, None]
                assert law.accepts(each).all(), law.explain(each)
            assert hold(a, np.linalg.svd(a))[0] == 0


def test_matrices_without_rows_or_columns_have_no_values() -> None:
    for shape in [(0, 0), (3, 0), (0, 2)]:
        assert hold(np.zeros(shape), np.linalg.svd(np.zeros(shape)))[0] == 0
    assert hold(np.zeros((3, 0)), (np.ones((3, 3)), np.zeros(0), np.zeros((0, 0))))[0] == 9


def _off(s: Any) -> Any:
    return s + np.where(np.arange(len(s)) == 2, 1e-3 * np.linalg.norm(s), 0)


def in_bfloat16(a: Any) -> Triple:
    bits = a.astype(np.float32).view(np.uint32) & 0xFFFF0000
    return by_numpy(bits.view(np.float32).astype(a.dtype))


def by_squares(a: Any) -> Triple:
    """Eigenvalues of Aᵀ A, which lose half of the digits of small ones."""
    squares, v = np.linalg.eigh(a.T @ a)
    s = np.sqrt(np.maximum(squares[::-1], 0))
    return (a @ v[:, ::-1]) / np.maximum(s, np.finfo(a.dtype).tiny), s, v[:, ::-1].T


WRONG: dict[str, Callable[[Any], Triple]] = {
    "a column of U of the other sign": with_change(by_numpy, 0, lambda u: u * np.where(np.arange(4) == 2, -1, 1)),
    "a row of Vh of the other sign": with_change(by_numpy, 2, lambda v: v * np.array([[-1], [1], [1], [1]])),
    "V in place of Vh": with_change(by_numpy, 2, lambda v: v.T),
    "U and V exchanged": lambda a: (by_numpy(a)[2].T, by_numpy(a)[1], by_numpy(a)[0].T),
    "a column of U that is too long": with_change(by_numpy, 0, lambda u: u * np.where(np.arange(4) == 1, 1.001, 1)),
    "ascending": lambda a: (by_numpy(a)[0][:, ::-1], by_numpy(a)[1][::-1], by_numpy(a)[2][::-1]),
    "a negative value": lambda a: (
        by_numpy(a)[0] * [1, 1, 1, -1], by_numpy(a)[1] * [1, 1, 1, -1], by_numpy(a)[2]),
    "a value that is off": with_change(by_numpy, 1, _off),
    "squared values": with_change(by_numpy, 1, np.square),
    "a matrix in bfloat16": in_bfloat16,
    "not a number": with_change(by_numpy, 0, lambda u: u * np.nan),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("fault", WRONG)
def test_faults_are_refused(fault: str, dtype: Any) -> None:
    a = next(matrices(np.random.default_rng(1), 4, 4, dtype))
    refusals, judged, text = hold(a, WRONG[fault](a))
    assert refusals > 0
    assert judged == 36
    assert text


@pytest.mark.parametrize("dtype", ERRORS)
def test_values_of_squares_are_refused_where_they_lose_digits(dtype: Any) -> None:
    easy, hard = (of_condition(np.random.default_rng(2), 6, 4, dtype, x) for x in (2.0, 1 / ERRORS[dtype].unit))
    assert hold(easy, by_squares(easy))[0] == 0
    assert hold(hard, by_squares(hard))[0] > 0


def test_vectors_that_are_too_long_to_square_are_refused() -> None:
    a = np.eye(3)
    assert hold(a, (a * 1e200, np.ones(3), a))[0] > 0
    assert hold(a, (a, np.ones(3) * [1e308, 1, 1], a))[0] > 0


@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize(("fault", "place"), [("ascending", 0), ("V in place of Vh", 2), ("ascending", 1)])
def test_one_factor_alone_is_judged(fault: str, place: int, dtype: Any) -> None:
    a = next(matrices(np.random.default_rng(1), 4, 4, dtype))
    values = WRONG[fault](a)
    own = values[place] if place != 1 else values[1][:, None]
    assert not laws_of(a, values)[place].accepts(own).all()


def test_a_matrix_between_ends_widens_the_laws() -> None:
    a = next(matrices(np.random.default_rng(3), 5, 3, np.float64))
    u, s, vh = by_numpy(a + 1e-6)
    for width, is_right in ((0.0, False), (1e-8, False), (1e-6, True)):
        spectrum = Spectrum((a - width, a + width), False, ERRORS[np.float64])
        laws = [SpectralResidual("U", spectrum, u.shape), SpectralResidual("S", spectrum)]
        for law, values in zip(laws, (u, s[:, None]), strict=True):
            assert law.accepts(values).all() == is_right
        laws.append(SpectralResidual("Vh", spectrum, vh.shape))
        numbers = [u, s[:, None], vh]
        together = join_factors(laws, numbers)
        assert [law.accepts(x).all() for law, x in zip(together, numbers, strict=True)] == [is_right] * 3


def test_the_order_and_the_signs_of_equal_values_are_exact() -> None:
    a, text = np.diag([1.0, 1.0, 0.0]), "singular values descend, and are not negative"
    assert hold(a, (np.eye(3), np.array([1.0, 1.0, 1e-20]), np.eye(3))) == (0, 21, "")
    for values in ([1.0, np.nextafter(1.0, 2.0), 0.0], [1.0, 1.0, -1e-20]):
        assert hold(a, (np.eye(3), np.array(values), np.eye(3))) == (1, 21, text)
