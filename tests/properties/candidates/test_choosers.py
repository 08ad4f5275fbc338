"""Kernels that choose by values: those that are right are accepted whatever they choose, every mistake is rejected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import opassay
from tests.choices import modes, routers, samplers
from tests.choices.chooser import Chooser, Kernel
from tests.traced_once import traced_once

CHOOSERS = (*routers.CHOOSERS, *samplers.CHOOSERS, *modes.CHOOSERS)
#: Where most mistakes show; the slow tests ask everything.
SOME = ["FWD:given", "FWD:signs", "SPECIAL:zeros", "DATA:integers", "SPECIAL:nan"]


def _cases(right: bool) -> Iterator[Any]:
    for chooser in CHOOSERS:
        for dtype in (torch.float32, torch.bfloat16):
            kernels = {"itself": chooser.spec, **chooser.right} if right else chooser.wrong
            for name, kernel in kernels.items():
                named = f"{chooser.name}: {name}: {str(dtype).removeprefix('torch.')}"
                slow = dtype is not torch.float32 or name == "itself"
                yield pytest.param(chooser, kernel, dtype, id=named, marks=pytest.mark.slow if slow else ())


@pytest.mark.fast_cases("best scores: in another order: float32")
@pytest.mark.parametrize(("chooser", "kernel", "dtype"), list(_cases(right=True)))
def test_a_right_kernel_that_chooses_is_accepted(chooser: Chooser, kernel: Kernel, dtype: torch.dtype) -> None:
    judgement = opassay.judge(
        kernel, traced_once(chooser.spec), chooser.inputs(dtype), questions=[*SOME, "VJP:grad", "DATA:bits"], seed=0
    )
    assert judgement.verdict == "accepted", str(judgement)


@pytest.mark.slow
@pytest.mark.parametrize(("chooser", "kernel", "dtype"), list(_cases(right=True)))
def test_a_right_kernel_that_chooses_is_accepted_everywhere(
    chooser: Chooser, kernel: Kernel, dtype: torch.dtype
) -> None:
    for seed in range(3):
        judgement = opassay.judge(kernel, traced_once(chooser.spec), chooser.inputs(dtype), seed=seed)
        assert judgement.verdict == "accepted", str(judgement)


@pytest.mark.fast_cases("weights of experts: one rank too far: float32")
@pytest.mark.parametrize(("chooser", "kernel", "dtype"), list(_cases(right=False)))
def test_a_mistake_of_a_kernel_that_chooses_is_rejected(chooser: Chooser, kernel: Kernel, dtype: torch.dtype) -> None:
    judgement = opassay.judge(kernel, traced_once(chooser.spec), chooser.inputs(dtype), questions=SOME, seed=0)
    assert judgement.verdict == "rejected", str(judgement)
