"""Balls of Fourier transforms: they hold every way to compute one, and no wrong one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import Ball, ball, balls
from opassay.oracles.bound.rounding import fourier as rule
from opassay.oracles.bound.terms import terms
from opassay.oracles.specs import traced
from opassay.reference.array import fourier
from opassay.reference.exact import evaluate, to_float_pair
from tests.oracles.fourier_kernels import RIGHT, WRONG, Kernel, by_half_length
from tests.oracles.spec_judging import accepted
from workshop.random_evaluation import evaluate_at_random

_LENGTHS = (1, 2, 3, 4, 6, 8, 11, 13, 16, 22, 30)
_DTYPES = {"float32": torch.complex64, "float64": torch.complex128}


def _rows(n: int, seed: int) -> Any:
    """Rows of elements of one size, of elements that are all alike, of a few large ones, and of one."""
    rng = np.random.default_rng(seed)
    rows = [rng.standard_normal((n, 2)), np.full((n, 2), 0.3), np.where(rng.random((n, 2)) < 0.2, 1e3, 1e-3)]
    rows.append(np.where(np.arange(n)[:, None] == n - 1, rng.random(2), 0.0))
    return np.float32(np.stack(rows)).astype(np.float64)


def _attack(n: int, allowed: Any, seeds: int) -> float:
    """The largest error over its bound, of evaluations along every way."""
    largest = 0.0
    for seed in range(seeds):
        draws = np.random.default_rng(seed)
        x, inverse, real, power = _rows(n, seed), draws.random() < 0.5, draws.random() < 0.5, int(draws.integers(3))
        if real and not inverse:
            x[..., 1] = 0.0

        def formula(a: Any, inverse: bool = inverse, power: int = power, real: bool = real) -> Any:
            return fourier(a, (1,), inverse=inverse, power=power, real=real)

        (bound,) = balls(formula, [x], allowed)
        (got,) = evaluate_at_random(formula, [x], allowed, draws)
        largest = max(largest, float(np.max(np.abs(got - bound.centre) / bound.radii())))
    return largest


@pytest.mark.one_fast_in(4)
@pytest.mark.parametrize("preset", ["strict", "tensor_core", "fast_math", "torch+bfloat16_partials"])
@pytest.mark.parametrize("dtype", _DTYPES)
def test_no_evaluation_leaves_its_ball(dtype: str, preset: str) -> None:
    allowed = terms(preset).contract(dtype, "cuda")
    assert max(_attack(n, allowed, 12) for n in _LENGTHS) <= 1.0


def test_evaluations_come_near_the_boundary_and_a_planted_bound_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = contract("float32")
    assert _attack(8, allowed, 100) > 0.1
    monkeypatch.setattr(rule, "_shares", lambda sizes, real, errors: ((3.0 * errors.unit, 0.0),))
    assert _attack(8, allowed, 100) > 1.0


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("shape", [(7,), (8,), (3, 4), (2, 3, 2)])
def test_the_exact_value_is_in_the_ball(shape: tuple[int, ...], dtype: str) -> None:
    x = np.float32(np.random.default_rng(3).standard_normal((*shape, 2))).astype(np.float64)
    axes = tuple(range(len(shape)))

    def formula(a: Any) -> Any:
        return fourier(a, axes, power=1)

    (bound,), ((exact,), _) = balls(formula, [x], contract(dtype)), evaluate(formula, x)
    high, low = to_float_pair(exact)
    assert (np.abs((bound.centre - high) - low) <= bound.radii()).all()


def test_no_result_is_exact_and_none_of_what_is_not_finite_is_judged() -> None:
    x = np.zeros((2, 4, 2))
    x[0, 1], x[1, 2, 0] = 1.0, np.inf
    with np.errstate(all="ignore"):
        out = fourier(ball(x, contract("float32").on_lattice), (1,))
    assert (out.radii()[0] > 0).all()
    assert np.isnan(out.radii()[1]).all()


def test_an_error_of_the_operand_reaches_every_output() -> None:
    allowed = contract("float32")
    x = ball(_rows(5, 1), allowed)
    off = Ball(x.centre, np.full(x.shape, 1e-3), allowed)
    assert (fourier(off, (1,)).radii() >= fourier(x, (1,)).radii() + 5e-3).all()


def test_more_roundings_are_allowed_by_laxer_terms() -> None:
    x = _rows(16, 0)
    presets = ("strict", "tensor_core", "torch+bfloat16_partials")
    strict, *others = (balls(lambda a: fourier(a, (1,)), [x], terms(p).contract("float32"))[0].radii() for p in presets)
    assert all((wider > 20 * strict).all() for wider in others)
    plain = contract("float32")
    without = balls(lambda a: fourier(a, (1,)), [x], replace(plain, systematic=False))[0].radii()
    assert (without < strict).all()


def _count_refusals(kernel: Kernel, spec: Kernel, x: Tensor) -> int:
    """How many parts of a kernel's result are outside of the accept sets of a spec."""

    def of_parts(parts: Tensor) -> Tensor:
        return torch.view_as_real(spec(torch.view_as_complex(parts)).resolve_conj())

    parts = torch.view_as_real(x)
    (bound,) = balls(traced(of_parts, parts), [parts.double().numpy()], contract(str(parts.dtype)[6:]))
    return int((~accepted(torch.view_as_real(kernel(x).resolve_conj()), bound)).sum())


def _complex(n: int, dtype: str, rows: int = 8) -> Tensor:
    return torch.randn(rows, n, dtype=_DTYPES[dtype], generator=torch.Generator().manual_seed(n))


@pytest.mark.one_fast_in(7)
@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("kernel", RIGHT)
def test_every_way_to_transform_is_accepted(kernel: str, dtype: str) -> None:
    for n in (1, 2, 7, 12, 16, 97, 120, 256):
        for x in (_complex(n, dtype), torch.ones_like(_complex(n, dtype, 1)) * (0.1 + 0.3j)):
            assert _count_refusals(RIGHT[kernel], torch.fft.fft, x) == 0, n


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("kernel", WRONG)
def test_a_wrong_transform_is_refused(kernel: str, dtype: str) -> None:
    for n in (8, 64):
        assert _count_refusals(WRONG[kernel], torch.fft.fft, _complex(n, dtype)) > 0, n


@pytest.mark.parametrize("dtype", _DTYPES)
def test_a_transform_of_real_numbers_as_half_as_many_complex_ones_is_accepted(dtype: str) -> None:
    for n in (2, 16, 24, 256):
        x = _complex(n, dtype).real.contiguous()
        (bound,) = balls(
            traced(lambda x: torch.view_as_real(torch.fft.rfft(x)), x), [x.double().numpy()], contract(dtype)
        )
        assert accepted(torch.view_as_real(by_half_length(x)), bound).all()
        assert not accepted(torch.view_as_real(by_half_length(x).conj().resolve_conj()), bound).all() or n == 2


def _convolve(u: Tensor, k: Tensor, n: int) -> Tensor:
    y: Tensor = torch.fft.irfft(torch.fft.rfft(u, n) * torch.fft.rfft(k, n), n)
    return y


def _bound_of(spec: Any, *operands: Tensor) -> Ball:
    (bound,) = balls(traced(spec, *operands), [x.double().numpy() for x in operands], contract("float32"))
    return bound


#: Of one length: the largest share of |u| |k| that a half-width may be, in units of 2^-24.
_WIDTHS = {24: 540, 40: 750, 64: 800, 96: 1300, 97: 60_000, 512: 3700}


@pytest.mark.one_fast_in(2)
@pytest.mark.parametrize("n", _WIDTHS)
def test_a_convolution_by_transforms_has_the_errors_of_norms(n: int) -> None:
    u, k = torch.randn(2, 8, n // 2, generator=torch.Generator().manual_seed(n)).unbind()
    bound = _bound_of(lambda u, k: _convolve(u, k, n), u, k)

    def by(kernel: Kernel) -> Tensor:
        spectra = [kernel(torch.nn.functional.pad(x, (0, n - n // 2)).to(torch.complex64)) for x in (u, k)]
        return (kernel((spectra[0] * spectra[1]).conj().resolve_conj()) / n).real

    direct = torch.nn.functional.conv1d(
        torch.nn.functional.pad(u, (n - 1, n - n // 2))[None],
        torch.nn.functional.pad(k, (0, n - n // 2)).flip(-1)[:, None], groups=8,
    )[0]  # fmt: skip
    for right in (_convolve(u, k, n), direct, *map(by, RIGHT.values())):
        assert accepted(right, bound).all()
    whole = (u.norm(dim=-1) * k.norm(dim=-1)).numpy()
    assert float(np.max(bound.radii() / whole[:, None])) <= _WIDTHS[n] * 2.0**-24
    for wrong in (_convolve(u, k.flip(-1), n), _convolve(u, k, n).roll(1, -1)):
        assert not accepted(wrong, bound).all()
    if n <= 64:
        assert not accepted(_convolve(u, k, n) * 1.001, bound).all()
        assert not accepted(_convolve(u.half().float(), k, n), bound).all()
    assert n > 24 or not accepted(_convolve(u, k, n) * 1.0001, bound).all()


_OF_SPECTRA: dict[str, Any] = {
    "convolution": lambda a, b: fourier(_times(fourier(a, (1,)), fourier(b, (1,))), (1,), inverse=True, power=2),
    "correlation": lambda a, b: fourier(_times(fourier(a, (1,)), fourier(b, (1,)), -1.0), (1,), inverse=True, power=2),
    "of itself": lambda a, b: fourier(_times(fourier(a, (1,)), fourier(a, (1,))), (1,), inverse=True, power=1),
    "of parts": lambda a, b: fourier(np.concatenate([fourier(a, (1,))[:, :2], fourier(b, (1,))[:, 2:]], 1), (1,)),
    "of one filter": lambda a, b: fourier(_times(fourier(a, (1,)), fourier(b, (1,))[:1]), (1,), inverse=True),
    "of a difference": lambda a, b: fourier(fourier(a, (1,)) - fourier(b, (1,)), (1,), inverse=True, power=2),
    "mirrored": lambda a, b: fourier(fourier(a, (1,)) + fourier(a, (1,))[:, ::-1], (1,)),
    "of rows": lambda a, b: fourier(np.transpose(fourier(a, (1,)), (1, 0, 2)), (1,)),
}


def _times(x: Any, y: Any, sign: float = 1.0) -> Any:
    a, b, c, d = x[..., 0], x[..., 1], y[..., 0], sign * y[..., 1]
    return np.stack([a * c - b * d, a * d + b * c], -1)


def _attack_spectra(name: str, seeds: int) -> float:
    """The largest error over its bound, of what is computed from transforms."""
    largest, allowed = 0.0, contract("float32")
    for seed in range(seeds):
        draws = np.random.default_rng(seed)
        n = int(draws.choice([2, 3, 4, 6, 8, 12]))
        operands = [_rows(n, seed), _rows(n, seed + 1000)]
        (bound,) = balls(_OF_SPECTRA[name], operands, allowed)
        (got,) = evaluate_at_random(_OF_SPECTRA[name], operands, allowed, draws)
        largest = max(largest, float(np.max(np.abs(got - bound.centre) / bound.radii())))
    return largest


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("name", _OF_SPECTRA)
def test_no_evaluation_leaves_the_ball_of_what_is_computed_from_transforms(name: str) -> None:
    assert _attack_spectra(name, 12) <= 1.0


def test_errors_of_too_small_a_norm_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each output for itself may be off by as much as before; together they may not."""
    monkeypatch.setattr(rule, "_norm", lambda x, whole, axes, real, errors: 0.0 * whole[:, :1])
    assert _attack_spectra("of a difference", 40) > 1.0
