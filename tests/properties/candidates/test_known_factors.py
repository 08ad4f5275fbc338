"""Candidates of specs that give packed triangles, solutions by factors, determinants, and least squares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from opassay import judge
from opassay.properties.candidates.judgement import Judgement
from tests.traced_once import traced_once

Tensor = torch.Tensor
QUESTIONS = ["FWD:given", "FWD:seeds", "FWD:signs", "FWD:wide", "SPECIAL:zeros", "SPECIAL:inf", "VJP:grad"]
L = torch.linalg


def judge_with(
    candidate: Callable[..., Any], spec: Callable[..., Any], dtype: torch.dtype, questions: Sequence[str] = QUESTIONS
) -> Judgement:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(2, 5, n, generator=generator, dtype=dtype) for n in (5, 2))
    factors, pivots = L.lu_factor(a)
    return judge(candidate, traced_once(spec), (a, b, factors, pivots), questions=questions, seed=0)


def packed(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
    return L.lu_factor(a)


def packed_and_status(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
    return L.lu_factor_ex(a[..., :3])


def apart(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
    return torch.lu_unpack(f, p)


def by_factors(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
    return L.lu_solve(f, p, b)


def by_transposed_factors(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
    return L.lu_solve(f, p, b, adjoint=True)


def from_the_right(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
    return L.lu_solve(f, p, b.mT, left=False)


def from_the_right_transposed(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
    return L.lu_solve(f, p, b.mT, left=False, adjoint=True)


def by_triangles(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
    rows, lower, upper = torch.lu_unpack(f, p)
    y = L.solve_triangular(lower, rows.mT @ b, upper=False, unitriangular=True)
    return L.solve_triangular(upper, y, upper=True)


def of_cholesky(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
    return torch.cholesky_solve(b, a)


def of_cholesky_above(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
    return torch.cholesky_solve(b, a, upper=True)


def inverse_of_cholesky(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
    return torch.cholesky_inverse(a.tril(-1) + 5 * torch.eye(5, dtype=a.dtype))


def inverse_of_cholesky_above(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
    return torch.cholesky_inverse((a.tril(-1) + 5 * torch.eye(5, dtype=a.dtype)).mT, upper=True)


def determinant(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
    return L.det(a)


def sign_and_logarithm(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
    return L.slogdet(a)


def by_reflections(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
    q, r = L.qr(a)
    return r.diagonal(dim1=-2, dim2=-1).prod(-1) * L.det(q).round()


def logarithm(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
    return (a @ a.mT).logdet()


def least_squares(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
    return L.lstsq(a[..., :2], b).solution


def least_squares_of_a_vector(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
    return L.lstsq(a[..., :2], b[..., 0], driver="gels").solution


def least_norm(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
    return L.lstsq(a[..., :2, :], b[..., :2, :], driver="gelsd").solution


def least_norm_of_a_vector(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
    return L.lstsq(a[..., :2, :], b[..., :2, 0], driver="gels").solution


def least_norm_by_reflections(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
    q, r = L.qr(a[..., :2, :].mT)
    return q @ L.solve_triangular(r.mT, b[..., :2, :], upper=False)


def of_first_columns(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
    """Another solution of the same equations."""
    x = L.solve(a[..., :2, :2], b[..., :2, :])
    return torch.cat([x, torch.zeros(*x.shape[:-2], 3, 2, dtype=a.dtype)], -2)


def least_squares_by_reflections(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
    q, r = L.qr(a[..., :2])
    return L.solve_triangular(r, q.mT @ b, upper=True)


def pseudoinverse(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
    return L.pinv(a[..., :2])


def wide_pseudoinverse(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
    return torch.pinverse(a[..., :2, :])


def pseudoinverse_of_a_gram_matrix(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
    return L.pinv(a @ a.mT + torch.eye(5, dtype=a.dtype), hermitian=True)


def rank(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
    tolerance = {"atol": b[0, 0, 0].abs()}
    return L.matrix_rank(a), L.matrix_rank(a, 1.5), L.matrix_rank(a[..., :2], **tolerance)


def rank_of_a_gram_matrix(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
    share = {"rtol": 1e-3}
    return L.matrix_rank(b @ b.mT, hermitian=True, **share)


def rank_by_singular_values(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
    sizes = L.svdvals(b @ b.mT)
    return (sizes > 1e-3 * sizes[..., :1]).sum(-1)


def off(spec: Callable[..., Any], place: int | None = None) -> Callable[..., Any]:
    """A candidate whose result, or one of several, is 1 % too large."""

    def candidate(*args: Tensor) -> Any:
        result = spec(*args)
        return result * 1.01 if place is None else tuple(y * 1.01 if i == place else y for i, y in enumerate(result))

    return candidate


@pytest.mark.one_fast_in(13)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("candidate", "spec"),
    [(each, each) for each in (packed, packed_and_status, by_factors, by_transposed_factors, from_the_right)]
    + [(from_the_right_transposed, from_the_right_transposed), (by_triangles, by_factors), (of_cholesky, of_cholesky)]
    + [(each, each) for each in (of_cholesky_above, inverse_of_cholesky, inverse_of_cholesky_above)]
    + [(lambda *args: inverse_of_cholesky(*args), inverse_of_cholesky_above), (by_reflections, determinant)]
    + [(each, each) for each in (determinant, sign_and_logarithm, logarithm, least_squares, pseudoinverse)]
    + [(least_squares_by_reflections, least_squares), (wide_pseudoinverse, wide_pseudoinverse)]
    + [(each, least_norm) for each in (least_norm, least_norm_by_reflections)]
    + [(each, each) for each in (least_norm_of_a_vector, least_squares_of_a_vector, pseudoinverse_of_a_gram_matrix)],
)
def test_right_ones_are_accepted(candidate: Callable[..., Any], spec: Any, dtype: torch.dtype) -> None:
    judgement = judge_with(candidate, spec, dtype)
    assert str(judgement.verdict) == "accepted", str(judgement)
    text = judgement.findings[0].text
    assert ("elements by their residual" in text) is (spec not in (determinant, sign_and_logarithm, logarithm))
    assert " of " not in text


@pytest.mark.one_fast_in(6)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("candidate", "spec"),
    [
        (off(packed, 0), packed),
        (lambda *args: (packed(*args)[0], packed(*args)[1].flip(-1)), packed),
        (lambda *args: (*packed_and_status(*args)[:2], packed_and_status(*args)[2] + 1), packed_and_status),
        (by_factors, by_transposed_factors),
        (by_transposed_factors, by_factors),
        (lambda *args: from_the_right_transposed(*args), from_the_right),
        (of_cholesky, of_cholesky_above),
        *[(off(each), each) for each in (by_factors, of_cholesky, inverse_of_cholesky, determinant, logarithm)],
        (lambda *args: inverse_of_cholesky(*args).mT * torch.ones(5).tril(), inverse_of_cholesky),
        (off(sign_and_logarithm, 0), sign_and_logarithm),
        (off(sign_and_logarithm, 1), sign_and_logarithm),
        (lambda *args: -determinant(*args), determinant),
        *[(off(each), each) for each in (least_squares, least_norm, pseudoinverse, wide_pseudoinverse)],
        (lambda a, b, f, p: L.solve(a[..., :2, :2], b[..., :2, :]), least_squares),
        (of_first_columns, least_norm),
    ],
)
def test_wrong_ones_are_refused(candidate: Callable[..., Any], spec: Any, dtype: torch.dtype) -> None:
    judgement = judge_with(candidate, spec, dtype, ["FWD:given"])
    assert str(judgement.verdict) == "rejected", str(judgement)


@pytest.mark.slow
def test_factors_are_unpacked_exactly() -> None:
    assert str(judge_with(apart, apart, torch.float32).verdict) == "accepted"
    wrong = judge_with(lambda *args: (apart(*args)[0].mT, *apart(*args)[1:]), apart, torch.float32)
    assert str(wrong.verdict) == "rejected"


def test_what_has_no_law_is_refused() -> None:
    def all_of_it(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
        return L.lstsq(a, b)

    def rank(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
        return L.lstsq(a, b).rank

    for spec, text in ((all_of_it, "some are not read; give the others by name"), (rank, "some are not read")):
        assert text in judge_with(spec, spec, torch.float32).error


def test_a_factor_of_a_matrix_that_is_not_positive_definite_has_a_status() -> None:
    def with_status(a: Tensor, b: Tensor, f: Tensor, p: Tensor) -> Any:
        return L.cholesky_ex(a @ a.mT)

    assert str(judge_with(with_status, with_status, torch.float32).verdict) == "accepted"
    wrong = judge_with(lambda *args: (with_status(*args)[0], with_status(*args)[1] + 1), with_status, torch.float32)
    assert str(wrong.verdict) == "rejected"


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_ranks_are_right_as_far_as_rounding_leaves_them_open(dtype: torch.dtype) -> None:
    for candidate, spec in ((rank, rank), (rank_by_singular_values, rank_of_a_gram_matrix)):
        assert str(judge_with(candidate, spec, dtype).verdict) == "accepted"
    for wrong, spec in (
        (lambda *args: (rank(*args)[1], *rank(*args)[1:]), rank),
        (lambda *args: rank_of_a_gram_matrix(*args) + 1, rank_of_a_gram_matrix),
    ):
        assert str(judge_with(wrong, spec, dtype).verdict) == "rejected"
