"""DET finds results that change from run to run or with the number of threads."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from opassay.oracles.op.documented import Documented
from opassay.properties.checks.determinism import check_determinism
from tests.oracles.planted_ops import (
    ALL,
    Subject,
    custom,
    declared,
    judge,
    right_backward,
    sample,
    scaled,
    upward,
    violation,
)


def _every_other_run() -> Subject:
    calls = itertools.count()
    # A run calls the op twice: forward, and for its gradient.
    return lambda x, w: upward((x * w).detach()) + x * w * 0 if next(calls) % 4 == 2 else x * w


def _by_threads(x: Tensor, w: Tensor) -> Tensor:
    return x * w if torch.get_num_threads() < 3 else upward((x * w).detach()) + x * w * 0


def _gradient_by_threads(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    d_x, d_w = right_backward(g, x, w)
    return (d_x, d_w) if torch.get_num_threads() == 1 else (d_x, upward(d_w))


def _second_by_threads(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    d_x, d_w = right_backward(g, x, w)
    # What is added is zero, and its derivative is not.
    return (d_x, d_w) if torch.get_num_threads() == 1 else (d_x + (g - g.detach()), d_w)


FAULTS: dict[str, Subject] = {
    "every other run": _every_other_run(),
    "three threads": _by_threads,
    "gradient by threads": custom(backward=_gradient_by_threads),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    threads = torch.get_num_threads()
    result = violation(check_determinism, declared(FAULTS[name]), sample(1))
    assert result is not None
    assert result.code.name == "BITS", result.message
    assert torch.get_num_threads() == threads


def test_tensors_of_images_are_asked_with_channels_last_as_well() -> None:
    def by_threads_there(x: Tensor, w: Tensor) -> Tensor:
        return x * w if x.is_contiguous() else _by_threads(x, w)

    result = violation(check_determinism, declared(by_threads_there), sample(1, lead=(2, 3, 4)))
    assert result is not None
    assert result.code.name == "BITS", result.message
    assert violation(check_determinism, declared(by_threads_there), sample(1, lead=(2, 3))) is None


@pytest.mark.parametrize(("factor", "fault"), [(1.0, None), (1.001, "VALUE")])
def test_who_documents_no_bits_stays_within_the_bound_with_other_threads(factor: float, fault: str | None) -> None:
    def summed(x: Tensor, w: Tensor) -> Tensor:
        parts = torch.get_num_threads()
        return sum((part.sum() for part in (x * w).flatten().chunk(parts)), torch.zeros(())) * factor ** (parts - 1)

    documented = {"opassay": Documented(bits=False)}
    op = declared(summed, reference=lambda x, w: np.sum(x * w), documented=documented)
    shared = violation(check_determinism, op, sample(1, lead=(64,)))
    assert (shared and shared.code.name) == fault
    every_bit = violation(check_determinism, dataclasses.replace(op, documented={}), sample(1, lead=(64,)))
    assert every_bit is not None
    assert every_bit.code.name == "BITS"


def test_who_documents_no_bits_still_repeats_them() -> None:
    op = declared(_every_other_run(), documented={"opassay": Documented(bits=False)})
    result = violation(check_determinism, op, sample(1))
    assert result is not None
    assert result.code.name == "BITS"


@pytest.mark.parametrize("dtype", ALL)
def test_the_right_op_passes(dtype: str) -> None:
    assert judge(check_determinism, declared(scaled), sample(1, dtype, (65,), 33), dtype).judged > 0


@pytest.mark.parametrize(
    ("steady", "rows", "length", "wrong"),
    [(True, 1, 65_536, True), (True, 1, 65_535, False), (False, 1, 65_536, False), (True, 256, 256, True)],
)
def test_gradients_of_gradients_are_asked_where_they_are_promised(
    steady: bool, rows: int, length: int, wrong: bool
) -> None:
    op = declared(custom(backward=_second_by_threads)).changed(steady=steady)
    fault = violation(check_determinism, op, sample(1, lead=(rows,), n=length))
    assert (fault is not None) is wrong
    assert fault is None or "vjp∘vjp" in fault.message
