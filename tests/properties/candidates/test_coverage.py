"""A verdict says how much it has judged; what is not judged though it could be makes it weak, and is no success."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import opassay
from opassay.oracles.verdicts.verdict import Outcome
from opassay.properties.candidates.agreement import in_one_order
from opassay.properties.candidates.judgement import Covered, Ruling
from opassay.properties.candidates.judging import judge
from opassay.properties.candidates.specification import specification

GENERATOR = torch.Generator().manual_seed(9)


def _normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=GENERATOR)


def squares(x: Tensor) -> Tensor:
    """Mean squares of rows; those of large elements overflow float32 on the way, and the mean does not."""
    return (x * x * 0.5).mean(-1, keepdim=True) * torch.ones_like(x)


def _rows(large: int, count: int = 8) -> Tensor:
    """Rows of which the first have squares of 3.2e38, whose sums overflow and whose mean is in range."""
    x = _normal(count, 6)
    x[:large] = 2.5e19
    return x


@pytest.mark.parametrize("large", [1, 8])
def test_elements_without_a_bound_at_the_given_inputs_make_a_verdict_weak(large: int) -> None:
    judgement = judge(squares, squares, (_rows(large),), questions=["FWD:given"])
    assert judgement.verdict is Ruling.WEAK, str(judgement)
    assert judgement.coverage == (Covered("out", 48 - 6 * large, 48),)
    (finding,) = judgement.findings
    assert finding.text == f"{48 - 6 * large} of 48 elements"
    assert finding.outcome is (Outcome.WEAK if large == 8 else Outcome.VERIFIED)
    weakness = judgement.weaknesses[-1] if large == 1 else judgement.weaknesses[1]
    assert weakness.startswith(f"{6 * large} of 48 elements of out could not be judged at FWD:given: an evaluation")
    assert f"overflows on the way, in {large} of 8 rows; exact 3.125e+38 at out[0, 0]" in weakness


def test_the_share_is_in_the_report_and_for_programs() -> None:
    judgement = judge(squares, squares, (_rows(1),), questions=["FWD:given", "FWD:seeds"])
    assert "  judged: 42 of 48 elements of out at the given inputs" in str(judgement).splitlines()
    reply = json.loads(judgement.as_json())
    assert reply["coverage"] == {"out": {"judged": 42, "elements": 48}}
    assert reply["judged"]["FWD:given"] == [42, 48]


def test_what_has_no_finite_exact_value_in_range_is_not_missed() -> None:
    x = torch.tensor([[-1.0, 0.0, 1.0, 4.0]])
    judgement = judge(torch.log, torch.log, (x,), questions=["FWD:given", "FWD:seeds"])
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)
    assert judgement.coverage == (Covered("out", 3, 4),)  # log(0) is held, log(-1) is not
    big = torch.full((3,), 3e38)
    assert (
        judge(lambda x: x + x, lambda x: 2 * x, (big,), questions=["FWD:given", "FWD:signs"]).verdict is Ruling.ACCEPTED
    )


def test_an_infinite_operand_is_no_reason_to_judge_nothing() -> None:
    mask = torch.zeros(4, 4).masked_fill(torch.ones(4, 4, dtype=torch.bool).triu(1), -torch.inf)

    def masked(x: Tensor, mask: Tensor) -> Tensor:
        return torch.softmax(x + mask, -1)

    judgement = judge(masked, masked, (_normal(4, 4), mask), questions=["FWD:given"])
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)
    assert judgement.coverage == (Covered("out", 16, 16),)


@pytest.mark.parametrize(("large", "count"), [(1, 6), (8, 48)])
def test_what_has_no_bound_does_not_conform_in_silence(large: int, count: int) -> None:
    x = _rows(large)
    for out in (squares(x.double()).float(), torch.full((8, 6), torch.nan)):
        with pytest.raises(AssertionError, match="squares: out"):
            opassay.assert_conforms(out, squares, x)
    with pytest.raises(AssertionError, match=f"out is not known: {count} of 48 elements have no bound"):
        opassay.assert_conforms(squares(x.double()).float(), squares, x)
    with pytest.raises(AssertionError, match="out is not known: none of 3 elements has an exact value that is finite"):
        opassay.assert_conforms(torch.full((3,), torch.nan), torch.log, torch.full((3,), -1.0))
    opassay.assert_conforms(torch.zeros(0), torch.log, torch.zeros(0))


# ------------------------------------------------------------------------------------------- NaN and infinity


def _nan_for_infinity(spec: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *args: (result := spec(*args)).masked_fill(result.isinf(), torch.nan)


def _infinity_for_nan(spec: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *args: (result := spec(*args)).masked_fill(result.isnan(), torch.inf)


def _chain(x: Tensor) -> Tensor:
    return functional.silu(2 * x.T + 1)


def _sum(x: Tensor) -> Tensor:
    return x.sum(-1)


@pytest.mark.fast_cases("relu")
@pytest.mark.parametrize("spec", [torch.relu, _chain, torch.add], ids=["relu", "chain", "add"])
def test_an_elementwise_spec_has_one_order_so_a_nan_is_no_infinity(spec: Callable[..., Tensor]) -> None:
    inputs = (_normal(16, 32),) if spec is not torch.add else (_normal(16, 32), _normal(32))
    for candidate, question in ((_nan_for_infinity(spec), "SPECIAL:inf"), (_infinity_for_nan(spec), "SPECIAL:nan")):
        judgement = judge(candidate, spec, inputs, questions=["FWD:given", "FWD:seeds", "SPECIAL:nan", "SPECIAL:inf"])
        assert question in [each.question for each in judgement.causes], str(judgement)
    judgement = judge(spec, spec, inputs, questions=["FWD:given", "FWD:seeds", "SPECIAL:nan", "SPECIAL:inf"])
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)


def test_where_orders_differ_an_infinity_may_be_a_nan_but_no_nan_is_an_infinity() -> None:
    inputs = (_normal(16, 32),)
    judgement = judge(
        _nan_for_infinity(_sum), _sum, inputs, questions=["FWD:given", "FWD:seeds", "SPECIAL:nan", "SPECIAL:inf"]
    )
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)
    judgement = judge(
        _infinity_for_nan(_sum), _sum, inputs, questions=["FWD:given", "FWD:seeds", "SPECIAL:nan", "SPECIAL:inf"]
    )
    assert [each.question for each in judgement.causes] == ["SPECIAL:nan"], str(judgement)


def test_assert_conforms_tells_a_nan_from_an_infinity() -> None:
    x = torch.tensor([1.0, torch.inf, torch.nan])
    opassay.assert_conforms(torch.relu(x), torch.relu, x)
    for out in ([1.0, torch.nan, torch.nan], [1.0, torch.inf, torch.inf]):
        with pytest.raises(AssertionError, match=r"is (NaN|inf) where the exact value is (NaN|inf)"):
            opassay.assert_conforms(torch.tensor(out), torch.relu, x)


@pytest.mark.parametrize(
    ("spec", "one"),
    [
        (lambda x, y: torch.exp(x + y) * 2, True),
        (lambda x, y: (x - y) * y, False),  # may be taken apart: x y - y y
        (lambda x, y: x + y + 1, True),
        (lambda x, y: x + y + x.mean(), False),
        (lambda x, y: torch.where(x > 0, x, y), False),
    ],
)
def test_one_order_is_that_of_a_chain(spec: Callable[..., Tensor], one: bool) -> None:
    from opassay.properties.candidates.arguments import CallArguments

    graph = specification(spec).traced_at(CallArguments.of((_normal(3), _normal(3))), {}).graph
    assert in_one_order(graph) is one


def test_zeros_have_both_signs_where_the_spec_gives_the_same_at_either() -> None:
    def spec(x: Tensor) -> Tensor:
        return torch.relu(x) * 2 + 1

    def wrong(x: Tensor) -> Tensor:
        return torch.where((x == 0) & x.signbit(), 5.0, spec(x))

    x = _normal(4, 8)
    assert judge(spec, spec, (x,), questions=["SPECIAL:zeros"]).verdict is Ruling.ACCEPTED
    assert judge(wrong, spec, (x,), questions=["SPECIAL:zeros"]).verdict is Ruling.REJECTED
    for of_sign in (lambda x: 1 / x, lambda x: torch.copysign(x + 1, x), lambda x: x.signbit().float()):
        assert judge(of_sign, of_sign, (x,), questions=["SPECIAL:zeros"]).verdict is not Ruling.REJECTED
