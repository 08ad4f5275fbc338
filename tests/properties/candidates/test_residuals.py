"""Candidates of specs that give factors and solutions, which are judged by their residuals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from opassay import SpecError, assert_conforms, bound, judge
from opassay.properties.candidates.judgement import Judgement
from tests.traced_once import traced_once

Tensor = torch.Tensor
QUESTIONS = ["FWD:given", "FWD:seeds", "FWD:signs", "FWD:nearone", "FWD:wide", "VJP:grad"]


def factor(x: Tensor) -> Any:
    """Of a Gram matrix, which is symmetric whatever x is."""
    return torch.linalg.cholesky(x @ x.mT + torch.eye(x.shape[-2], dtype=x.dtype))


def solution(t: Tensor, b: Tensor) -> Any:
    return torch.linalg.solve_triangular(t, b, upper=False)


def by_columns(x: Tensor) -> Tensor:
    a = x @ x.mT + torch.eye(x.shape[-2], dtype=x.dtype)
    columns: list[Tensor] = []
    for j in range(a.shape[-1]):
        rest = a[..., j] - sum((column * column[..., j, None] for column in columns), torch.zeros_like(a[..., j]))
        rest = torch.where(torch.arange(a.shape[-1]) < j, 0.0, rest)
        columns.append(rest / rest[..., j, None].sqrt())
    return torch.stack(columns, -1)


def in_blocks(x: Tensor) -> Tensor:
    a = x @ x.mT + torch.eye(x.shape[-2], dtype=x.dtype)
    half = a.shape[-1] // 2
    top = torch.linalg.cholesky(a[..., :half, :half])
    below = torch.linalg.solve_triangular(top, a[..., half:, :half].mT, upper=False).mT
    end = torch.linalg.cholesky(a[..., half:, half:] - below @ below.mT)
    zeros = torch.zeros_like(below.mT)
    return torch.cat([torch.cat([top, zeros], -1), torch.cat([below, end], -1)], -2)


def by_rows(t: Tensor, b: Tensor) -> Tensor:
    rows: list[Tensor] = []
    for i in range(t.shape[-1]):
        rest = b[..., i, :]
        for j, row in enumerate(rows):
            rest = rest - t[..., i, j, None] * row
        rows.append(rest * (1 / t[..., i, i, None]))
    return torch.stack(rows, -2)


def from_below(t: Tensor, b: Tensor) -> Any:
    return torch.linalg.solve_triangular(t.flip(-1, -2), b.flip(-2), upper=True).flip(-2)


def signs(x: Tensor) -> Any:
    return -factor(x)


def without_a_term(x: Tensor) -> Any:
    return torch.linalg.cholesky(x @ x.mT + torch.eye(x.shape[-2], dtype=x.dtype) * (1 + 1e-3))


def in_bfloat16(x: Tensor) -> Any:
    return factor(x).bfloat16().to(x.dtype)


def transposed(x: Tensor) -> Any:
    return factor(x).mT


def of_the_other_triangle(t: Tensor, b: Tensor) -> Any:
    return torch.linalg.solve_triangular(t, b, upper=True)


def of_ones(t: Tensor, b: Tensor) -> Any:
    return torch.linalg.solve_triangular(t, b, upper=False, unitriangular=True)


def once_more(t: Tensor, b: Tensor) -> Any:
    return solution(t, b) * (1 + 1e-5)


def by_series(t: Tensor, b: Tensor) -> Tensor:
    """The Neumann series of the strict triangle, without its last terms."""
    diagonal = t.diagonal(dim1=-2, dim2=-1)[..., None]
    x = b / diagonal
    for _ in range(t.shape[-1] // 2):
        x = (b - t.tril(-1) @ x) / diagonal
    return x


def judge_solver(
    candidate: Callable[..., Any], spec: Any, dtype: torch.dtype, questions: Sequence[str] = QUESTIONS
) -> Judgement:
    generator = torch.Generator().manual_seed(0)
    x, b = (torch.randn(2, 6, n, generator=generator, dtype=dtype) for n in (6, 2))
    return judge(candidate, traced_once(spec), (x,) if spec is factor else (x, b), questions=questions, seed=0)


@pytest.mark.one_fast_in(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("candidate", "spec"),
    [(factor, factor), (by_columns, factor), (in_blocks, factor)]
    + [(each, solution) for each in (solution, by_rows, from_below)],
)  # fmt: skip
def test_right_ones_are_accepted(candidate: Callable[..., Tensor], spec: Any, dtype: torch.dtype) -> None:
    judgement = judge_solver(candidate, spec, dtype)
    assert str(judgement.verdict) == "accepted", str(judgement)
    texts = {each.question: each.text for each in judgement.findings}
    elements = 2 * 6 * (6 if spec is factor else 2)
    assert all(texts[code] == f"{elements} elements by their residual" for code in QUESTIONS[:-1])
    assert (
        texts["VJP:grad"]
        == "the spec has a factor or a solution, known by its residual, of which no gradient is judged"
    )


@pytest.mark.one_fast_in(5)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("candidate", "spec"),
    [(each, factor) for each in (signs, without_a_term, in_bfloat16, transposed)]
    + [(each, solution) for each in (of_the_other_triangle, of_ones, once_more, by_series)],
)  # fmt: skip
def test_wrong_ones_are_refused(candidate: Callable[..., Tensor], spec: Any, dtype: torch.dtype) -> None:
    judgement = judge_solver(candidate, spec, dtype, ["FWD:given"])
    assert str(judgement.verdict) == "rejected", str(judgement)


def test_a_card_names_the_residual() -> None:
    wrong = judge_solver(once_more, solution, torch.float32).causes[0].wrong
    assert wrong is not None
    assert "need what leaves less of its equation" in wrong.title
    assert any(line.startswith("why        T X - B at [") for line in wrong.lines)


def test_what_follows_from_a_factor_without_numbers_is_refused() -> None:
    def spec(a: Tensor) -> Any:
        return torch.linalg.qr(a)[1].sum(-1)

    judgement = judge(spec, spec, (torch.eye(3),), questions=["FWD:given"])
    assert "aten.sum" in judgement.error
    assert "known by its residual alone" in judgement.error


def test_a_factor_of_fewer_digits_than_the_inputs_is_refused() -> None:
    def narrow(x: Tensor) -> Any:
        return torch.linalg.cholesky(x.float())

    def wide(x: Tensor) -> Any:
        return torch.linalg.cholesky(x.double())

    judgement = judge(narrow, narrow, (torch.eye(3).double(),), questions=["FWD:given"])
    assert "in float32, and the inputs are of more digits" in judgement.error
    assert str(judge(wide, wide, (torch.eye(3),), questions=["FWD:given"]).verdict) == "accepted"


@pytest.mark.filterwarnings("ignore:torch.cholesky is deprecated", "ignore:torch.triangular_solve is deprecated")
def test_other_forms_are_read() -> None:
    def upper(x: Tensor) -> Any:
        return torch.linalg.cholesky(x, upper=True)

    def old(b: Tensor, t: Tensor) -> Tensor:
        return torch.triangular_solve(b, t, upper=False, transpose=True).solution

    def from_the_right(t: Tensor, b: Tensor) -> Any:
        return torch.linalg.solve_triangular(t, b.mT, upper=True, left=False)

    x, b = torch.randn(4, 4, generator=torch.Generator().manual_seed(1)).double(), torch.ones(4, 2).double()

    def uplo(x: Tensor) -> Tensor:
        return torch.cholesky(x)

    def rows(a: Tensor, b: Tensor) -> Any:
        return torch.linalg.solve(a, b.mT, left=False)

    def vector(a: Tensor, b: Tensor) -> Any:
        return torch.linalg.solve_ex(a, b[:, 0])[0]

    def inverse_and_info(a: Tensor) -> Any:
        return torch.linalg.inv_ex(a).inverse

    specs: list[tuple[Callable[..., Any], tuple[Tensor, ...]]] = [(upper, (x @ x.T,)), (uplo, (x @ x.T,))]
    specs += [(old, (b, x)), (from_the_right, (x, b)), (rows, (x, b)), (vector, (x, b))]
    for spec, args in [*specs, (inverse_and_info, (x,)), (lambda a: torch.inverse(a), (x,))]:
        judgement = judge(spec, spec, args, questions=["FWD:given"])
        assert str(judgement.verdict) == "accepted", str(judgement)
        wrong = judge(lambda *each, spec=spec: spec(*each) * (1 + 1e-12), spec, args, questions=["FWD:given"])
        assert str(wrong.verdict) == "rejected"


def test_one_output_is_held_by_its_residual_and_has_no_bound() -> None:
    x = torch.randn(3, 3, generator=torch.Generator().manual_seed(2))
    assert_conforms(by_columns(x), factor, x)
    with pytest.raises(AssertionError, match="rounding explains"):
        assert_conforms(factor(x).bfloat16().float(), factor, x)
    with pytest.raises(SpecError, match="judged by its residual: no element has a bound"):
        bound(factor, x)


def answer(a: Tensor, b: Tensor) -> Tensor:
    result: Tensor = torch.linalg.solve(a, b)
    return result


def inverse(a: Tensor, b: Tensor) -> Tensor:
    result: Tensor = torch.linalg.inv(a)
    return result


def by_jordan(a: Tensor, b: Tensor) -> Tensor:
    n, rows = a.shape[-1], torch.cat([a, b], -1).clone()
    for each in rows:
        for k in range(n):
            pivot = k + int(each[k:, k].abs().argmax())
            each[[k, pivot]] = each[[pivot, k]]
            each[k] = each[k] / each[k, k].clone()
            others = torch.arange(n) != k
            each[others] = each[others] - each[others, k, None] * each[k]
    return rows[..., n:]


def inverse_by_jordan(a: Tensor, b: Tensor) -> Tensor:
    return by_jordan(a, torch.eye(a.shape[-1], dtype=a.dtype).expand_as(a))


@pytest.mark.one_fast_in(4)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("candidate", "spec"), [(by_jordan, answer), (inverse_by_jordan, inverse)])
def test_solutions_and_inverses_are_judged(
    candidate: Callable[..., Tensor], spec: Callable[..., Tensor], dtype: torch.dtype
) -> None:
    right = judge_solver(candidate, spec, dtype)
    assert str(right.verdict) == "accepted", str(right)
    assert all("by their residual" in each.text for each in right.findings[:-1])

    def of_bfloat16(a: Tensor, b: Tensor) -> Tensor:
        return candidate(a.bfloat16().to(a.dtype), b)

    def transposed_matrix(a: Tensor, b: Tensor) -> Tensor:
        return candidate(a.mT, b)

    for wrong in (of_bfloat16, transposed_matrix):
        assert str(judge_solver(wrong, spec, dtype).verdict) == "rejected"


def factors(a: Tensor, b: Tensor) -> Any:
    return torch.linalg.qr(a[..., :4])


def gram_schmidt_twice(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    columns: list[Tensor] = []
    for j in range(4):
        rest = a[..., j]
        for column in columns * 2:
            rest = rest - column * (column * rest).sum(-1, keepdim=True)
        columns.append(rest / (rest * rest).sum(-1, keepdim=True).sqrt())
    q = torch.stack(columns, -1)
    return q, (q.mT @ a[..., :4]).triu()


def with_another_sign(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    q, r = gram_schmidt_twice(a, b)
    return q, r * torch.where(torch.arange(4) == 2, -1, 1)[:, None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_orthogonal_and_triangular_factors_are_judged_together(dtype: torch.dtype) -> None:
    right = judge_solver(gram_schmidt_twice, factors, dtype)
    assert str(right.verdict) == "accepted", str(right)
    assert right.findings[0].text == "80 elements by their residual"
    wrong = judge_solver(with_another_sign, factors, dtype).causes[0].wrong
    assert wrong is not None
    assert any("of Q R - A is" in line for line in wrong.lines)


def test_one_factor_may_be_given_alone() -> None:
    def orthogonal(a: Tensor, b: Tensor) -> Any:
        return torch.linalg.qr(a)[0]

    def triangular(a: Tensor, b: Tensor) -> Any:
        return torch.linalg.qr(a, "r")[1].mT

    def scaled(a: Tensor, b: Tensor) -> Any:
        return triangular(a, b) * 1.001

    assert str(judge_solver(orthogonal, orthogonal, torch.float64).verdict) == "accepted"
    assert str(judge_solver(triangular, triangular, torch.float64).verdict) == "accepted"
    assert str(judge_solver(scaled, triangular, torch.float64).verdict) == "rejected"


def permutation_and_triangles(a: Tensor, b: Tensor) -> Any:
    return torch.linalg.lu(a[..., :4])


def by_elimination(a: Tensor, b: Tensor, pivots: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    p, lower, upper = (torch.eye(6, dtype=a.dtype).expand(2, 6, 6).clone() for _ in range(3))
    upper = a[..., :4].clone()
    for i in range(len(a)):
        for k in range(4):
            row = k + int(upper[i, k:, k].abs().argmax()) if pivots else k
            upper[i, [k, row]] = upper[i, [row, k]]
            lower[i, [k, row], :k] = lower[i, [row, k], :k]
            p[i, :, [k, row]] = p[i, :, [row, k]]
            factor = torch.where(upper[i, k, k] == 0, 0, upper[i, k + 1 :, k] / upper[i, k, k])
            lower[i, k + 1 :, k], upper[i, k + 1 :, k] = factor, 0
            upper[i, k + 1 :, k + 1 :] -= factor[:, None] * upper[i, k, k + 1 :]
    return p, lower[..., :4], upper[..., :4, :]


def without_pivots(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return by_elimination(a, b, pivots=False)


def with_the_transposed_permutation(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    p, lower, upper = by_elimination(a, b)
    return p.mT, lower, upper


@pytest.mark.fast_cases("torch.float32")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_permutation_and_triangles_are_judged_together(dtype: torch.dtype) -> None:
    right = judge_solver(by_elimination, permutation_and_triangles, dtype)
    assert str(right.verdict) == "accepted", str(right)
    assert right.findings[0].text == "152 elements by their residual"
    for wrong in (without_pivots, with_the_transposed_permutation):
        assert str(judge_solver(wrong, permutation_and_triangles, dtype).verdict) == "rejected"
    alone = judge(
        lambda a: torch.linalg.lu(a)[2], lambda a: torch.linalg.lu(a)[2], (torch.eye(3),), questions=["FWD:given"]
    )
    assert str(alone.verdict) == "weak"
