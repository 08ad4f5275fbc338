"""What a failure says of all failing samples, and of which failure the simplest sample tells."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from opassay import Cell, Code, Outcome, Settings, Verdict, impl, run_cell
from opassay.oracles.bound.accept import Edges
from opassay.oracles.op.declaration import Sample
from opassay.oracles.verdicts.verdict import Worst
from opassay.oracles.verdicts.violation import Outlier, Violation, same_failure
from opassay.properties.catalog.loading import load_op
from opassay.properties.engine.failure_pattern import Contrast, facts_of

VALUE = Violation(Code.VALUE, "wrong", path="forward")


def _verdict(
    subject: Callable[..., Any], name: str = "faulty", code: str = "FWD", dtype: str = "float32", simpler: bool = True
) -> Verdict:
    op = dataclasses.replace(load_op("layer_norm"), subjects={name: subject})
    return run_cell(Cell("layer_norm", code, dtype, "cpu", name), Settings("brief", simpler=simpler), op)


def _where(condition: Callable[..., bool]) -> Callable[..., Tensor]:
    """Layer norm that is NaN, 12345 for what is not finite, where a condition on (input, weight, bias, eps) holds."""

    def op(x: Tensor, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
        y = impl.layer_norm(x, shape, weight, bias, eps)
        return torch.where(y.isfinite(), math.nan, 12345.0).to(y.dtype) if condition(x, weight, bias, eps) else y

    return op


@pytest.mark.one_fast_in(5)
@pytest.mark.parametrize(
    ("condition", "fact"),
    [
        (lambda x, weight, bias, eps: weight is None, "weight=None"),
        (lambda x, weight, bias, eps: bias is not None, "bias given"),
        (lambda x, weight, bias, eps: x.ndim == 3, "input of 3 dims"),
        (lambda x, weight, bias, eps: eps == 1e-5, "eps=1e-05"),
        (lambda x, weight, bias, eps: weight is None and bias is not None, "weight=None"),
    ],
)
def test_a_failure_says_what_failing_samples_have_in_common(condition: Callable[..., bool], fact: str) -> None:
    verdict = _verdict(_where(condition))
    assert verdict.outcome == Outcome.FAIL
    assert verdict.failure is not None
    assert "in common all " in verdict.failure.message
    assert fact in verdict.failure.message.split("in common")[1]


def test_a_failure_that_is_not_to_be_simpler_is_the_same_of_the_sample_as_it_was_found() -> None:
    result, simplest = (_verdict(_where(lambda x, *rest: x.ndim == 3), simpler=simpler) for simpler in (False, True))
    assert (result.outcome, result.code, result.reason) == (Outcome.FAIL, simplest.code, simplest.reason)
    assert result.failure is not None
    assert simplest.failure is not None
    assert "in common" not in result.failure.message
    assert len(result.failure.case) > len(simplest.failure.case)


def test_a_dtype_beside_the_input_is_named() -> None:
    verdict = _verdict(_where(lambda x, weight, bias, eps: weight is not None and weight.dtype != x.dtype),
                       dtype="bfloat16")  # fmt: skip
    assert verdict.failure is not None
    assert "weight of dtype float32" in verdict.failure.message


def test_nothing_is_said_where_all_samples_fail_and_where_facts_do_not_tell_them_apart() -> None:
    every = _verdict(_where(lambda *args: True))
    assert every.failure is not None
    assert "in common" not in every.failure.message
    contrast = Contrast()
    assert contrast.describe() == ""
    contrast.note(frozenset({"a", "b"}), VALUE)
    assert contrast.describe() == ""
    contrast.note(frozenset({"a", "b", "c"}), None)
    assert contrast.describe() == ""


def test_another_failure_counts_for_neither_side() -> None:
    contrast = Contrast()
    contrast.note(frozenset({"a", "b"}), VALUE)
    contrast.note(frozenset({"b"}), Violation(Code.RAISED, "raised", path="forward"))
    contrast.note(frozenset({"c"}), None)
    assert contrast.describe() == "in common the one failing kind of samples: a; b; the passing one lacks it"


def test_facts_name_arguments() -> None:
    op = load_op("layer_norm")
    facts = facts_of(op, Sample((torch.zeros(2, 0), (0,), None, torch.zeros(0), 1e-5), regime="benign, tiny"))
    assert facts >= {"input of 2 dims", "input without elements", "normalized_shape=(0,)", "weight=None", "bias given"}
    assert facts >= {"bias of dtype float32", "eps=1e-05", "regime benign", "regime tiny"}


def _failing(path: str, output: int, ratio: float, code: Code = Code.VALUE) -> Violation:
    worst = Worst("out", path, "0x0p0", "0", 1.0, ratio)
    edges = Edges(-1.0, 1.0)
    outlier = Outlier("out", output, (0,), worst, 1.0, edges, 1, 1, ((0, 0),), "", "", 1.0)
    return Violation(code, "wrong", path=path, outlier=outlier)


def test_a_simpler_sample_stands_for_the_same_failure_only() -> None:
    first = _failing("vjp (eager)", 1, 5000.0)
    same = functools.partial(same_failure, first)
    assert same(_failing("vjp (eager)", 1, 2000.0))
    assert same(_failing("vjp (eager)", 1, math.inf))
    assert not same(_failing("vjp (func)", 1, 5000.0)), "another path"
    assert not same(_failing("vjp (eager)", 0, 5000.0)), "another output"
    assert not same(_failing("vjp (eager)", 1, 500.0)), "another magnitude"
    assert not same(_failing("vjp (eager)", 1, 5000.0, Code.SPECIAL)), "another promise"
    batched = Violation(Code.VALUE, "wrong", path="vmap(in_dims=(x: 0, w: None), out_dims=(0,))")
    assert same_failure(batched, Violation(Code.VALUE, "wrong", path="vmap(in_dims=(x: 1, w: 0), out_dims=(1,))"))


def test_shrinking_keeps_the_magnitude_of_the_first_failure() -> None:
    # The small fault is in the simplest samples, the large one in those of three dims alone.
    def op(x: Tensor, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
        y = impl.layer_norm(x, shape, weight, bias, eps)
        if x.ndim == 3:
            return y * 2 + 1
        return y + 2e-6 * y.abs().amax() if len(magnitudes) > 3 else y

    magnitudes: list[int] = []

    def count(*args: Any) -> Tensor:
        y = op(*args)
        magnitudes.extend([1] * (args[0].ndim == 3))
        return y

    verdict = _verdict(count)
    assert verdict.outcome == Outcome.FAIL
    assert verdict.measure.worst is not None
    assert verdict.measure.worst.ratio > 1024


def test_dtypes_come_before_values() -> None:
    def double(x: Tensor, *rest: Any) -> Tensor:
        return impl.layer_norm(x, *rest).double() * 1.1

    verdict = _verdict(double, "opassay")
    assert verdict.code == Code.ATTRIBUTE
    assert "has dtype float64, need float32" in verdict.reason
