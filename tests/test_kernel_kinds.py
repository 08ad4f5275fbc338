"""The kinds of kernels of `benchmarks/kernel_kinds.py`: right kernels are accepted and mistakes refused where given."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

from opassay.properties.candidates.judgement import Ruling
from opassay.properties.candidates.judging import judge

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(Path(__file__).resolve().parents[1] / "benchmarks")
    KINDS = importlib.import_module("judging.kinds").KINDS

#: What finds the mistakes that the given inputs do not show, and those that need an empty group, or a repeated index.
QUESTIONS = ["FWD:given", "FWD:seeds", "FWD:signs", "FWD:offset", "FWD:small"]
OF_UNSEEN = ["FWD:given", "VJP:grad", "SIZE:sizes"]


def test_the_kinds_are_as_many_as_the_page_says() -> None:
    names = [kind.name for kind in KINDS]
    assert len(names) == len(set(names)) == 100
    assert all(kind.right and (len(kind.wrong) >= 3 or len(kind.unseen) >= 2) for kind in KINDS)


@pytest.mark.one_fast_in(24)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_right_kernels_are_accepted_and_mistakes_are_not(kind: Any) -> None:
    operands = kind.inputs(torch.float32)
    for name, way in kind.right.items():
        assert judge(way, kind.spec, operands, questions=["FWD:given"]).verdict is Ruling.ACCEPTED, name
    for name, way in kind.wrong.items():
        assert judge(way, kind.spec, operands, questions=QUESTIONS).verdict is Ruling.REJECTED, name


@pytest.mark.fast_cases("rows of a table")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.unseen], ids=lambda kind: kind.name)
def test_mistakes_that_the_given_call_need_not_show_are_refused(kind: Any) -> None:
    operands = kind.inputs(torch.float32)
    for name, way in kind.right.items():
        assert judge(way, kind.spec, operands, questions=OF_UNSEEN).verdict is Ruling.ACCEPTED, name
    for name, way in kind.unseen.items():
        assert judge(way, kind.spec, operands, questions=OF_UNSEEN).verdict is Ruling.REJECTED, name
