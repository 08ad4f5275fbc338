"""Specs that compute with complex numbers on their way: what computes with parts is accepted, mistakes are rejected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import opassay
from tests.traced_once import traced_once

QUESTIONS = ["FWD:given", "VJP:grad"]


def _rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Rotary embedding, as with complex numbers."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    turned = pairs * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2).type_as(x)


def _by_parts(x: Tensor, angles: Tensor, sign: float = 1.0) -> tuple[Tensor, Tensor]:
    a, b, cos, sin = x.float()[..., 0::2], x.float()[..., 1::2], angles.cos(), sign * angles.sin()
    return a * cos - b * sin, a * sin + b * cos


def _with_parts(x: Tensor, angles: Tensor) -> Tensor:
    return torch.stack(_by_parts(x, angles), -1).flatten(-2).type_as(x)


def _back(x: Tensor, angles: Tensor) -> Tensor:
    return torch.stack(_by_parts(x, angles, -1.0), -1).flatten(-2).type_as(x)


def _parts_side_by_side(x: Tensor, angles: Tensor) -> Tensor:
    return torch.cat(_by_parts(x, angles), -1).type_as(x)


def _halves_for_pairs(x: Tensor, angles: Tensor) -> Tensor:
    order = torch.arange(x.shape[-1]).reshape(2, -1).T.flatten()
    return _with_parts(x[..., order], angles)


def _inputs(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(4, 6, generator=generator).to(dtype), 6 * torch.rand(4, 3, generator=generator)


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kernel", [_rotate, _with_parts])
def test_a_rotation_is_accepted(kernel: Callable[..., Tensor], dtype: torch.dtype) -> None:
    judgement = opassay.judge(kernel, traced_once(_rotate), _inputs(dtype), questions=QUESTIONS, seed=0)
    assert judgement.verdict == "accepted", str(judgement)


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("kernel", [_back, _parts_side_by_side, _halves_for_pairs])
def test_another_rotation_is_rejected(kernel: Callable[..., Tensor]) -> None:
    assert opassay.judge(kernel, traced_once(_rotate), _inputs(), questions=["FWD:given"], seed=0).verdict == "rejected"


def _of_all(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    z = torch.complex(x, y)
    w = (z * z.conj() * 1j + z * 2 - 1 + torch.exp(1j * x) - y).sum(-1)
    return w.abs(), w.angle(), (z @ z.mH).real, (z / 2).imag, torch.view_as_real(-z.reshape(-1)[1:] + x.reshape(-1)[1:])


def _of_parts(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    real = (2 * x - 1 + x.cos() - y).sum(-1)
    imaginary = (x * x + y * y + 2 * y + x.sin()).sum(-1)
    flat = torch.stack([x - x, -y], -1).reshape(-1, 2)[1:]
    return torch.hypot(real, imaginary), torch.atan2(imaginary, real), x @ x.T + y @ y.T, y / 2, flat


def _plant(mistake: Callable[[Tensor], Tensor], position: int) -> Callable[..., tuple[Tensor, ...]]:
    def kernel(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        outputs = list(_of_parts(x, y))
        outputs[position] = mistake(outputs[position])
        return tuple(outputs)

    return kernel


def _two() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(3, 4, generator=generator), torch.randn(3, 4, generator=generator)


@pytest.mark.fast_cases("_of_all")
@pytest.mark.parametrize("kernel", [_of_all, _of_parts])
def test_operations_on_complex_numbers_are_those_on_parts(kernel: Callable[..., object]) -> None:
    judgement = opassay.judge(kernel, traced_once(_of_all), _two(), questions=QUESTIONS, seed=0)
    assert judgement.verdict == "accepted", str(judgement)


@pytest.mark.one_fast_in(4)
@pytest.mark.parametrize(
    "kernel",
    [
        _plant(torch.neg, 1),
        _plant(lambda y: y * (1 + 1e-5), 0),
        _plant(lambda y: y * 2, 3),
        lambda x, y: (*_of_parts(x, y)[:2], x @ x.T - y @ y.T, *_of_parts(x, y)[3:]),
    ],
)
def test_mistakes_with_complex_numbers_are_rejected(kernel: Callable[..., object]) -> None:
    assert opassay.judge(kernel, traced_once(_of_all), _two(), questions=["FWD:given"], seed=0).verdict == "rejected"


def test_complex_numbers_are_copied_to_others_and_to_real_ones() -> None:
    def spec(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z, copy = torch.complex(x, y), torch.ops.aten.copy
        return torch.view_as_real(copy(z + 1, z[0])), torch.view_as_real(copy(z + 1, x)), copy(x + 1, z)

    def kernel(x: Tensor, y: Tensor, sign: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
        row = torch.stack([x[0], sign * y[0]], -1)
        return row.expand(3, 4, 2).clone(), torch.stack([x, torch.zeros_like(x)], -1), x.clone()

    def wrong(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return kernel(x, y, -1.0)

    for candidate, verdict in ((kernel, "accepted"), (wrong, "rejected")):
        assert opassay.judge(candidate, spec, _two(), questions=["FWD:given"], seed=0).verdict == verdict


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (lambda x, y: torch.det(torch.complex(x, y)[:, :3]).real, "aten._linalg_det.default of complex numbers"),
        (lambda x, y: torch.addmm(torch.complex(x, y), x[:, :3] + 0j, x + 1j, alpha=1 + 2j).real, "with (1+2j)"),
        (lambda x, y: torch.logcumsumexp(torch.complex(x, y), 0).real, "aten.logcumsumexp.default of complex numbers"),
    ],
)
def test_what_has_no_rule_is_named(spec: Callable[..., Tensor], text: str) -> None:
    judgement = opassay.judge(spec, spec, _two(), questions=["FWD:given"])
    assert judgement.verdict == "error"
    assert text in judgement.error


def _turned(z: Tensor, w: Tensor) -> Tensor:
    return z * w.conj() + z / w


def _by_parts_of_both(z: Tensor, w: Tensor, sign: float = -1.0) -> Tensor:
    a, b, c, d = z.real, z.imag, w.real, sign * w.imag
    size = c * c + d * d
    product = torch.complex(a * c - b * d, a * d + b * c)
    return product + torch.complex((a * c - b * d) / size, (a * d + b * c) / size)


def _complex_pair(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    z, w = (torch.randn(4, 5, 2, generator=generator, dtype=dtype) for _ in "zw")
    return torch.view_as_complex(z), torch.view_as_complex(w)


def _in_place(z: Tensor, w: Tensor, out: Tensor) -> None:
    out.copy_(_turned(z, w))


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", [_turned, _by_parts_of_both, _in_place])
def test_arguments_and_results_may_be_complex(kernel: Callable[..., Tensor | None], dtype: torch.dtype) -> None:
    questions = [
        "FWD:given",
        "FWD:seeds",
        "FWD:signs",
        "FWD:wide",
        "DATA:integers",
        "SPECIAL:zeros",
        "SPECIAL:inf",
        "LAYOUT:strides",
        "LAYOUT:align",
        "CALLS:same",
        "PURE:untouched",
    ]
    judgement = opassay.judge(kernel, traced_once(_turned), _complex_pair(dtype), questions=questions, seed=0)
    assert judgement.verdict == "accepted", str(judgement)


@pytest.mark.fast_cases("dtype0")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_of_complex_numbers_are_those_of_their_parts(dtype: torch.dtype) -> None:
    for kernel in (_turned, _by_parts_of_both):
        judgement = opassay.judge(kernel, traced_once(_turned), _complex_pair(dtype), questions=["VJP:grad"], seed=0)
        assert judgement.verdict == "accepted", str(judgement)

    class Unconjugated(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, z: Tensor, w: Tensor) -> Tensor:
            context.save_for_backward(z, w)
            return z * w

        @staticmethod
        def backward(context: Any, g: Any) -> tuple[Tensor, Tensor]:
            z, w = context.saved_tensors
            return g * w, g * z

    wrong = opassay.judge(
        Unconjugated.apply, torch.mul, _complex_pair(dtype), questions=["FWD:given", "VJP:grad"], seed=0
    )
    assert [finding.question for finding in wrong.causes] == ["VJP:grad"], str(wrong)


@pytest.mark.one_fast_in(6)
@pytest.mark.parametrize(
    "kernel",
    [
        lambda z, w: _by_parts_of_both(z, w, 1.0),
        lambda z, w: torch.view_as_real(_turned(z, w)),
        lambda z, w: _turned(z, w).real,
        lambda z, w: _turned(z, w).conj(),
        lambda z, w: _turned(z, w).to(torch.complex128 if z.dtype == torch.complex64 else torch.complex64),
        lambda z, w: torch.view_as_complex(torch.view_as_real(_turned(z, w)).flip(-1).contiguous()),
    ],
)
def test_mistakes_with_complex_arguments_are_rejected(kernel: Callable[..., Tensor]) -> None:
    for dtype in (torch.float32, torch.float64):
        judgement = opassay.judge(kernel, traced_once(_turned), _complex_pair(dtype), questions=["FWD:given"], seed=0)
        assert judgement.verdict == "rejected", str(judgement)


def test_one_output_is_compared_by_its_parts() -> None:
    z, w = _complex_pair(torch.float32)
    opassay.assert_conforms(_turned(z, w), _turned, z, w)
    with pytest.raises(AssertionError, match=r"view_as_real\(out\)\[0, 3, 1\]"):
        opassay.assert_conforms(_turned(z, w).conj(), _turned, z, w)
    read = opassay.bound(_turned, z, w)
    assert isinstance(read, opassay.Bound)
    assert read.centre.shape == (4, 5, 2)
