"""Products of complex matrices under autocast: those of parts are accepted, mistakes are rejected."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import opassay

Kernel = Callable[[Tensor, Tensor], Tensor]


def _join(real: Tensor, imaginary: Tensor) -> Tensor:
    return torch.complex(real.float(), imaginary.float())


def _by_parts(multiply: Kernel) -> Kernel:
    """By four real products, as layers of complex weights often have it."""

    def kernel(z: Tensor, w: Tensor) -> Tensor:
        real = multiply(z.real, w.real) - multiply(z.imag, w.imag)
        return _join(real, multiply(z.real, w.imag) + multiply(z.imag, w.real))

    return kernel


def _multiply(z: Tensor, w: Tensor) -> Tensor:
    return z @ w.mT


def _in_float32(z: Tensor, w: Tensor) -> Tensor:
    with torch.autocast("cpu", enabled=False):
        return z @ w.mT


def _layer(z: Tensor, w: Tensor) -> Tensor:
    return F.linear(z, w, w[:, 0])


def _layer_by_parts(z: Tensor, w: Tensor) -> Tensor:
    real = F.linear(z.real, w.real, w.real[:, 0]) - F.linear(z.imag, w.imag)
    return _join(real, F.linear(z.real, w.imag, w.imag[:, 0]) + F.linear(z.imag, w.real))


def _of_vectors(z: Tensor, w: Tensor) -> Tensor:
    return z @ w[0]


def _of_stacks(z: Tensor, w: Tensor) -> Tensor:
    return z[None].expand(2, -1, -1) @ w.mT[None]


def _scaled(z: Tensor, w: Tensor) -> Tensor:
    return torch.addmm(z @ w.mT, z, w.mT, beta=2, alpha=-1)


def _scaled_by_parts(z: Tensor, w: Tensor) -> Tensor:
    product = _by_parts(_multiply)
    return 2 * product(z, w) - product(z, w)


def _verdict_and_causes(kernel: Kernel, spec: Kernel) -> tuple[str, list[str]]:
    generator = torch.Generator().manual_seed(3)
    z, w = (torch.view_as_complex(torch.randn(5, 4, 2, generator=generator)) for _ in "zw")
    judgement = opassay.judge(kernel, spec, (z, w), questions=["FWD:given", "AUTOCAST"], seed=0)
    return judgement.verdict, [finding.question for finding in judgement.causes]


@pytest.mark.fast_cases("_multiply")
@pytest.mark.parametrize(
    ("spec", "kernel"),
    [
        (_multiply, _by_parts(_multiply)),
        (_layer, _layer_by_parts),
        (_of_vectors, _by_parts(_of_vectors)),
        (_of_stacks, _by_parts(_of_stacks)),
        (_scaled, _scaled_by_parts),
        (lambda z, w: _multiply(z, w).real, lambda z, w: z.real @ w.real.mT - z.imag @ w.imag.mT),
    ],
)
def test_products_of_parts_may_be_narrow(spec: Kernel, kernel: Kernel) -> None:
    for each in (spec, kernel):
        assert _verdict_and_causes(each, spec) == ("accepted", [])


def _under_autocast(mistake: Kernel) -> Kernel:
    return lambda z, w: mistake(z, w) if torch.is_autocast_enabled("cpu") else _multiply(z, w)


@pytest.mark.one_fast_in(2)
@pytest.mark.parametrize(
    "mistake",
    [
        lambda z, w: _join(z.real @ w.real.mT, z.real @ w.imag.mT),
        lambda z, w: _multiply(z, w.conj()),
        lambda z, w: 1.1 * _multiply(z, w),
        lambda z, w: _multiply(_join(*(x.to(torch.float8_e4m3fn) for x in (z.real, z.imag))), w),
    ],
)
def test_mistakes_under_autocast_are_rejected(mistake: Kernel) -> None:
    assert _verdict_and_causes(_under_autocast(mistake), _multiply) == ("rejected", ["AUTOCAST"])


def test_products_that_a_spec_computes_without_autocast_are_not_narrow() -> None:
    assert _verdict_and_causes(_multiply, _in_float32) == ("accepted", [])
    assert _verdict_and_causes(_by_parts(_multiply), _in_float32) == ("rejected", ["AUTOCAST"])
