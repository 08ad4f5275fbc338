"""LAW finds an op that breaks a declared relation."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from opassay.oracles.op.declaration import Law, Sample
from opassay.oracles.op.documented import Documented
from opassay.oracles.verdicts.violation import Unsupported, Violation
from opassay.properties.checks.laws import check_laws
from tests.oracles.planted_ops import ALL, Subject, declared, judge, sample, scaled, upward, violation

Args = tuple[Any, ...]


def _rolled(args: Args, rng: Any) -> Args:
    return args[0].roll(1, 0), args[1]


def _doubled(args: Args, rng: Any) -> Args:
    return args[0] * 2, args[1]


ROLLED = Law.pair("permutation of the rows", _rolled, lambda out: tuple(y.roll(1, 0) for y in out), exact=True)
DOUBLED = Law.pair("x -> 2 x", _doubled, lambda out: tuple(2 * y for y in out), exact=True)
NEVER = Law.pair("does not apply", lambda args, rng: None, lambda out: out, exact=True)
WITHIN = Law.pair("permutation, within bounds", _rolled, lambda out: tuple(y.roll(1, 0) for y in out), exact=False)


def _first_row_apart(x: Tensor, w: Tensor) -> Tensor:
    y = x * w
    return torch.cat([upward(y[:1]), y[1:]])


def _first_row_of_ones(x: Tensor, w: Tensor) -> Tensor:
    return torch.cat([torch.ones_like(x[:1]), (x * w)[1:]])


FAULTS: dict[str, tuple[Subject, Law, str]] = {
    "another rounding in the first row": (_first_row_apart, ROLLED, "BITS"),
    "a constant added": (lambda x, w: x * w + 2.0**-20, DOUBLED, "BITS"),
    "a value outside both bounds": (_first_row_of_ones, WITHIN, "VALUE"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    subject, law, code = FAULTS[name]
    result = violation(check_laws, declared(subject, laws=(NEVER, law)), sample(1))
    assert result is not None
    assert result.code.name == code
    assert code != "BITS" or law.name in result.title


@pytest.mark.parametrize("dtype", ALL)
def test_the_right_op_passes(dtype: str) -> None:
    judgement = judge(check_laws, declared(scaled, laws=(NEVER, ROLLED, DOUBLED, WITHIN)), sample(1, dtype), dtype)
    assert judgement.judged == 3 * 20


def test_a_subject_that_documents_no_equal_bits_is_held_to_the_bounds() -> None:
    def find(subject: Subject) -> Violation | None:
        op = declared(subject, laws=(ROLLED,))
        documented = dict.fromkeys(op.subjects, Documented("the manual", bits=False))
        return violation(check_laws, dataclasses.replace(op, documented=documented), sample(1))

    assert find(_first_row_apart) is None
    outside = find(_first_row_of_ones)
    assert outside is not None
    assert outside.code.name == "VALUE"


def test_zeros_of_both_signs_are_one_number() -> None:
    mirrored = Law.pair(
        "x -> -x", lambda args, rng: (-args[0], args[1]), lambda out: tuple(-y for y in out), exact=True
    )
    sample = Sample((torch.tensor([[0.0, -0.0, 1.0]]), torch.ones(3)))
    op = declared(lambda x, w: torch.where(x == 0, 0.0, x * w), laws=(mirrored,))
    assert judge(check_laws, op, sample).judged == 3


def test_results_that_are_not_finite_are_not_judged() -> None:
    sample = Sample((torch.tensor([[float("inf"), 1.0]]), torch.ones(2)))
    judgement = judge(check_laws, declared(scaled, laws=(DOUBLED,)), sample)
    assert (judgement.judged, judgement.not_judged) == (0, 2)


def test_an_output_without_elements_is_left_out() -> None:
    whole = Law.pair("the same call", lambda args, rng: args, lambda out: out, exact=False)
    op = declared(lambda x, w: (x * w, x.new_empty(0)), reference=lambda x, w: (x * w, np.ravel(x)[:0]), laws=(whole,))
    assert judge(check_laws, op, sample(1)).judged == 20


def test_a_relation_may_leave_out_what_is_not_finite() -> None:
    """The infinite row takes part in neither side; the other one is judged, and a fault in it found."""
    rest = Law.pair("last row", lambda args, rng: args, lambda out: out, exact=False)
    law = Law("last row", rest.calls, lambda args, a, b: ((a[0][1:],), (b[0][1:] * 2,)), exact=False)
    sample = Sample((torch.tensor([[float("inf"), 1.0], [1.0, 2.0]]), torch.ones(2)))
    result = violation(check_laws, declared(scaled, laws=(law,)), sample)
    assert result is not None
    assert result.code.name == "VALUE"


def test_an_op_without_laws_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="declares no laws"):
        judge(check_laws, declared(scaled), sample(1))


def test_outputs_of_another_shape_are_a_finding_where_the_relation_cannot_be_formed() -> None:
    law = Law.pair("rows", _rolled, lambda out: tuple(y[:, :2] + y[:, 1:] for y in out), exact=True)
    result = violation(check_laws, declared(lambda x, w: (x * w).reshape(-1), laws=(law,)), sample(1))
    assert result is not None
    assert (result.code.name, "out[0] has shape" in result.title) == ("ATTRIBUTE", True)
