"""INV finds an op whose slices know how many others there are, where they stand, or what their neighbours hold."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from opassay.oracles.op.declaration import Op, Slices
from opassay.oracles.verdicts.violation import Unsupported
from opassay.properties.checks.invariance import check_invariance
from tests.oracles.planted_ops import ALL, Subject, custom, declared, right_backward, sample, scaled, upward, violations

SEEDS = range(12)


def promising(subject: Subject, slices: Slices | None = None) -> Op:
    """y = x w with slices along the first axis of x."""
    op, result = declared(subject), slices or Slices({"x": 0}, (0,))
    return op.changed(invariant=lambda args, device: result)


def _rows_at_once(x: Tensor, w: Tensor, which: Any) -> Tensor:
    y = scaled(x, w)
    where = torch.zeros(x.shape[0], dtype=torch.bool)
    where[which] = True
    return torch.where(where.reshape(-1, *(1,) * (x.dim() - 1)), upward(y), y)


def _by_number_of_rows(x: Tensor, w: Tensor) -> Tensor:
    return upward(scaled(x, w)) if x.shape[0] > 4 else scaled(x, w)


def _last_of_a_block(x: Tensor, w: Tensor) -> Tensor:
    # Rows that fill no block of six are computed another way: the tail of a vectorised loop.
    return _rows_at_once(x, w, slice(x.shape[0] // 6 * 6, None)) if x.shape[0] > 6 else scaled(x, w)


def _neighbours_leak(x: Tensor, w: Tensor) -> Tensor:
    return scaled(x, w) + 0.0 * x.detach().sum()


def _by_position(x: Tensor, w: Tensor) -> Tensor:
    return _rows_at_once(x, w, slice(3, None, 7))


def _backward_by_number(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    d_x, d_w = right_backward(g, x, w)
    return upward(d_x) if x.shape[0] == 1 else d_x, d_w


FAULTS: dict[str, Subject] = {
    "another kernel from five rows on": _by_number_of_rows,
    "the tail of a block": _last_of_a_block,
    "neighbours leak in as 0 x NaN": _neighbours_leak,
    "every seventh row": _by_position,
    "a gradient of one row alone": custom(backward=_backward_by_number),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    samples = [sample(seed, slices=3) for seed in SEEDS]
    result = violations(check_invariance, promising(FAULTS[name]), samples)
    assert set(result) == {"BITS"}, result


@pytest.mark.parametrize("dtype", ALL)
def test_the_right_op_passes(dtype: str) -> None:
    samples = [sample(seed, dtype, (2, 3, 4)[: 1 + seed % 3], 5, slices=3) for seed in SEEDS]
    assert set(violations(check_invariance, promising(scaled), samples, dtype)) == {"-"}


@pytest.mark.parametrize(("other", "fault"), [(math.copysign(math.nan, -1.0), "-"), (1.0, "BITS")])
def test_a_nan_may_have_another_sign_in_a_batch(other: float, fault: str) -> None:
    """IEEE 754 leaves the sign of a NaN to the instruction, and a longer axis is taken by other instructions."""

    def filled(x: Tensor, w: Tensor) -> Tensor:
        y = scaled(x, w)
        y.data.fill_(other if x.shape[0] > 4 else math.nan)
        return y

    assert set(violations(check_invariance, promising(filled), [sample(seed, slices=3) for seed in SEEDS])) == {fault}


def test_an_output_that_sums_over_slices_is_not_compared() -> None:
    op = promising(lambda x, w: (scaled(x, w), x.sum(0)), Slices({"x": 0}, (0, None)))
    both = replace(op, reference=lambda x, w: (x * w, x.sum(0)))
    assert set(violations(check_invariance, both, [sample(seed, slices=3) for seed in SEEDS])) == {"-"}


def test_ints_that_count_slices_follow_them_and_others_are_set() -> None:
    names: set[tuple[int, str]] = set()

    def counting(x: Tensor, w: Tensor, n: int, mode: str) -> Tensor:
        assert n == x.shape[0]
        names.add((n, mode))
        return scaled(x, w)

    op = promising(counting, Slices({"x": 0}, (0,), ("n",), {"mode": "none"}))
    op = replace(op, reference=lambda x, w, n, mode: x * w)
    case = sample(3, slices=3)
    args = [(*args, 4, "mean") for args in (case.args, *case.slices)]
    full = replace(case, args=args[0], slices=tuple(args[1:]))
    assert violations(check_invariance, op, [full]) == ["-"]
    assert names == {(n, "none") for n in (1, 4, 15, 16, 304)}  # one, a part, all but one, all, hundreds


def test_an_op_that_promises_nothing_is_not_asked() -> None:
    with pytest.raises(Unsupported, match="scaled promises nothing of slices"):
        violations(check_invariance, declared(scaled), [sample(0, slices=3)])
