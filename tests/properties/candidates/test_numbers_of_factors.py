"""Candidates of specs that go on with the result of a factorisation: right ones in other algorithms, and faults."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import opassay
from tests.traced_once import traced_once

_L = torch.linalg
_HALF_LOG = 0.5 * math.log(2 * math.pi)


def _definite(a: Tensor) -> Any:
    return a @ a.mT / a.shape[-1] + torch.eye(a.shape[-1], dtype=a.dtype)


def likelihood(a: Tensor, x: Tensor) -> Any:
    factor = _L.cholesky(_definite(a))
    z = _L.solve_triangular(factor, x.mT, upper=False)
    return -0.5 * (z**2).sum(0) - factor.diagonal().log().sum() - len(a) * _HALF_LOG


def likelihood_by_solve(a: Tensor, x: Tensor, constant: float = _HALF_LOG) -> Any:
    s = _definite(a)
    return -0.5 * (x * _L.solve(s, x.mT).mT).sum(-1) - 0.5 * torch.logdet(s) - len(a) * constant


def likelihood_by_inverse(a: Tensor, x: Tensor) -> Any:
    s = _definite(a)
    return -0.5 * ((x @ _L.inv(s)) * x).sum(-1) - 0.5 * _L.slogdet(s)[1] - len(a) * _HALF_LOG


def solved_by_factor(a: Tensor, x: Tensor) -> Any:
    return (x * torch.cholesky_solve(x.mT, _L.cholesky(_definite(a))).mT).sum(-1)


def power(exponent: float) -> Callable[[Tensor, Tensor], Any]:
    def root(a: Tensor, x: Tensor) -> Any:
        values, vectors = _L.eigh(_definite(a))
        return vectors @ torch.diag(values**exponent) @ vectors.mT

    return root


inverse_root = power(-0.25)


def inverse_root_by_singular_values(a: Tensor, x: Tensor) -> Any:
    u, s, _ = _L.svd(a)
    return (u * (s * s / len(a) + 1).pow(-0.25)) @ u.mT


def step(a: Tensor, x: Tensor) -> Any:
    values, vectors = _L.eigh(_definite(a))
    return vectors @ ((vectors.mT @ x[0]) / values.sqrt())


def polar(a: Tensor, x: Tensor) -> Any:
    u, _, vh = _L.svd(_definite(a) + a / 8)
    return u @ vh


def polar_by_newton(a: Tensor, x: Tensor) -> Any:
    y = (_definite(a) + a / 8).double()
    for _ in range(30):
        y = 0.5 * (y + _L.inv(y).mT)
    return y.to(a.dtype)


def _too_large(spec: Callable[[Tensor, Tensor], Any], share: float) -> Callable[[Tensor, Tensor], Any]:
    return lambda a, x: spec(a, x) * (1 + share)


def _transposed(a: Tensor, x: Tensor) -> Any:
    factor = _L.cholesky(_definite(a))
    z = _L.solve_triangular(factor.mT, x.mT, upper=True)
    return -0.5 * (z**2).sum(0) - factor.diagonal().log().sum() - len(a) * _HALF_LOG


def _verdict(candidate: Any, spec: Any) -> str:
    torch.manual_seed(0)
    arguments = torch.randn(5, 5) / 2, torch.randn(3, 5)
    return str(
        opassay.judge(
            candidate, traced_once(spec), arguments, questions=["FWD:given", "FWD:seeds", "FWD:small"], seed=0
        ).verdict
    )


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize(
    ("candidate", "spec"),
    [
        (likelihood, likelihood), (likelihood_by_solve, likelihood), (likelihood_by_inverse, likelihood),
        (likelihood, likelihood_by_solve), (likelihood_by_solve, likelihood_by_inverse),
        (lambda a, x: (x * _L.solve(_definite(a), x.mT).mT).sum(-1), solved_by_factor),
        (inverse_root_by_singular_values, inverse_root), (lambda a, x: power(-0.5)(a, x) @ x[0], step),
        (polar_by_newton, polar),
    ],
)  # fmt: skip
def test_right_ones_in_another_algorithm_are_accepted(candidate: Any, spec: Any) -> None:
    assert _verdict(candidate, spec) == "accepted"


@pytest.mark.fast_cases("solved_by_factor")
@pytest.mark.parametrize(
    ("candidate", "spec"),
    [
        (lambda a, x: likelihood_by_solve(a, x, 0.0), likelihood), (_transposed, likelihood),
        (_too_large(likelihood_by_solve, 1e-3), likelihood), (_too_large(solved_by_factor, 1e-3), solved_by_factor),
        (power(-0.5), inverse_root), (_too_large(inverse_root, 1e-3), inverse_root),
        (lambda a, x: _L.solve(_definite(a), x[0]), step), (_too_large(polar, 0.01), polar),
    ],
)  # fmt: skip
def test_wrong_ones_are_rejected(candidate: Any, spec: Any) -> None:
    assert _verdict(candidate, spec) == "rejected"
