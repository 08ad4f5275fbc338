"""Candidates of specs that give eigenvalues and eigenvectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from opassay import judge
from opassay.properties.candidates.judgement import Judgement

Tensor = torch.Tensor
ASKED = ["GIVEN", "SEEDS", "SIGNS", "WIDE", "ZEROS", "GRAD"]


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


def judged(candidate: Callable[..., Any], spec: Any, dtype: torch.dtype) -> Judgement:
    a = torch.randn(2, 5, 5, generator=torch.Generator().manual_seed(0), dtype=dtype)
    return judge(candidate, spec, (a,), questions=ASKED, seed=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("candidate", "spec"),
    [(each, each) for each in (eigenvalues, eigenvalues_of_the_upper, eigenpairs, eigenvectors)]
    + [(lambda a: by_jacobi(a)[0], eigenvalues), (by_jacobi, eigenpairs)]
    + [(lambda a: by_jacobi(a)[1].mT, eigenvectors), (lambda a: by_jacobi(a.mT)[0], eigenvalues_of_the_upper)]
    + [(by_jacobi_of_a_gram_matrix, eigenpairs_of_a_gram_matrix)],
)  # fmt: skip
def test_right_ones_are_accepted(candidate: Callable[..., Any], spec: Any, dtype: torch.dtype) -> None:
    judgement = judged(candidate, spec, dtype)
    assert str(judgement.verdict) == "accepted", str(judgement)
    assert "elements by their residual" in judgement.findings[0].text


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
    ],
)
def test_wrong_ones_are_refused(candidate: Callable[..., Any], spec: Any, dtype: torch.dtype) -> None:
    judgement = judged(candidate, spec, dtype)
    assert str(judgement.verdict) == "rejected", str(judgement)
    assert "GIVEN" in [each.question for each in judgement.findings if each.is_wrong]


def test_what_follows_from_vectors_is_refused() -> None:
    def root(a: Tensor) -> Any:
        values, vectors = torch.linalg.eigh(a)
        return (vectors * values.abs().sqrt()[..., None, :]) @ vectors.mT

    judgement = judge(root, root, (torch.eye(3),), questions=["GIVEN"])
    assert "known by its residual alone" in judgement.error
