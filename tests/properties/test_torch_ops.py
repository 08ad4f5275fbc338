"""The generated catalog of torch's operations: what is read, what a planted wrong derivative does, what is refused."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from opassay.impl import Function
from opassay.oracles.op.declaration import OWN, Op
from opassay.oracles.verdicts.verdict import Code, Outcome, Verdict
from opassay.properties.catalog.loading import load_op
from opassay.properties.checks.transforms.agree import Opaque
from opassay.properties.engine.plan import Selection, plan
from opassay.properties.engine.samples import Settings
from opassay.properties.names import SelectionError
from opassay.properties.torch_ops.operator_calls import calls_of, operators, reading_of
from opassay.properties.torch_ops.patterns import matching
from opassay.properties.torch_ops.torch_op import KINDS, spec_of
from opassay.properties.verification import verify

FEW = Settings("brief", 0, 6, simpler=False)


def opaque(reason: str) -> Opaque:
    formula: Any = Opaque(reason)
    formula.__signature__ = inspect.signature(lambda call, *operands: None)
    return formula  # type: ignore[no-any-return]


def judge_in_float64(op: Op, *codes: str) -> dict[str, Verdict]:
    verdicts = verify(op, "torch", codes, ["float64"], settings=FEW)
    return {verdict.cell.property: verdict for verdict in verdicts}


def plant(op: Op, changed: Callable[..., Any]) -> Op:
    """The op with another implementation of its first operand, a function of elements."""

    def subject(call: str, *operands: Any) -> tuple[Any, ...]:
        return (changed(operands[0]),)

    return replace(op, subjects={OWN: subject, "torch": subject})


class SineOfConstantSlope(torch.autograd.Function):
    """A sine whose slope is right, and is itself taken for a constant."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any) -> Any:
        return torch.sin(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * torch.cos(ctx.saved_tensors[0].detach())

    @staticmethod
    def jvp(ctx: Any, tangent: Any) -> Any:
        return tangent * torch.cos(ctx.saved_tensors[0])


class SineWithoutTangent(SineOfConstantSlope):
    """A sine without forward mode."""

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * torch.cos(ctx.saved_tensors[0])

    @staticmethod
    def jvp(ctx: Any, tangent: Any) -> Any:
        raise NotImplementedError("forward AD of this sine is not implemented")


class SineByFormula(Function):
    """A sine that is right."""

    generate_vmap_rule = True
    forward = SineOfConstantSlope.forward
    setup_context = SineOfConstantSlope.setup_context
    backward = SineWithoutTangent.backward
    jvp = SineOfConstantSlope.jvp


class SineOfConstantTangent(SineByFormula):
    """A sine whose tangent is right, and takes the slope for a constant where it is differentiated."""

    @staticmethod
    def jvp(ctx: Any, tangent: Any) -> Any:
        return tangent * torch.cos(ctx.saved_tensors[0].detach())


def test_a_right_operation_is_accepted() -> None:
    verdicts = judge_in_float64(load_op("torch:sin"), "FWD", "VJP", "JVP", "ORD2", "NEST", "WORD", "VMAP", "LAYOUT")
    assert {code: verdict.outcome for code, verdict in verdicts.items()} == dict.fromkeys(verdicts, Outcome.VERIFIED)


def test_a_compiler_traces_the_operation_alone() -> None:
    right = judge_in_float64(load_op("torch:sin"), "COMP")["COMP"]
    assert right.outcome is Outcome.VERIFIED
    assert "graph break" not in right.reason  # as there is where the calls are made while it traces

    wrong = plant(load_op("torch:sin"), lambda x: torch.sin(x) + torch.compiler.is_compiling())
    assert judge_in_float64(wrong, "COMP")["COMP"].outcome is Outcome.FAIL


@pytest.mark.parametrize("name", ["native_batch_norm", "_segment_reduce.offsets"])
def test_an_operation_is_not_called_at_sizes_that_its_other_tensors_do_not_have(name: str) -> None:
    op = load_op(f"torch:{name}")
    call = calls_of(name)[0]
    op.subject(OWN)(call.text, *call.operands)
    longer = call.operands[0].repeat(*[2] * call.operands[0].dim())
    with pytest.raises(ValueError, match="operand 0: an axis of 10 elements: need 5, as a tensor of the call"):
        op.subject(OWN)(call.text, longer, *call.operands[1:])


def test_a_planted_wrong_second_derivative_is_the_cause() -> None:
    op = plant(load_op("torch:sin"), SineOfConstantSlope.apply)
    verdicts = judge_in_float64(op, "VJP", "ORD2")
    assert verdicts["VJP"].outcome is Outcome.VERIFIED
    failure = verdicts["ORD2"].failure
    assert verdicts["ORD2"].outcome is Outcome.FAIL
    assert failure is not None
    assert failure.code is Code.VALUE
    assert failure.title.startswith("torch:sin jvp∘jvp")
    assert "sin(" in failure.message  # the call is told


def test_an_error_that_says_so_is_refused() -> None:
    verdicts = judge_in_float64(plant(load_op("torch:sin"), SineWithoutTangent.apply), "VJP", "JVP", "ORD2")
    assert verdicts["VJP"].outcome is Outcome.VERIFIED
    assert verdicts["JVP"].outcome is Outcome.REFUSED
    assert "is not implemented" in verdicts["JVP"].reason
    assert verdicts["ORD2"].outcome is Outcome.VERIFIED  # reverse over reverse is asked


def test_any_other_error_is_a_failure() -> None:
    def raises(x: Any) -> Any:
        raise RuntimeError("internal assertion")

    assert judge_in_float64(plant(load_op("torch:sin"), raises), "FWD")["FWD"].outcome is Outcome.FAIL


def test_what_is_not_read_says_why() -> None:
    verdicts = judge_in_float64(load_op("torch:linalg.householder_product"), "FWD")
    assert verdicts["FWD"].outcome is Outcome.UNSUPPORTED
    assert "aten.linalg_householder_product.default, which has no rule" in verdicts["FWD"].reason
    verdicts = judge_in_float64(load_op("torch:linalg.inv"), "FWD", "LAYOUT", "SPECIAL", "AGREE")
    assert verdicts.pop("AGREE").outcome is Outcome.VERIFIED
    for verdict in verdicts.values():
        assert verdict.outcome is Outcome.UNSUPPORTED
        assert "known by its residual alone" in verdict.reason


@pytest.mark.slow
def test_statistics_that_torch_does_not_differentiate_have_no_derivative() -> None:
    verdicts = judge_in_float64(load_op("torch:native_batch_norm"), "VJP", "JVP")
    assert {verdict.outcome for verdict in verdicts.values()} == {Outcome.VERIFIED}


def test_what_hangs_on_memory_is_not_asked_at_other_strides() -> None:
    verdict = judge_in_float64(load_op("torch:as_strided"), "LAYOUT")["LAYOUT"]
    assert verdict.outcome is Outcome.UNSUPPORTED
    assert "lies in memory" in verdict.reason


def test_calls_are_the_same_every_time_and_have_their_own_constants() -> None:
    first = calls_of("nn.functional.batch_norm")
    calls_of.cache_clear()
    again = calls_of("nn.functional.batch_norm")
    assert [call.text for call in first] == [call.text for call in again]
    for one, other in zip(first, again, strict=True):
        assert all(map(torch.equal, one.operands, other.operands))
    (call, *_) = (call for call in again if "training=True" in call.text and call.operands[0].numel())
    before = [leaf.clone() for leaf in call.leaves if isinstance(leaf, torch.Tensor)]
    call(*call.operands)
    assert all(map(torch.equal, before, (leaf for leaf in call.leaves if isinstance(leaf, torch.Tensor))))


def test_a_spec_by_decomposition_says_so() -> None:
    def spec(name: str) -> str:
        return spec_of(name, next(call for call in calls_of(name) if not reading_of(call).why_not))

    assert spec("sin") == "the operation's own rule"
    assert spec("nn.functional.gelu") == "the operation's own rule"
    assert spec("nn.functional.cosine_similarity").startswith("torch's decomposition: ")


@pytest.mark.slow
def test_a_tangent_that_is_not_differentiated_contradicts_the_gradient() -> None:
    op = replace(load_op("torch:sin"), reference=opaque("no formula"))
    right = judge_in_float64(plant(op, SineByFormula.apply), "AGREE")["AGREE"]
    assert right.outcome is Outcome.VERIFIED, right.reason
    wrong = judge_in_float64(plant(op, SineOfConstantTangent.apply), "AGREE")["AGREE"]
    assert wrong.reason == "torch:sin vjp∘jvp differs from vjp∘vjp"


@pytest.mark.parametrize("kind", KINDS)
def test_data_of_a_kind_has_the_shape_of_the_operand(kind: str) -> None:
    for shape in ((), (1,), (3, 4), (2, 0)):
        x = torch.from_numpy(np.random.default_rng(0).standard_normal(shape))
        if x.numel():
            assert KINDS[kind](x).shape == x.shape


@pytest.mark.slow
def test_a_pattern_means_the_names_of_operations() -> None:
    assert matching("torch:sin") == ("torch:sin",)
    assert matching("mine:*") == ("mine:*",)
    assert matching("torch:nn.functional.[cs]elu") == ("torch:nn.functional.celu", "torch:nn.functional.selu")
    cells = plan(Selection(ops=("torch:nn.functional.celu*",), properties=("ORD2",), dtypes=("float64",)))
    assert [cell.op for cell in cells] == ["torch:nn.functional.celu"]
    with pytest.raises(SelectionError, match="no operation of torch's own tests"):
        matching("torch:no_such*")
    with pytest.raises(SelectionError, match=re.escape("torch:nn.functional.gelu")):
        load_op("torch:nn.functional.gellu")


@pytest.mark.slow
def test_three_hundred_operations_are_read() -> None:
    names = [name for name in operators() if any(not reading_of(call).why_not for call in calls_of(name))]
    assert len(names) >= 300


@pytest.mark.slow
def test_complex_results_are_asked_by_their_parts_where_they_are_read() -> None:
    verdicts = judge_in_float64(load_op("torch:complex"), "FWD", "VJP")
    assert {verdict.outcome for verdict in verdicts.values()} == {Outcome.VERIFIED}
    assert all(y.is_floating_point() for call in calls_of("fft.rfft") for y in call(*call.operands))
    assert calls_of("linalg.eig") == ()
    verdicts = judge_in_float64(load_op("torch:linalg.eig"), "VJP", "AGREE")
    assert {verdict.outcome for verdict in verdicts.values()} == {Outcome.UNSUPPORTED}
