"""The page that lists what a spec may say is up to date, and knows every function of torch.nn.functional."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from opassay.oracles.specs import SpecCall
from tests.specs import make_example, values
from tests.specs.functional import CALLS, NOT_CALLED, functions
from tests.specs.listing import operations

PAGE = (Path(__file__).parents[3] / "docs" / "specs.md").read_text()
AGAIN = "run python benchmarks/functions_read.py > docs/specs.md"


def test_every_function_has_a_call_and_stands_on_the_page_once() -> None:
    known = set(CALLS) | set(NOT_CALLED)
    assert set(functions()) <= known, AGAIN
    listed = PAGE.partition("## Functions")[2].partition("## Operations")[0]
    assert sorted(re.findall(r"`(\w+)`(?=[,:\n])", listed)) == sorted(known), AGAIN


def test_every_operation_that_has_a_rule_stands_on_the_page() -> None:
    assert PAGE.endswith(operations()), AGAIN


@pytest.mark.parametrize("name", ["conv_tbc", "grouped_mm", "max_unpool2d", "linear_cross_entropy", "upsample"])
def test_a_function_that_is_read_is_accepted(name: str) -> None:
    example = make_example(name, CALLS[name])
    call = SpecCall.of(example.spec, *example.args)
    result = values(call, "float32", *call.outputs(*call.tensors))
    assert result.refusals == 0, result.line()
    assert result.judged > 0
