"""Candidates of specs that give eigenvalues or singular values, and their vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from opassay import judge
from opassay.properties.candidates.judgement import Judgement
from tests.traced_once import traced_once

Tensor = torch.Tensor
ASKED = ["FWD:given", "FWD:seeds", "FWD:signs", "FWD:wide", "SPECIAL:zeros", "VJP:grad"]


def eigenvalues(a: Tensor) -> Any:
    return torch.linalg.eigvalsh(a)


def eigenvalues_of_the_upper(a: Tensor) -> Any:
    return torch.linalg.eigvalsh(a, UPLO="U")


def eigenpairs(a: Tensor) -> Any:
    return torch.linalg.eigh(a)


def eigenpairs_of_a_gram_matrix(a: Tensor) -> Any:
    return torch.linalg.eigh(a @ a.mT)


def eigenvectors(a: Tensor) -> Any:
    return torch.linalg.eigh(a)[1].mT


def by_jacobi(a: Tensor) -> tuple[Tensor, Tensor]:
    """Of the lower triangle."""
    a = a.tril() + a.tril(-1).mT
    a, n = a.clone(), a.shape[-1]
    v = torch.eye(n, dtype=a.dtype).expand_as(a).clone()
    for _ in range(8):
        for p in range(n):
            for q in range(p + 1, n):
                idle = a[..., p, q] == 0
                tau = (a[..., q, q] - a[..., p, p]) / torch.where(idle, 1.0, 2 * a[..., p, q])
                t = torch.where(tau < 0, -1, 1) / (tau.abs() + (1 + tau * tau).sqrt())
                t = torch.where(idle, 0.0, t)
                c = 1 / (1 + t * t).sqrt()
                turn = torch.stack([torch.stack([c, t * c], -1), torch.stack([-t * c, c], -1)], -2)
                a[..., [p, q]] = a[..., [p, q]] @ turn
                a[..., [p, q], :] = turn.mT @ a[..., [p, q], :]
                v[..., [p, q]] = v[..., [p, q]] @ turn
    values, order = a.diagonal(dim1=-2, dim2=-1).sort()
    return values, v.gather(-1, order[..., None, :].expand_as(v))


def by_jacobi_of_a_gram_matrix(a: Tensor) -> tuple[Tensor, Tensor]:
    return by_jacobi(a @ a.mT)


def by_singular_values(a: Tensor) -> Any:
    return torch.linalg.svdvals(a.tril() + a.tril(-1).mT).flip(-1)


def singular_values(a: Tensor) -> Any:
    return torch.linalg.svdvals(a[..., :3])


def singular_triples(a: Tensor) -> Any:
    return torch.linalg.svd(a[..., :3], full_matrices=False)


def all_singular_vectors(a: Tensor) -> Any:
    u, _, vh = torch.linalg.svd(a[..., :3])
    return u, vh


def right_vectors(a: Tensor) -> Any:
    return torch.svd(a[..., :3])[2]


def by_eigenpairs(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Those of the matrix with A beside zeros, and Aᵀ below."""
    a = a[..., :3]
    n, zeros = a.shape[-2], a.new_zeros(())
    top = torch.cat([zeros.expand(*a.shape[:-2], n, n), a], -1)
    below = torch.cat([a.mT, zeros.expand(*a.shape[:-2], 3, 3)], -1)
    values, vectors = torch.linalg.eigh(torch.cat([top, below], -2))
    u, v = vectors[..., :n, -3:].flip(-1), vectors[..., n:, -3:].flip(-1)
    return u * 2**0.5, values[..., -3:].flip(-1), v.mT * 2**0.5


def of_another_sign(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    u, s, vh = singular_triples(a)
    return u * torch.where(torch.arange(3) == 1, -1, 1), s, vh


def judge_spectrum(
    candidate: Callable[..., Any], spec: Any, dtype: torch.dtype, questions: Sequence[str] = ASKED
) -> Judgement:
    a = torch.randn(2, 5, 5, generator=torch.Generator().manual_seed(0), dtype=dtype)
    return judge(candidate, traced_once(spec), (a,), questions=questions, seed=0)


@pytest.mark.one_fast_in(6)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("candidate", "spec"),
    [(each, each) for each in (eigenvalues, eigenvalues_of_the_upper, eigenpairs, eigenvectors)]
    + [(lambda a: by_jacobi(a)[0], eigenvalues), (by_jacobi, eigenpairs)]
    + [(lambda a: by_jacobi(a)[1].mT, eigenvectors), (lambda a: by_jacobi(a.mT)[0], eigenvalues_of_the_upper)]
    + [(by_jacobi_of_a_gram_matrix, eigenpairs_of_a_gram_matrix)]
    + [(each, each) for each in (singular_values, singular_triples, all_singular_vectors, right_vectors)],
)  # fmt: skip
def test_right_ones_are_accepted(candidate: Callable[..., Any], spec: Any, dtype: torch.dtype) -> None:
    judgement = judge_spectrum(candidate, spec, dtype)
    assert str(judgement.verdict) == "accepted", str(judgement)
    assert "elements by their residual" in judgement.findings[0].text


@pytest.mark.one_fast_in(5)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("candidate", "spec"),
    [
        (eigenvalues_of_the_upper, eigenvalues),
        (by_singular_values, eigenvalues),
        (lambda a: eigenvalues(a.bfloat16().to(a.dtype)), eigenvalues),
        (lambda a: eigenvalues(a).flip(-1), eigenvalues),
        (lambda a: (eigenpairs(a)[0], eigenvectors(a)), eigenpairs),
        (lambda a: eigenpairs(a.mT), eigenpairs),
        (lambda a: eigenpairs(a)[1], eigenvectors),
        (lambda a: eigenvectors(a) * 1.001, eigenvectors),
        (of_another_sign, singular_triples),
        (lambda a: (all_singular_vectors(a)[0].flip(-1), all_singular_vectors(a)[1]), all_singular_vectors),
        (lambda a: singular_values(a) * 1.001, singular_values),
        (lambda a: right_vectors(a).mT, right_vectors),
    ],
)
def test_wrong_ones_are_refused(candidate: Callable[..., Any], spec: Any, dtype: torch.dtype) -> None:
    judgement = judge_spectrum(candidate, spec, dtype, ["FWD:given"])
    assert str(judgement.verdict) == "rejected", str(judgement)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_singular_values_may_come_from_eigenvalues(dtype: torch.dtype) -> None:
    a = torch.randn(2, 5, 5, generator=torch.Generator().manual_seed(0), dtype=dtype)
    for seed in range(3):
        judgement = judge(by_eigenpairs, singular_triples, (a,), questions=["FWD:given", "FWD:seeds"], seed=seed)
        assert str(judgement.verdict) == "accepted", str(judgement)


def test_what_follows_from_vectors_is_refused() -> None:
    def rotated(a: Tensor) -> Any:
        return torch.linalg.eigh(a)[1].mT @ torch.ones(3, 1)

    judgement = judge(rotated, rotated, (torch.eye(3),), questions=["FWD:given"])
    assert "whose signs and bases an evaluation chooses" in judgement.error
