"""Systems of complex equations, and their Cholesky factors: other algorithms are accepted, mistakes are rejected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import opassay
from tests.traced_once import traced_once

Kernel = Callable[[Tensor, Tensor], Tensor]
QUESTIONS = ["FWD:given", "FWD:seeds", "FWD:wide", "SPECIAL:zeros", "LAYOUT:strides"]


def _solve_real_form(a: Tensor, b: Tensor) -> Tensor:
    rows = [torch.cat([a.real, -a.imag], -1), torch.cat([a.imag, a.real], -1)]
    x = torch.linalg.solve(torch.cat(rows, -2), torch.cat([b.real, b.imag], -2))
    real, imaginary = x.chunk(2, -2)
    return torch.complex(real.contiguous(), imaginary.contiguous())


def _solve_by_reflections(a: Tensor, b: Tensor) -> Any:
    q, r = torch.linalg.qr(a)
    return torch.linalg.solve_triangular(r, q.mH @ b, upper=True)


def _one(a: Tensor) -> Tensor:
    return torch.eye(a.shape[-1], dtype=a.dtype)


def _gram(a: Tensor) -> Tensor:
    return a @ a.mH + _one(a)


def _factor(a: Tensor, b: Tensor) -> Any:
    return torch.linalg.cholesky(_gram(a))


def _factor_by_columns(a: Tensor, b: Tensor) -> Tensor:
    rest, columns = _gram(a), []
    for j in range(a.shape[-1]):
        root = rest[..., j, j].real.sqrt()[..., None]
        column = torch.where(torch.arange(a.shape[-1]) == j, root, rest[..., j] / root)
        columns.append(torch.where(torch.arange(a.shape[-1]) < j, 0, column))
        rest = rest - columns[-1][..., None] * columns[-1][..., None, :].conj()
    return torch.stack(columns, -1)


#: Specs, and other algorithms of each.
RIGHT: dict[str, tuple[Kernel, ...]] = {
    "solution": (torch.linalg.solve, _solve_real_form, _solve_by_reflections),
    "solution from the right": (
        lambda a, b: torch.linalg.solve(a, b, left=False), lambda a, b: _solve_real_form(a.mT, b.mT).mT,
    ),
    "solution of a vector": (
        lambda a, b: torch.linalg.solve(a, b[0]), lambda a, b: _solve_real_form(a, b[0][:, None])[:, 0],
    ),
    "inverse": (
        lambda a, b: torch.linalg.inv(a), lambda a, b: torch.linalg.solve(a.mT, _one(a)).mT,
        lambda a, b: _solve_real_form(a, _one(a)),
    ),
    "factor": (_factor, _factor_by_columns),
    "upper factor": (
        lambda a, b: torch.linalg.cholesky(_gram(a), upper=True), lambda a, b: _factor_by_columns(a, b).mH,
    ),
}  # fmt: skip

#: What no right algorithm gives, of the function and the operands.
MISTAKES: dict[str, Callable[[Kernel, Tensor, Tensor], Tensor]] = {
    "conjugate": lambda f, a, b: f(a, b).conj_physical(),
    "conjugate matrix": lambda f, a, b: f(a.conj_physical(), b),
    "transpose": lambda f, a, b: f(a.mT, b),
    "larger by a thousandth": lambda f, a, b: f(a, b) * (1 + 1e-3),
    "real part": lambda f, a, b: torch.complex(f(a, b).real, torch.zeros_like(f(a, b).real)),
    "float32": lambda f, a, b: f(a.to(torch.complex64), b.to(torch.complex64)).to(a.dtype),
}


def _two(dtype: torch.dtype, n: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(6)
    a, b = (torch.view_as_complex(torch.randn(n, n, 2, generator=generator, dtype=dtype)) for _ in "ab")
    return a, b


@pytest.mark.one_fast_in(12)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", RIGHT)
def test_algorithms_are_accepted(name: str, dtype: torch.dtype) -> None:
    for kernel in RIGHT[name]:
        judgement = opassay.judge(kernel, traced_once(RIGHT[name][0]), _two(dtype), questions=QUESTIONS, seed=0)
        assert judgement.verdict == "accepted", f"{name}\n{judgement}"


@pytest.mark.one_fast_in(11)
@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("name", RIGHT)
def test_mistakes_are_rejected(name: str, mistake: str) -> None:
    spec = RIGHT[name][0]
    wrong: Kernel = lambda a, b: MISTAKES[mistake](spec, a, b)  # noqa: E731
    judgement = opassay.judge(wrong, traced_once(spec), _two(torch.float64), questions=["FWD:given"], seed=0)
    assert judgement.verdict == "rejected", str(judgement)


def test_a_matrix_that_is_not_hermitian_has_no_factor_to_judge() -> None:
    a, b = _two(torch.float64)
    judgement = opassay.judge(
        lambda a, b: 2 * torch.linalg.cholesky_ex(a)[0], lambda a, b: torch.linalg.cholesky_ex(a)[0], (a, b),
        questions=["FWD:given"], seed=0,
    )  # fmt: skip
    assert judgement.verdict != "rejected", str(judgement)


def test_what_is_computed_from_a_solution_is_judged() -> None:
    def spec(a: Tensor, b: Tensor) -> Any:
        return torch.linalg.solve(a, b) * 2

    def wrong(a: Tensor, b: Tensor) -> Any:
        return torch.linalg.solve(a, b) * 2.002

    for candidate, verdict in ((spec, "accepted"), (wrong, "rejected")):
        assert opassay.judge(candidate, spec, _two(torch.float64), questions=["FWD:given"]).verdict == verdict
