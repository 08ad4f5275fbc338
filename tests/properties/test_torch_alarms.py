"""Questions in which rules of torch's operations were wrong once: the right passes, a fault beside it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from opassay.oracles.op.declaration import OWN
from opassay.oracles.verdicts.verdict import Outcome
from opassay.properties.catalog.loading import load_op
from opassay.properties.engine.samples import Settings
from opassay.properties.verification import verify

Change = Callable[..., Any]


def _at_zero(y: Any, x: Any, *rest: Any) -> Any:
    """With the right value and slope at 0, and a second derivative of 10."""
    return torch.where(x == 0, 5 * x * x + x, y)


def _at_equal(y: Any, x: Any, target: Any) -> Any:
    return y + torch.where(x == target, 5 * (x - target).square(), 0.0).sum()


def _beside_nan(y: Any, *operands: Any) -> Any:
    return y.nan_to_num(7.0) + sum(x.isnan().any() for x in operands)


def _slope_beside_nan(y: Any, *operands: Any) -> Any:
    """With the slope of all numbers off by 1 where there is a NaN among them."""
    moved = [((x - x.detach()) * x.isnan().any()).nan_to_num().sum() for x in operands]
    return y + sum(moved)


#: Operation, question, and a fault beside the place that was mended.
CASES: tuple[tuple[str, str, Change], ...] = (
    ("sign", "SPECIAL", lambda y, x: torch.where(x.isnan(), 1.0, y)),
    ("sgn", "SPECIAL", lambda y, x: torch.where(x.isnan(), 1.0, y)),
    ("cdist", "SPECIAL", _beside_nan),
    ("nn.functional.normalize", "SPECIAL", _beside_nan),
    ("var_mean", "SPECIAL", lambda y, x: torch.where(y.isfinite(), y, 0.0)),
    ("atan", "SPECIAL", lambda y, x: torch.where(x.isinf(), 1.5, y)),
    ("atan2", "SPECIAL", lambda y, a, b: torch.where(a.isinf() | b.isinf(), 1.5, y)),
    ("nn.functional.softshrink", "SPECIAL", lambda y, x: y + 0 * x),
    ("nn.functional.elu", "ORD2", _at_zero),
    ("nn.functional.celu", "ORD2", _at_zero),
    ("nn.functional.smooth_l1_loss", "ORD2", _at_equal),
    ("nn.functional.huber_loss", "ORD2", _at_equal),
    ("mm", "EMPTY", lambda y, a, b: y + 1),
    ("addmm", "EMPTY", lambda y, *xs: y + 1),
    ("prod", "EMPTY", lambda y, x: y + 1),
    ("sort", "EMPTY", lambda y, x: y.new_zeros(*y.shape, 1)),
    ("special.entr", "ORD2", lambda y, x: 2 * y),
    ("xlogy", "ORD2", lambda y, x, other: 2 * y),
    ("nanmean", "ORD2", lambda y, x: 2 * y),
    ("copysign", "FWD", lambda y, x, sign: torch.where(sign == 0, -y, y)),
    ("mode", "FWD", lambda y, x: y + 1),
    ("nn.functional.embedding_bag", "VJP", lambda y, *xs: 2 * y),
    ("nn.functional.group_norm", "SPECIAL", _beside_nan),
    ("nn.functional.instance_norm", "SPECIAL", _beside_nan),
    ("native_group_norm", "SPECIAL", _beside_nan),
    ("_native_batch_norm_legit", "SPECIAL", _beside_nan),
    ("amax", "SPECIAL", _beside_nan),
    ("msort", "SPECIAL", _slope_beside_nan),
    ("masked.amin", "SPECIAL", _slope_beside_nan),
    ("nn.functional.l1_loss", "SPECIAL", _slope_beside_nan),
    ("nn.functional.huber_loss", "SPECIAL", _slope_beside_nan),
    ("nn.functional.hinge_embedding_loss", "SPECIAL", _beside_nan),
    ("nn.functional.hardtanh", "SPECIAL", _slope_beside_nan),
    ("kthvalue", "SPECIAL", _beside_nan),
    ("nn.functional.pdist", "SPECIAL", _beside_nan),
    ("logsumexp", "SPECIAL", lambda y, x: y.nan_to_num(7.0, 7.0, 7.0)),
    ("nn.functional.gaussian_nll_loss", "SPECIAL", _beside_nan),
    ("unbind", "COMP", lambda y, x: y + torch.compiler.is_compiling()),
)


def _outcome(op: Any, question: str) -> Outcome:
    (verdict,) = verify(op, "torch", [question], ["float64"], settings=Settings("brief", max_examples=6, simpler=False))
    return verdict.outcome


@pytest.mark.fast_cases("atan-SPECIAL", "sort-EMPTY", "xlogy-ORD2", "copysign-FWD")
@pytest.mark.parametrize(("name", "question", "change"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES])
def test_what_is_right_passes_and_a_fault_beside_it_does_not(name: str, question: str, change: Change) -> None:
    op = load_op(f"torch:{name}")
    assert _outcome(op, question) is Outcome.VERIFIED
    right = op.subjects["torch"]

    def subject(call: str, *operands: Any) -> tuple[Any, ...]:
        return tuple(change(y, *operands) if y.is_floating_point() else y for y in right(call, *operands))

    assert _outcome(replace(op, subjects={OWN: subject, "torch": subject}), question) is Outcome.FAIL


@pytest.mark.parametrize(
    ("name", "question"),
    [("view", "LAYOUT"), ("take_along_dim", "VMAP"), ("nn.functional.max_pool3d", "LAYOUT"), ("double", "NEST")],
)
def test_an_error_of_strides_says_so(name: str, question: str) -> None:
    assert _outcome(load_op(f"torch:{name}"), question) in (Outcome.REFUSED, Outcome.VERIFIED)


def test_samples_without_elements_that_are_not_read_are_not_asked() -> None:
    assert _outcome(load_op("torch:nn.functional.rrelu"), "EMPTY") is Outcome.UNSUPPORTED
