"""AUTOCAST of contractions that spec and candidate write in two ways: accepted; what is wrong beyond that is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import opassay

Kernel = Callable[..., Any]


def _sums_products(q: Tensor, h: Tensor) -> Tensor:
    return (q[..., None] * h).sum(1)


def _contracts(q: Tensor, h: Tensor) -> Tensor:
    return torch.einsum("nd,nde->ne", q, h)


def _scans(q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> Tensor:
    state, rows = torch.zeros(4, 3), []
    for t in range(6):
        state = state * torch.sigmoid(g[t])[:, None] + k[t][:, None] * v[t]
        rows.append((q[t][:, None] * state).sum(0))
    return torch.stack(rows)


def _multiplies_chunks(q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> Tensor:
    decay = F.logsigmoid(g).cumsum(0)
    later = torch.ones(6, 6, dtype=torch.bool).triu(1)[..., None]
    weights = torch.exp((decay[:, None] - decay).masked_fill(later, -torch.inf))
    return torch.einsum("td,sd,tsd->ts", q, k, weights) @ v


def _interpolates(x: Tensor) -> Tensor:
    return F.interpolate(x, size=(6, 8), mode="bilinear")


def _by_matrices(x: Tensor) -> Tensor:
    rows, columns = (F.interpolate(torch.eye(n)[None], size=2 * n, mode="linear")[0].T for n in (3, 4))
    return rows @ x @ columns.T


def _of_mean_square(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)


RIGHT: dict[str, tuple[Kernel, Kernel, tuple[tuple[int, ...], ...]]] = {
    "products that are summed": (_sums_products, _contracts, ((12, 4), (12, 4, 5))),
    "a recurrence": (_scans, _multiplies_chunks, ((6, 4), (6, 4), (6, 3), (6, 4))),
    "an interpolation": (_interpolates, _by_matrices, ((1, 2, 3, 4),)),
}
FAULTS: dict[str, tuple[Kernel, Kernel, tuple[tuple[int, ...], ...]]] = {
    "a factor": (_sums_products, lambda q, h: 1.05 * _contracts(q, h), ((12, 4), (12, 4, 5))),
    "eight bits": (
        _sums_products, lambda q, h: _contracts(q.to(torch.float8_e4m3fn).float(), h), ((12, 4), (12, 4, 5)),
    ),
    "no contraction": (lambda x, y: F.silu(x) * y, lambda x, y: (F.silu(x) * y).bfloat16().float(), ((9, 4), (9, 4))),
    "what is outside of the mean": (_of_mean_square, lambda x: _of_mean_square(x).bfloat16().float(), ((4, 32),)),
    "a factor of an interpolation": (_interpolates, lambda x: 1.05 * _by_matrices(x), ((1, 2, 3, 4),)),
    "integers": (_sums_products, lambda q, h: _contracts(q, h).int(), ((12, 4), (12, 4, 5))),
}  # fmt: skip


def _verdict(kernel: Kernel, spec: Kernel, shapes: tuple[tuple[int, ...], ...]) -> tuple[str, list[str]]:
    generator = torch.Generator().manual_seed(3)
    operands = tuple(torch.randn(shape, generator=generator) for shape in shapes)
    judgement = opassay.judge(kernel, spec, operands, questions=["FWD:given", "AUTOCAST"], seed=0)
    return judgement.verdict, [finding.question for finding in judgement.causes]


@pytest.mark.fast_cases("an interpolation")
@pytest.mark.parametrize("name", RIGHT)
def test_a_contraction_may_be_written_in_two_ways(name: str) -> None:
    spec, kernel, shapes = RIGHT[name]
    for each in (spec, kernel):
        assert _verdict(each, spec, shapes) == ("accepted", [])


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_beyond_that_is_rejected(name: str) -> None:
    spec, mistake, shapes = FAULTS[name]
    right = {s: k for s, k, _ in RIGHT.values()}.get(spec, spec)
    assert _verdict(lambda *x: mistake(*x) if torch.is_autocast_enabled("cpu") else right(*x), spec, shapes) == (
        "rejected",
        ["AUTOCAST"],
    )
