"""ERROR finds invalid input that is accepted, refused in other words, or refused too late."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from opassay.oracles.bound.contract import contract
from opassay.oracles.judge.judge import Judge
from opassay.oracles.op.declaration import Refusal
from opassay.oracles.verdicts.violation import Unsupported
from opassay.properties.checks.agreement import outputs_of
from opassay.properties.checks.refusals import check_refusals
from tests.oracles.planted_ops import (
    Subject,
    accumulated,
    accumulating,
    accumulating_sample,
    declared,
    judge,
    sample,
    scaled,
    violation,
)

Args = tuple[Any, ...]


def _longer_weight(args: Args) -> Args:
    return args[0], torch.ones(args[1].shape[0] + 1)


REFUSALS = (Refusal("weight of another length", _longer_weight, RuntimeError, ("size",)),)


def _broadcasts(x: Tensor, w: Tensor) -> Tensor:
    return x * w[: x.shape[-1]]


def _raises(error: Exception) -> Subject:
    def op(x: Tensor, w: Tensor) -> Tensor:
        if w.shape[0] != x.shape[-1]:
            raise error
        return x * w

    return op


def _writes_first(x: Tensor, w: Tensor) -> Tensor:
    x.mul_(1)
    if w.shape[0] != x.shape[-1]:
        raise RuntimeError("scaled: got w of another size")
    return x * w


FAULTS: dict[str, tuple[Subject, str, str]] = {
    "accepts": (_broadcasts, "NOT_RAISED", "accepted weight of another length, need RuntimeError"),
    "another type": (_raises(ValueError("size")), "NOT_RAISED", "raised ValueError, need RuntimeError"),
    "another text": (_raises(RuntimeError("scaled: no")), "NOT_RAISED", "does not mention 'size'"),
    "another op's text": (_raises(RuntimeError("other: got size=3")), "NOT_RAISED", "begins with 'other', need scaled"),
    "op and argument exchanged": (_raises(RuntimeError("size: got scaled=3")), "NOT_RAISED", "begins with 'size'"),
    "another argument": (_raises(RuntimeError("scaled: got sizes=3")), "NOT_RAISED", "does not mention 'size'"),
    "writes before it refuses": (_writes_first, "MUTATED", "wrote before refusing"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    subject, code, text = FAULTS[name]
    op = declared(subject, refusals=REFUSALS).changed(error_names=("scaled",))
    result = violation(check_refusals, op, sample(1))
    assert result is not None
    assert result.code.name == code
    assert text in result.title


def test_the_right_op_passes() -> None:
    assert judge(check_refusals, declared(scaled, refusals=REFUSALS), sample(1)).judged == 1


def test_other_subjects_promise_the_type_alone() -> None:
    op = declared(scaled, subjects={"torch": _raises(RuntimeError("no"))}, refusals=REFUSALS)
    check_refusals(Judge(op, "torch", contract("float32")), sample(1))


def test_an_op_without_refusals_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="documents no invalid input"):
        judge(check_refusals, declared(scaled), sample(1))


def test_a_write_to_what_it_may_write_before_it_refuses_is_found() -> None:
    def longer(args: Args) -> Args:
        return args[0], torch.ones(args[1].shape[0] + 1), args[2]

    refusals = (Refusal("weight of another length", longer, RuntimeError, ("size",)),)
    sample = accumulating_sample(1)
    copy = sample.args[2].clone()
    result = violation(check_refusals, accumulating(accumulated, refusals=refusals), sample)
    assert result is not None
    assert result.code.name == "MUTATED"
    assert torch.equal(sample.args[2], copy)


def test_an_argument_on_another_device_is_a_mistake_as_any_other() -> None:
    elsewhere = (Refusal("w elsewhere", lambda args: (args[0], args[1].to("meta")), RuntimeError, ("device",)),)

    def asks(x: Tensor, w: Tensor) -> Tensor:
        if x.device != w.device:
            raise RuntimeError(f"scaled: got w on device={w.device}")
        return x * w

    assert judge(check_refusals, declared(asks, refusals=elsewhere), sample(1)).judged == 1
    result = violation(check_refusals, declared(lambda x, w: x + x, refusals=elsewhere), sample(1))
    assert result is not None
    assert result.title.endswith("accepted w elsewhere, need RuntimeError")


def test_a_mistake_in_elements_is_not_asked_of_a_gpu() -> None:
    def answered(device: str) -> int:
        refusal = Refusal("weight of another length", _longer_weight, RuntimeError, ("size",), in_elements=True)
        judge = Judge(
            declared(_raises(RuntimeError("size")), refusals=(refusal,)), "opassay", contract("float32"), device
        )
        check_refusals(judge, sample(1))
        return judge.tally.judged

    assert (answered("cpu"), answered("cuda")) == (1, 0)


def test_a_gpu_is_not_asked_for_outputs_that_the_cpu_refuses() -> None:
    """A guess, such as another ignored class, may be a mistake in elements."""
    calls = 0

    def refuses(x: Tensor, w: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        raise IndexError("scaled: got a class that is none")

    refusal = Refusal("a wrong class", lambda args: None, IndexError, ("class",), in_elements=True)
    judge = Judge(declared(refuses, refusals=(refusal,)), "opassay", contract("float32"), "cuda")
    assert outputs_of(judge, sample(1).args) is None
    assert calls == 1  # on the CPU, and not once more
    accepts = declared(lambda x, w: x * w, refusals=(refusal,))
    assert outputs_of(Judge(accepts, "opassay", contract("float32"), "cuda"), sample(1).args) is not None
