"""What a subject documents as outside may be refused, a wrong number never passes, a cell tells all its failures."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from opassay import Cell, Code, Documented, Limit, Op, Outcome, Settings, Verdict, impl, replay_case, run_cell
from opassay.oracles.bound.contract import contract
from opassay.oracles.judge.judge import Judge
from opassay.oracles.op.declaration import Sample
from opassay.oracles.verdicts.verdict import Failure, Signs
from opassay.oracles.verdicts.violation import Violation, error_of, raised
from opassay.properties.catalog.loading import load_op
from opassay.properties.declaring.declare import declare
from opassay.reference.linalg import trace as formula
from opassay.reports.causes.severity import Severity, severity_of

HALF = Documented("the manual", dtypes=("float64",))
NARROW = Documented("the manual", limits=(Limit("one row", "the manual", where=lambda args: args[0].shape[0] == 1),))


def _op(subject: Callable[..., Any], documented: Documented | None, name: str = "trace") -> Op:
    """An op of the catalog with one implementation by somebody else, and what that one documents."""
    op = load_op(name)
    assert isinstance(op, Op)
    own = {} if documented is None else {"theirs": documented}
    return dataclasses.replace(op, subjects={"theirs": subject}, documented=own)


def _verdict(op: Op, code: str = "FWD", dtype: str = "float32", *, simpler: bool = False) -> Verdict:
    return run_cell(Cell(op.name, code, dtype, "cpu", "theirs"), Settings("brief", simpler=simpler), op)


def _raising(error: Exception, when: Callable[[Tensor], bool] = lambda x: True) -> Callable[[Tensor], Tensor]:
    def subject(x: Tensor) -> Tensor:
        if when(x):
            raise error
        return torch.trace(x)

    return subject


def test_a_clear_error_on_what_is_documented_as_outside_is_refused() -> None:
    verdict = _verdict(_op(_raising(RuntimeError("trace: float64 alone")), HALF))
    assert (verdict.outcome, verdict.code, verdict.failure) == (Outcome.REFUSED, Code.REFUSED, None)
    assert verdict.measure.refused > 0 == verdict.measure.samples
    assert "the manual" in verdict.reason
    assert "RuntimeError: trace: float64 alone" in verdict.reason


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize(
    ("error", "documented"),
    [
        (RuntimeError("trace: float64 alone"), None),
        (RuntimeError(""), HALF),
        (RuntimeError("x INTERNAL ASSERT FAILED at y, please report a bug to PyTorch."), HALF),
        (KeyError("float32"), HALF),
        (RuntimeError("inside"), Documented("the manual", dtypes=("float32",))),
    ],
)
def test_any_other_error_fails(error: Exception, documented: Documented | None) -> None:
    verdict = _verdict(_op(_raising(error), documented))
    assert (verdict.outcome, verdict.code) == (Outcome.FAIL, Code.RAISED)


def test_what_is_inside_is_judged_beside_what_was_refused() -> None:
    verdict = _verdict(_op(_raising(ValueError("no single rows"), lambda x: x.shape[0] == 1), NARROW))
    assert verdict.outcome is Outcome.VERIFIED
    assert verdict.measure.refused > 0
    assert verdict.measure.samples > 0
    assert "no single rows" in verdict.reason
    # The same error on what is inside is a failure.
    assert _verdict(_op(_raising(ValueError("no rows"), lambda x: x.shape[0] == 2), NARROW)).code is Code.RAISED


def test_a_wrong_number_fails_also_where_it_might_have_been_refused() -> None:
    assert _verdict(_op(lambda x: torch.trace(x) + 1.0, HALF)).outcome is Outcome.FAIL
    assert _verdict(_op(torch.trace, HALF)).outcome is Outcome.VERIFIED


def _without_weight(hidden: bool) -> Callable[..., Tensor]:
    """Layer norm without a gradient of its weight: it says so, or hides it."""

    def subject(x: Tensor, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
        if weight is not None and not hidden and torch._C._functorch.maybe_get_level(weight) > 0:
            raise RuntimeError("the derivative for 'weight' is not implemented")
        return impl.layer_norm(x, shape, None if weight is None else weight.detach(), bias, eps)

    return subject


def test_a_gradient_that_is_not_documented_is_refused_and_the_others_are_asked() -> None:
    documented = Documented("the manual", differentiable=("input", "bias"))
    verdict = _verdict(_op(_without_weight(hidden=False), documented, "layer_norm"), "VJP")
    assert verdict.outcome is Outcome.VERIFIED, verdict.reason
    assert verdict.measure.refused > 0
    assert "no gradient of weight (the manual)" in verdict.reason
    silent = _verdict(_op(_without_weight(hidden=True), documented, "layer_norm"), "VJP")
    assert (silent.outcome, silent.code) == (Outcome.FAIL, Code.VALUE)


def test_a_promise_that_a_subject_does_not_make_is_not_asked() -> None:
    documented = Documented("the manual", not_asked={"FWD": "it is no use"}, promises={"saved": None})
    verdict = _verdict(_op(torch.trace, documented))
    assert (verdict.outcome, verdict.code) == (Outcome.UNSUPPORTED, Code.NOT_APPLICABLE)
    assert "it is no use" in verdict.reason
    assert _verdict(_op(torch.trace, documented), "MEM").outcome is Outcome.UNSUPPORTED


def test_an_input_may_be_cast_before_the_op_as_documented() -> None:
    def cast(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
        return impl.softmax(x if dtype is None else x.to(dtype), dim)

    documented = Documented("the manual", casts=lambda args: args[2])
    for code in ("FWD", "VJP"):
        assert _verdict(_op(cast, documented, "softmax"), code, "float64").outcome is Outcome.VERIFIED
        assert _verdict(_op(cast, None, "softmax"), code, "float64").outcome is Outcome.FAIL
    wrong = _op(lambda x, dim, dtype=None: cast(x.half().to(x.dtype), dim, dtype), documented, "softmax")
    assert _verdict(wrong, "FWD", "float64").outcome is Outcome.FAIL


def test_a_declaration_names_arguments_that_there_are() -> None:
    with pytest.raises(ValueError, match="nothing"):
        declare(
            formula, {"theirs": torch.trace}, samples=lambda dtype, kind: None, differentiable=("input",),
            dtypes=lambda input: (input.dtype,), documented={"theirs": Documented(differentiable=("nothing",))},
        )  # fmt: skip


def _of_two_faults(x: Tensor) -> Tensor:
    """Trace that is one too large for a single row, and refuses three rows."""
    if x.shape[0] == 3:
        raise RuntimeError("three rows")
    return torch.trace(x) + 1.0 if x.shape[0] == 1 else torch.trace(x)


def test_a_cell_tells_each_kind_of_failure_with_how_many_samples_showed_it() -> None:
    verdict = _verdict(_op(_of_two_faults, None), simpler=True)
    assert verdict.outcome is Outcome.FAIL
    results = {failure.code: failure for failure in verdict.causes}
    assert len(verdict.causes) == len(results) == 2
    assert results[Code.RAISED].signs.error == "RuntimeError: three rows"
    assert all(failure.signs.samples >= 1 for failure in verdict.causes)
    assert sum(failure.signs.samples for failure in verdict.causes) > 2
    for failure in verdict.causes:
        rows = json.loads(failure.case)["args"][0]["shape"][0]
        assert rows == {Code.RAISED: 3, Code.VALUE: 1}[failure.code]


def test_the_verdict_of_a_single_fault_has_one_kind() -> None:
    verdict = _verdict(_op(lambda x: torch.trace(x) + 1.0, None))
    assert len(verdict.causes) == 1
    assert verdict.others == ()


def _share(wrong: Callable[[Tensor, Tensor], Tensor], x: list[float]) -> Severity:
    """How severe it is that a product of a tensor and ones is wrong."""
    op = dataclasses.replace(load_op("log_sigmoid"), reference=lambda input: input * 1.0, subjects={"theirs": wrong})
    judge = Judge(op, "theirs", contract("float64"))
    with pytest.raises(Violation) as error:
        judge.hold(Sample((torch.tensor(x, dtype=torch.float64),)))
    assert error.value.outlier is not None
    share = error.value.outlier.share
    assert share is not None
    return severity_of(Failure(error.value.code, "t", "m", signs=Signs(share=share)), "float64")


def test_an_error_beside_an_exact_zero_is_as_severe_as_it_is_large() -> None:
    def plus(error: float) -> Callable[..., Tensor]:
        return lambda x: torch.where(x == 0.0, error, x)

    assert _share(plus(1e-17), [1.0, 0.0, -1.0]) is Severity.NEGLIGIBLE
    assert _share(plus(1e-13), [1.0, 0.0, -1.0]) is Severity.DIGITS
    assert _share(plus(1e-5), [1.0, 0.0, -1.0]) is Severity.INACCURATE
    assert _share(plus(0.5), [1.0, 0.0, -1.0]) is Severity.WRONG
    assert _share(plus(math.nan), [1.0, 0.0, -1.0]) is Severity.WRONG


def _of_a_function(code: str, **text: Any) -> Outcome:
    """The outcome of torch's custom functions, for 0.75 x written and returned in some container."""
    spec = json.dumps({"arity": 1, "terms": [[[[0, "same"]], 0.75, False]], "ways": ["fresh"], **text})
    body = {
        "schema": "opassay-case/1", "seed": 0, "regime": "benign", "slices": [],
        "cell": {
            "op": "workshop.functions.declaration:FUNCTION", "property": code, "dtype": "float32", "device": "cpu",
            "subject": "torch",
        },
        "args": [{"str": spec}, {"dtype": "float32", "shape": [1], "bits": "6cbf003e"}],
    }  # fmt: skip
    return replay_case(json.dumps(body)).outcome


def test_torch_s_functions_return_a_tensor_or_a_tuple() -> None:
    assert _of_a_function("FWD", container="list", ways=["dirty"]) is Outcome.REFUSED
    assert _of_a_function("FWD", ways=["dirty"]) is Outcome.VERIFIED
    # The gradient of a list is zero, and nothing says so.
    assert _of_a_function("VJP", container="list", backward_order=[0]) is Outcome.FAIL
    assert _of_a_function("VJP", backward_order=[0]) is Outcome.VERIFIED


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("backend='x' raised:\nValueError: size 3\n\nWhile executing", "ValueError: size #"),
        ("one raised:", "RuntimeError: one raised:"),
        ("one\ntwo", "RuntimeError: one"),
    ],
)
def test_an_error_that_stands_for_another_is_told_by_that_one(message: str, text: str) -> None:
    error = RuntimeError(message)
    violation = raised("op", error, "forward")
    violation.__cause__ = error
    assert error_of(violation) == text


def test_a_primal_without_promised_bits_is_judged_where_its_bits_are_those_of_the_plain_call() -> None:
    verdict = _verdict(_op(torch.trace, Documented("the manual", bits=False)), "DUAL")
    assert verdict.outcome is Outcome.VERIFIED, verdict.reason
    assert verdict.measure.judged > 0
