"""Whatever a candidate returns is a verdict on the candidate, and no error of the judge."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from opassay.oracles.op.bits import same_bits
from opassay.properties.candidates.judgement import Ruling
from opassay.properties.candidates.judging import judge
from opassay.properties.candidates.numpy_specs import Formula

ODD: dict[str, Callable[[torch.Tensor], Any]] = {
    "none": lambda x: None,
    "text": lambda x: "text",
    "no elements": lambda x: torch.empty(0),
    "complex128": lambda x: x.to(torch.complex128),
    "complex64": lambda x: torch.complex(x, x),
    "complex, conjugate": lambda x: torch.complex(x, x).conj(),
    "bfloat16": lambda x: x.bfloat16(),
    "float8": lambda x: x.to(torch.float8_e4m3fn),
    "float8 of truth values": lambda x: (x > 0.5).to(torch.float8_e4m3fn),
    "exponents alone": lambda x: x.to(torch.float8_e8m0fnu),
    "bits": lambda x: torch.zeros(4, 5, dtype=torch.bits8),
    "uint64": lambda x: x.to(torch.uint64),
    "truth values": lambda x: x > 0,
    "sparse": lambda x: x.to_sparse(),
    "meta": lambda x: x.to("meta"),
    "expanded": lambda x: x[None].expand(1000, 4, 5),
    "three": lambda x: (x, x, x),
    "exit": lambda x: sys.exit(0),
}
SPECS: dict[str, Any] = {
    "softmax": lambda x: torch.softmax(x, -1),
    "indices": lambda x: x.argmax(-1, keepdim=True).expand(4, 5),
    "two": lambda x: (x * 2, x.sum(-1)),
    "NumPy": Formula(lambda x: np.exp(x)),
    "NumPy, two": Formula(lambda x: (np.exp(x), np.abs(x))),
    "NumPy, truth values": Formula(lambda x: x > 0.5),
}
INPUT = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
#: For most pairs, questions that look at outputs in different ways; for one spec all of them are asked.
SOME = (
    "FWD:given",
    "PURE:untouched",
    "PURE:fresh",
    "CALLS:kept",
    "CALLS:again",
    "SPECIAL:nan",
    "VJP:grad",
    "AUTOCAST",
    "LIKELY",
)


@pytest.mark.one_fast_in(6)
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("odd", ODD)
def test_an_output_of_another_kind_is_a_finding(odd: str, spec: str) -> None:
    judgement = judge(ODD[odd], SPECS[spec], (INPUT,), questions=() if spec == "softmax" else SOME)
    right = spec == "NumPy, truth values" and "truth values" in odd
    assert right or judgement.verdict is Ruling.REJECTED, str(judgement)
    assert right or "FWD:given" in [each.question for each in judgement.causes], str(judgement)


def test_complex_numbers_are_compared_bit_by_bit() -> None:
    for dtype in (torch.complex32, torch.complex64, torch.complex128):
        x = torch.complex(INPUT, -INPUT).to(dtype)
        assert same_bits(x, x.clone())
        assert not same_bits(x, x.conj().resolve_conj())
        assert same_bits(x.conj(), x.conj().resolve_conj())


_MASK = torch.eye(3, 4, dtype=torch.bool)


def _logits(x: torch.Tensor, least: float = -math.inf) -> torch.Tensor:
    return x.masked_fill(_MASK, least)


def _largest_of_groups(x: torch.Tensor, least: float = -math.inf) -> torch.Tensor:
    return torch.full((4, x.shape[1]), least).index_reduce(0, torch.tensor([0, 0, 2]), x, "amax")


def _logarithm(x: torch.Tensor, least: float = -math.inf) -> torch.Tensor:
    return torch.log(torch.relu(x)).clamp(min=least)


@pytest.mark.one_fast_in(2)
@pytest.mark.parametrize("spec", [_logits, _largest_of_groups, _logarithm])
@pytest.mark.parametrize("least", [-math.inf, -3.4e38, 0.0, math.nan, math.inf])
@pytest.mark.filterwarnings("ignore:index_reduce")
def test_an_infinity_that_no_rounding_reaches_is_the_only_right_value(spec: Any, least: float) -> None:
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(2))
    judgement = judge(lambda x: spec(x, least), spec, (x,), questions=("FWD:given",))
    assert judgement.verdict == ("accepted" if least == -math.inf else "rejected"), judgement
