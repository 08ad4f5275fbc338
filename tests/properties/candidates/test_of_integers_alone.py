"""Specs that compute floating numbers of integers alone: tables of angles, embeddings of time, dequantised codes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import opassay
from opassay.properties.candidates.judgement import Ruling
from opassay.properties.candidates.judging import judge

QUESTIONS = ["FWD:given", "CALLS:same", "CALLS:again", "LAYOUT:strides", "SIZE:sizes"]
POSITIONS, CODES = torch.arange(40, dtype=torch.int64), torch.arange(-8, 8, dtype=torch.int8)


def _frequencies() -> Tensor:
    return 10000.0 ** (torch.arange(0, 8, 2) / -8)


def angles(positions: Tensor) -> tuple[Tensor, Tensor]:
    product = positions[:, None].float() * _frequencies()
    return product.cos(), product.sin()


def angles_by_reciprocal(positions: Tensor) -> tuple[Tensor, Tensor]:
    product = torch.outer(positions.float(), 1.0 / (10000.0 ** (torch.arange(0, 8, 2).float() / 8)))
    return torch.cos(product), torch.sin(product)


def angles_in_half(positions: Tensor) -> tuple[Tensor, Tensor]:
    product = (positions[:, None].bfloat16() * _frequencies().bfloat16()).float()
    return product.cos(), product.sin()


def dequantised(codes: Tensor) -> Tensor:
    return codes.float() * 0.1


def dequantised_by_division(codes: Tensor) -> Tensor:
    return codes.float() / 10


def dequantised_from_above(codes: Tensor) -> Tensor:
    return (codes.float() + 1) * 0.1


def in_bfloat16(codes: Tensor) -> Tensor:
    return codes.to(torch.bfloat16) / 3


def by_float32(codes: Tensor) -> Tensor:
    return (codes.float() / 3).to(torch.bfloat16)


def one_code_off(codes: Tensor) -> Tensor:
    return by_float32(codes) * 1.01


CASES: list[tuple[Tensor, Callable[..., object], Callable[..., object], Callable[..., object]]] = [
    (POSITIONS, angles, angles_by_reciprocal, angles_in_half),
    (CODES, dequantised, dequantised_by_division, dequantised_from_above),
    (CODES, in_bfloat16, by_float32, one_code_off),
]


@pytest.mark.fast_cases("in_bfloat16")
@pytest.mark.parametrize(("operands", "spec", "right", "wrong"), CASES, ids=[case[1].__name__ for case in CASES])
def test_numbers_that_are_computed_of_integers_are_rounded(
    operands: Tensor, spec: Callable[..., object], right: Callable[..., object], wrong: Callable[..., object]
) -> None:
    for candidate, questions in ((spec, ["FWD:given"]), (right, QUESTIONS)):
        judgement = judge(candidate, spec, (operands,), questions=questions)
        assert judgement.verdict is Ruling.ACCEPTED, str(judgement)
    judgement = judge(wrong, spec, (operands,), questions=QUESTIONS)
    assert judgement.verdict is Ruling.REJECTED, str(judgement)


def test_one_output_conforms() -> None:
    opassay.assert_conforms(dequantised_by_division(CODES), dequantised, CODES)
    with pytest.raises(AssertionError, match="where the exact value is"):
        opassay.assert_conforms(dequantised_from_above(CODES), dequantised, CODES)


def test_integers_of_integers_stay_exact() -> None:
    assert judge(lambda n: n * 3, lambda n: n * 3, (CODES,), questions=QUESTIONS).verdict is Ruling.ACCEPTED
    assert judge(lambda n: n * 3 + (n == 5), lambda n: n * 3, (CODES,), questions=QUESTIONS).verdict is Ruling.REJECTED
