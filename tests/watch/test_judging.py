"""What is judged of one call: all of its errors, and of a large one those of some rows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import Ball
from opassay.oracles.op.bits import same_bits
from opassay.oracles.specs.storage import format_of
from opassay.properties.candidates.specification import Specification
from opassay.properties.watch.call import DispatcherCall
from opassay.properties.watch.errors import measure_errors
from opassay.properties.watch.judging import CallJudge
from opassay.reference.formats import half_unit_below, ulp_array
from tests.watch.test_recorder import record


def test_a_large_call_is_held_by_some_of_its_rows() -> None:
    def program() -> list[torch.Tensor]:
        return [torch.softmax(torch.randn(2**12, 2**10), -1)]

    _, recorder = record(program)
    judge, (call,) = CallJudge(large=2**21), [c for c in recorder.store.calls if c.name == "aten::_softmax"]
    finding = judge.hold(call)
    assert (finding.wrong, finding.reason) == (None, "of 1024 of 4096 rows")
    assert finding.elements == 2**20
    assert math.isnan(finding.contribution)
    call.results = (call.results[0] * 1.001,)
    wrong = judge.hold(call).wrong
    assert wrong is not None
    assert CallJudge().hold(call).elements == 2**22


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_large_call_is_held_by_blocks_of_rows_as_it_is_as_a_whole(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ratio, contribution and count are those of a whole reading; an error in the last row is found either way."""
    _, recorder = record(lambda: [functional.silu(torch.randn(700, 300).to(dtype))])
    (call,) = [c for c in recorder.store.calls if c.name == "aten::silu"]
    call.adjoints = [torch.randn(700, 300).to(dtype)]
    findings = []
    for blocks in (True, False):
        if not blocks:
            monkeypatch.setattr(Specification, "read_blocks", lambda *_: None)
        findings.append(CallJudge().hold(call))
        wrong = call.results[0].clone()
        wrong[-1, -1] *= 1.1
        card = CallJudge().hold(replace(call, results=(wrong,))).wrong
        assert card is not None
        assert "[699, 299]" in card.title
    by_blocks, whole = findings
    assert (by_blocks.wrong, by_blocks.elements, by_blocks.ratio) == (None, 210_000, whole.ratio)
    assert abs(by_blocks.contribution - whole.contribution) <= 2.0**-40 * abs(whole.contribution)


@pytest.mark.filterwarnings("error")
def test_a_large_call_with_an_infinity_is_read_without_a_warning() -> None:
    def program() -> list[torch.Tensor]:
        x = torch.randn(700, 300)
        x[0, 0], x[1, 1] = math.inf, -math.inf
        return [x * (x + 1)]

    _, recorder = record(program)
    (call,) = [c for c in recorder.store.calls if c.name == "aten::mul"]
    finding = CallJudge().hold(call)
    assert (finding.wrong, finding.reason, finding.elements) == (None, "", 210_000)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_errors_below_the_bound_are_near_and_others_are_not(dtype: torch.dtype) -> None:
    _, recorder = record(lambda: [torch.randn(3000).to(dtype) / torch.randn(3000).to(dtype)])
    (call,) = [c for c in recorder.store.calls if c.name == "aten::div"]
    a, b = (x.double() for x in call.tensors)
    ball = Ball((a / b).numpy(), (0.9 * (a / b).abs() * torch.finfo(dtype).eps).numpy(), contract("float32"))
    errors = measure_errors(call.results[0], torch.ones(3000), ball)
    assert errors.are_near
    assert errors.ratio < 1
    assert errors.contribution == float(np.dot(np.ones(3000), (call.results[0].double() - a / b).numpy()))
    assert same_bits(call.results[0], call.tensors[0] / call.tensors[1])
    radii = 100 * ball.radii()  # of which a unit of float64 is little
    for share, are_near in ((0.99, True), (1.01, False)):
        centre = call.results[0].double().numpy().copy()
        centre[17] += share * radii[17]
        errors = measure_errors(call.results[0], None, Ball(centre, radii, contract("float32")))
        assert errors.are_near == are_near


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_half_a_unit_is_that_of_the_format(dtype: torch.dtype) -> None:
    fmt = format_of(dtype)
    values = np.array([0.0, fmt.smallest_normal / 4, fmt.smallest_normal, 1.0, 1.5, 2.0, 3e4, fmt.max])
    assert (half_unit_below(fmt, values) == 0.5 * ulp_array(fmt, values)).all()
    assert (half_unit_below(format_of(torch.float64), np.array([0.0, 1e-310])) > 0).all()


def test_an_operation_on_lists_is_judged_place_by_place() -> None:
    def program() -> list[torch.Tensor]:
        lists = [[torch.randn(n) for n in (3, 5, 3, 4)] for _ in range(2)]
        torch._foreach_lerp_(lists[0], lists[1], 0.25)
        return lists[0]

    _, recorder = record(program)
    judge, (call,) = CallJudge(), [c for c in recorder.store.calls if c.name == "aten::_foreach_lerp_"]
    call.adjoints = [torch.ones_like(y) for y in call.results]
    right = judge.hold(call)
    assert (right.wrong, right.elements) == (None, 15)
    whole = sum(float((y.double() - (a + 0.25 * (b.double() - a.double()))).sum()) for y, a, b in _rows(call))
    assert abs(right.contribution - whole) <= 15 * 2.0**-52
    call.results = (*call.results[:2], call.results[2] * 1.001, call.results[3])
    wrong = judge.hold(call).wrong
    assert wrong is not None
    assert wrong.title.startswith("place 2 of the lists: out[")


def _rows(call: DispatcherCall) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Each result with its two operands."""
    count = len(call.results)
    return list(zip(call.results, call.tensors[:count], call.tensors[count:], strict=True))
