"""Operations on complex arguments: torch's own and those by parts are accepted in all questions, and no mistake is."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import opassay
from tests.traced_once import traced_once

QUESTIONS = [
    "FWD:given",
    "FWD:seeds",
    "FWD:signs",
    "FWD:nearone",
    "FWD:wide",
    "SPECIAL:zeros",
    "DATA:integers",
    "SPECIAL:nan",
    "SPECIAL:inf",
    "LAYOUT:strides",
    "VJP:grad",
]
ROWS = torch.tensor([[0, 2, 1, 0]])


def _join(real: Any, imaginary: Any) -> Tensor:
    return torch.complex(*torch.broadcast_tensors(torch.as_tensor(real), torch.as_tensor(imaginary)))


def _multiply(a: Tensor, b: Tensor) -> Tensor:
    return _join(a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real)


def _multiply_matrices(a: Tensor, b: Tensor) -> Tensor:
    """By three real products for each part: the sum of both parts is one of them."""
    return _join(a.real @ b.real - a.imag @ b.imag, a.real @ b.imag + a.imag @ b.real)


def _reciprocal(z: Tensor) -> Tensor:
    size = z.real * z.real + z.imag * z.imag
    return _join(z.real / size, -z.imag / size)


def _root(z: Tensor) -> Tensor:
    """By the larger part, without torch's root of complex numbers."""
    large = ((torch.hypot(z.real, z.imag) + z.real.abs()) / 2).sqrt()
    small = z.imag.abs() / torch.where(large == 0, 1, 2 * large)
    real, imaginary = torch.where(z.real >= 0, large, small), torch.where(z.real >= 0, small, large)
    return _join(real, torch.copysign(imaginary, z.imag))


def _exponential(z: Tensor) -> Tensor:
    return z.real.exp() * _join(z.imag.cos(), z.imag.sin())


def _tanh(z: Tensor) -> Tensor:
    """By an exponential that does not overflow."""
    a, cos, sin = -2 * z.real.abs(), z.imag.cos(), z.imag.sin()
    power, rise = a.exp(), -a.expm1()
    size = rise.square() + 4 * power * cos.square()
    return _join((rise * (1 + power) / size).copysign(z.real), 4 * power * cos * sin / size)


def _log1p(z: Tensor) -> Tensor:
    a, b = z.real, z.imag
    near = (a * (2 + a) + b * b).clamp(min=-0.9).log1p() / 2
    return _join(torch.where(z.abs() < 0.5, near, (1 + z).abs().log()), torch.atan2(b, 1 + a))


def _atanh(z: Tensor) -> Tensor:
    a, b = z.real, z.imag
    real = (4 * a.abs() / ((1 - a.abs()).square() + b.square())).log1p().copysign(a) / 4
    return _join(real, torch.atan2(2 * b, (1 - a) * (1 + a) - b.square()) / 2)


def _asin(z: Tensor) -> Tensor:
    """W. Kahan's, by roots of what is beside one."""
    u, v = _root(1 - z), _root(1 + z)
    return _join(torch.atan2(z.real, (u * v).real), (u.conj() * v).imag.asinh())


def _acos(z: Tensor) -> Tensor:
    u, v = _root(1 - z), _root(1 + z)
    return _join(2 * torch.atan2(u.real, v.real), (v.conj() * u).imag.asinh())


def _acosh(z: Tensor) -> Tensor:
    u, v = _root(z - 1), _root(z + 1)
    return _join((u.conj() * v).real.asinh(), 2 * torch.atan2(u.imag, v.real))


def _with_size_of_mean(spread_and_mean: Any) -> tuple[Tensor, Tensor]:
    spread, mean = spread_and_mean
    return spread, mean.abs()


#: An operation of torch, and the same by parts.
RIGHT: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "square": (lambda z, w: z**2, lambda z, w: _multiply(z, z)),
    "cube": (lambda z, w: z**3, lambda z, w: _multiply(z, _multiply(z, z))),
    "reciprocal": (lambda z, w: 1 / z, lambda z, w: _reciprocal(z)),
    "root": (lambda z, w: z.sqrt(), lambda z, w: _root(z)),
    "logarithm": (lambda z, w: z.log(), lambda z, w: _join(z.abs().log(), z.angle())),
    "logarithm to 2": (lambda z, w: z.log2(), lambda z, w: _join(z.abs().log2(), z.angle() / math.log(2))),
    "logarithm to 10": (lambda z, w: z.log10(), lambda z, w: _join(z.abs().log10(), z.angle() / math.log(10))),
    "inverse sine": (lambda z, w: z.asin(), lambda z, w: _asin(z)),
    "inverse cosine": (lambda z, w: z.acos(), lambda z, w: _acos(z)),
    "inverse tangent": (lambda z, w: z.atan(), lambda z, w: _atanh(z * 1j) * -1j),
    "inverse hyperbolic sine": (lambda z, w: z.asinh(), lambda z, w: _asin(z * 1j) * -1j),
    "inverse hyperbolic cosine": (lambda z, w: z.acosh(), lambda z, w: _acosh(z)),
    "inverse hyperbolic tangent": (lambda z, w: z.atanh(), lambda z, w: _atanh(z)),
    "sine": (lambda z, w: z.sin(), lambda z, w: _join(z.real.sin() * z.imag.cosh(), z.real.cos() * z.imag.sinh())),
    "cosine": (lambda z, w: z.cos(), lambda z, w: _join(z.real.cos() * z.imag.cosh(), -z.real.sin() * z.imag.sinh())),
    "hyperbolic sine": (lambda z, w: z.sinh(), lambda z, w: (z * -1j).sin() * 1j),
    "hyperbolic cosine": (lambda z, w: z.cosh(), lambda z, w: (z * 1j).cos()),
    "sign": (lambda z, w: z.sgn(), lambda z, w: _join(z.real / z.abs(), z.imag / z.abs())),
    "matrix and vector": (lambda z, w: z @ w[0], lambda z, w: _multiply_matrices(z, w.mT)[:, 0]),
    "two vectors": (lambda z, w: torch.vdot(z[0], w[0]), lambda z, w: _multiply_matrices(z.conj(), w.mT)[0, 0]),
    "a sum with a product": (
        lambda z, w: torch.addmm(z[:, :3], z, w.mH, beta=2, alpha=1j),
        lambda z, w: z[:, :3] * 2 + 1j * _multiply_matrices(z, w.mH),
    ),
    "products of elements": (lambda z, w: torch.addcmul(z, z, w, value=2), lambda z, w: z + 2 * _multiply(z, w)),
    "running sums": (lambda z, w: z.cumsum(-1), lambda z, w: _join(z.real.cumsum(-1), z.imag.cumsum(-1))),
    "choices": (
        lambda z, w: torch.where(z.real > 0, z, w),
        lambda z, w: _join(torch.where(z.real > 0, z.real, w.real), torch.where(z.real > 0, z.imag, w.imag)),
    ),
    "a real number beside": (
        lambda z, w: torch.cat([z, w.real], -1),
        lambda z, w: _join(torch.cat([z.real, w.real], -1), torch.cat([z.imag, torch.zeros_like(w.imag)], -1)),
    ),
    "a mask": (lambda z, w: z.masked_fill(z.imag > 0, 1 - 2j), lambda z, w: torch.where(z.imag > 0, 1 - 2j, z)),
    "sums at places": (
        lambda z, w: z.scatter_add(0, ROWS, w[:1]), lambda z, w: z + torch.zeros_like(z).scatter(0, ROWS, w[:1]),
    ),
    "several results": (lambda z, w: z.split(3, -1), lambda z, w: (z[:, :3], z[:, 3:])),
    "ones": (
        lambda z, w: torch.ones_like(z) - z.tril(), lambda z, w: 1 - torch.where(torch.ones(3, 4).tril() > 0, z, 0),
    ),
    "hyperbolic tangent": (lambda z, w: z.tanh(), lambda z, w: _tanh(z)),
    "tangent": (lambda z, w: z.tan(), lambda z, w: _tanh(z * 1j) * -1j),
    "sigmoid": (lambda z, w: z.sigmoid(), lambda z, w: _reciprocal(1 + _exponential(-z))),
    "exponential less one": (
        lambda z, w: z.expm1(),
        lambda z, w: _join(
            z.real.expm1() * z.imag.cos() - 2 * (z.imag / 2).sin().square(), z.real.exp() * z.imag.sin()
        ),
    ),
    "logarithm of one more": (lambda z, w: z.log1p(), lambda z, w: _log1p(z)),
    "reciprocal root": (lambda z, w: z.rsqrt(), lambda z, w: _reciprocal(_root(z))),
    "fourth power": (lambda z, w: z**4, lambda z, w: _multiply(_multiply(z, z), _multiply(z, z))),
    "negative power": (lambda z, w: z**-3, lambda z, w: _reciprocal(_multiply(z, _multiply(z, z)))),
    "complex power": (lambda z, w: z**w, lambda z, w: _exponential(_multiply(w, _join(z.abs().log(), z.angle())))),
    "power of a number": (lambda z, w: 2.0**w, lambda z, w: _exponential(w * math.log(2.0))),
    "product": (lambda z, w: z.prod(0), lambda z, w: functools.reduce(_multiply, [*z[1:], z[0]])),
    "running products": (
        lambda z, w: z.cumprod(0), lambda z, w: torch.stack([*itertools.accumulate(z, _multiply)]),
    ),
}  # fmt: skip

#: The same of operations with real results.
REAL: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "equal numbers": (lambda z, w: z == w.real, lambda z, w: (z.real == w.real) & (z.imag == 0)),
    "variance": (
        lambda z, w: z.var(-1),
        lambda z, w: (z - z.mean(-1, keepdim=True)).abs().square().sum(-1) / (z.shape[-1] - 1),
    ),
    "variance and mean": (
        lambda z, w: _with_size_of_mean(torch.var_mean(z, -1, keepdim=True)),
        lambda z, w: (z.real.var(-1, keepdim=True) + z.imag.var(-1, keepdim=True), z.mean(-1, keepdim=True).abs()),
    ),
    "deviation and mean": (
        lambda z, w: _with_size_of_mean(torch.std_mean(z)), lambda z, w: (z.std(), (z.sum() / z.numel()).abs()),
    ),
    "deviation": (lambda z, w: z.std(-1), lambda z, w: (z.real.var(-1) + z.imag.var(-1)).sqrt()),
    "norm": (
        lambda z, w: torch.linalg.vector_norm(z, dim=-1),
        lambda z, w: torch.view_as_real(z).square().sum((-1, -2)).sqrt(),
    ),
    "norm of the order 1": (lambda z, w: torch.linalg.vector_norm(z, 1, dim=0), lambda z, w: z.abs().sum(0)),
}  # fmt: skip


def _pair(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    z, w = (torch.randn(3, 4, 2, generator=generator, dtype=dtype) for _ in "zw")
    return torch.view_as_complex(z), torch.view_as_complex(w)


@pytest.mark.one_fast_in(48)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", [*RIGHT, *REAL])
def test_right_ones_are_accepted(name: str, dtype: torch.dtype) -> None:
    kernels = {**RIGHT, **REAL}[name]
    for kernel in kernels:
        judgement = opassay.judge(kernel, traced_once(kernels[0]), _pair(dtype), questions=QUESTIONS, seed=0)
        assert judgement.verdict == "accepted", str(judgement)


@pytest.mark.one_fast_in(14)
@pytest.mark.parametrize("name", RIGHT)
def test_mistakes_are_rejected(name: str) -> None:
    spec = RIGHT[name][0]

    def changed(change: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
        def kernel(z: Tensor, w: Tensor) -> Any:
            result = spec(z, w)
            return [change(y) for y in result] if isinstance(result, (list, tuple)) else change(result)

        return kernel

    for mistake in (torch.conj_physical, lambda y: y * (1 + 1e-4), lambda y: _join(y.real, 0 * y.real)):
        judgement = opassay.judge(
            changed(mistake), traced_once(spec), _pair(torch.float32), questions=["FWD:given"], seed=0
        )
        assert judgement.verdict == "rejected", str(judgement)


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize(
    "name", ["variance", "variance and mean", "deviation", "deviation and mean", "norm", "norm of the order 1"]
)
@pytest.mark.parametrize("mistake", [lambda z: z.real, lambda z: torch.view_as_complex(torch.view_as_real(z) * 1.0001)])
def test_mistakes_with_real_results_are_rejected(mistake: Callable[[Tensor], Tensor], name: str) -> None:
    spec = REAL[name][0]
    judgement = opassay.judge(
        lambda z, w: spec(mistake(z), w), spec, _pair(torch.float32), questions=["FWD:given"], seed=0
    )
    assert judgement.verdict == "rejected", str(judgement)


def test_a_comparison_with_the_real_part_alone_is_rejected() -> None:
    z, w = _pair(torch.float32)
    z[0] = torch.complex(w.real[0], w.real[0] + 1)
    judgement = opassay.judge(
        lambda z, w: z.real == w.real, REAL["equal numbers"][0], (z, w), questions=["FWD:given"], seed=0
    )
    assert judgement.verdict == "rejected", str(judgement)
