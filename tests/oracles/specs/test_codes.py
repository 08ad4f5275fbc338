"""Eight-bit numbers as bytes: the codes of right numbers are right, and bytes that are given are numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import opassay
from tests.traced_once import traced_once

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
QUESTIONS = ["FWD:given", "FWD:seeds", "SPECIAL:zeros", "SPECIAL:nan"]


def scale_of(x: Tensor) -> Tensor:
    return x.abs().amax(-1, keepdim=True).clamp(min=1e-9) / 448


def as_bytes(x: Tensor) -> tuple[Tensor, Tensor]:
    """Codes of e4m3 in rows of another length, as a cache has them."""
    s = scale_of(x)
    return (x / s).clamp(-448, 448).to(E4M3).view(torch.uint8).reshape(2, -1), s


def by_reciprocal(x: Tensor) -> tuple[Tensor, Tensor]:
    s = scale_of(x)
    return (x * (1 / s)).clamp(-448, 448).to(E4M3).view(torch.uint8).reshape(2, -1), s


WRONG: dict[str, Any] = {
    "the next code": lambda x: (as_bytes(x)[0] + 1, as_bytes(x)[1]),
    "codes of e5m2": lambda x: ((x / scale_of(x)).to(E5M2).view(torch.uint8).reshape(2, -1), scale_of(x)),
    "no signs": lambda x: (as_bytes(x)[0] & 127, as_bytes(x)[1]),
    "numbers in place of codes": lambda x: ((x / scale_of(x)).to(torch.uint8).reshape(2, -1), scale_of(x)),
}


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("candidate", [as_bytes, by_reciprocal])
def test_codes_of_right_numbers_are_right(candidate: Any) -> None:
    judgement = opassay.judge(candidate, traced_once(as_bytes), (draw(4, 16),), questions=QUESTIONS)
    assert judgement.verdict == "accepted", str(judgement)


@pytest.mark.parametrize("name", WRONG)
def test_other_codes_are_wrong(name: str) -> None:
    judgement = opassay.judge(WRONG[name], traced_once(as_bytes), (draw(4, 16),), questions=QUESTIONS)
    assert judgement.verdict == "rejected", str(judgement)


def test_both_codes_are_right_at_a_near_tie_and_every_nan() -> None:
    x, s = torch.tensor([1.0625 * 3, torch.nan, -0.0]), torch.tensor(3.0)

    def spec(x: Tensor, s: Tensor) -> Tensor:
        return (x / s).to(E4M3).view(torch.uint8)

    for codes in ([0x38, 0x7F, 0x80], [0x39, 0xFF, 0x00]):
        opassay.assert_conforms(torch.tensor(codes, dtype=torch.uint8), spec, x, s)
    for codes in ([0x37, 0x7F, 0x80], [0x3A, 0x7F, 0x80], [0x38, 0x7E, 0x80], [0x38, 0x7F, 0x81]):
        with pytest.raises(AssertionError):
            opassay.assert_conforms(torch.tensor(codes, dtype=torch.uint8), spec, x, s)


def test_bytes_that_are_given_are_numbers() -> None:
    codes = torch.arange(256, dtype=torch.uint8)[:120].reshape(4, 30)

    def spec(codes: Tensor, s: Tensor) -> Tensor:
        return codes.view(E4M3).float() * s

    operands = (codes, draw(4, 1))
    assert opassay.judge(spec, spec, operands, questions=QUESTIONS).verdict == "accepted"
    other = opassay.judge(lambda codes, s: codes.view(E5M2).float() * s, spec, operands, questions=QUESTIONS)
    assert other.verdict == "rejected"


def test_bytes_of_rounded_numbers_are_numbers_where_they_are_sure() -> None:
    def spec(x: Tensor) -> Tensor:
        return as_bytes(x)[0].view(E4M3).float()

    x = draw(4, 16)
    assert opassay.judge(spec, spec, (x,), questions=["FWD:given"]).verdict == "accepted"
    assert opassay.judge(lambda x: spec(x) * 1.125, spec, (x,), questions=["FWD:given"]).verdict == "rejected"
    x[0, 0] = 0.0  # of which the sign is not known
    judgement = opassay.judge(spec, spec, (x,), questions=["FWD:given"])
    assert judgement.verdict == "error"
    assert "keep the tensor itself" in judgement.error


def up_by_bits(x: Tensor) -> Tensor:
    """The exponent of the least power of two that is not below a number."""
    bits = x.view(torch.int32)
    return ((bits >> 23) & 255) - 127 + ((bits & 0x7FFFFF) != 0).int()


def power_by_bits(x: Tensor) -> Tensor:
    return ((x.view(torch.int32) + 0x7FFFFF) & -0x800000).view(torch.float32)


def up_by_fractions(x: Tensor) -> Tensor:
    fraction, exponent = torch.frexp(x)
    return torch.where(fraction == 0.5, exponent - 1, exponent)


@pytest.mark.parametrize("spec", [up_by_bits, up_by_fractions])
def test_exponents_of_exact_numbers_are_exact(spec: Any) -> None:
    x = torch.tensor([1.0, 1.5, 0.25, 448.0, 2.0**-126])
    right = torch.tensor([0, 1, -2, 9, -126], dtype=torch.int32)
    opassay.assert_conforms(right, spec, x)
    for i in range(len(x)):
        for step in (-1, 1):
            wrong = right.clone()
            wrong[i] += step
            with pytest.raises(AssertionError):
                opassay.assert_conforms(wrong, spec, x)


def test_a_power_of_two_is_made_of_bits() -> None:
    x = torch.tensor([1.0, 1.5, 0.25, 448.0])
    opassay.assert_conforms(torch.tensor([1.0, 2.0, 0.25, 512.0]), power_by_bits, x)
    with pytest.raises(AssertionError):
        opassay.assert_conforms(torch.tensor([2.0, 2.0, 0.25, 512.0]), power_by_bits, x)


@pytest.mark.parametrize("up", [up_by_bits, up_by_fractions])
def test_exponents_of_rounded_numbers_are_either_at_a_power_of_two(up: Any) -> None:
    def spec(x: Tensor) -> Tensor:
        return torch.as_tensor(up(x / 3))

    x = torch.tensor([1.5, 2.0])
    for exponents in ([-1, 0], [0, 0]):
        opassay.assert_conforms(torch.tensor(exponents, dtype=torch.int32), spec, x)
    for exponents in ([1, 0], [-3, 0], [-1, 1], [-1, -1]):
        with pytest.raises(AssertionError):
            opassay.assert_conforms(torch.tensor(exponents, dtype=torch.int32), spec, x)


def test_a_spec_of_eight_bits_is_asked_at_sizes() -> None:
    def spec(x: Tensor) -> Tensor:
        return x.clamp(-448, 448).to(E4M3)

    assert opassay.judge(spec, spec, (draw(4, 16),), questions=["SIZE:sizes"]).verdict == "accepted"


def test_a_scale_is_made_of_a_rounded_exponent() -> None:
    def spec(x: Tensor) -> Tensor:
        return torch.ldexp(torch.ones_like(x), up_by_bits(x / 3))

    for scales in ([0.5, 1.0], [1.0, 1.0]):
        opassay.assert_conforms(torch.tensor(scales), spec, torch.tensor([1.5, 2.0]))
    with pytest.raises(AssertionError):
        opassay.assert_conforms(torch.tensor([4.0, 1.0]), spec, torch.tensor([1.5, 2.0]))
