"""`verify_function`: anybody's custom function, against a formula, against its forward, or against itself."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from opassay import (
    Cell,
    Code,
    Offer,
    Outcome,
    Settings,
    Verdict,
    custom_function,
    replay_case,
    run_cell,
    verify_function,
)
from opassay.impl import Function
from opassay.oracles.bound.contract import EXP2
from opassay.oracles.specs import RULES, UntraceableError, formula_of
from opassay.properties.catalog.loading import load_op
from opassay.properties.checks.transforms.agree import AGREEMENT
from opassay.properties.engine.plan import Selection, plan
from opassay.properties.names import SelectionError

pytestmark = pytest.mark.slow

FEW = Settings("brief", simpler=False)
HERE = "tests.properties.test_custom_functions"


class Cube(Function):
    """scale x^3, and what is no floating tensor beside it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, scale: float = 2.0) -> Any:
        return {"cube": scale * x**3, "count": 3, "sign": x > 0}

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, ctx.scale = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        ctx.mark_non_differentiable(output["sign"])

    @staticmethod
    def backward(ctx: Any, g: Tensor, *rest: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 3 * ctx.scale * x * x * g, None

    @staticmethod
    def jvp(ctx: Any, t: Tensor, scale: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 3 * ctx.scale * x * x * t, None, None


def samples(rng: Any) -> tuple[Any, ...]:
    return (torch.from_numpy(rng.standard_normal((2, 3))),)


def cube(x: Any, scale: float = 2.0) -> Any:
    return (scale * (x * x * x),)


def changed(**members: Any) -> Any:
    """Cube with other static methods."""
    return type("Changed", (Cube,), {name: staticmethod(f) for name, f in members.items()})


def outcomes(verdicts: list[Verdict]) -> dict[str, str]:
    return {v.cell.property: str(v.outcome) for v in verdicts}


@pytest.mark.parametrize("reference", [None, cube], ids=["forward", "formula"])
def test_a_right_function_passes(reference: Any) -> None:
    verdict = verify_function(Cube, samples, reference, dtypes=("float64",))
    assert {v.outcome for v in verdict} <= {Outcome.VERIFIED, Outcome.UNSUPPORTED}, [v.reason for v in verdict]
    codes = {v.cell.property for v in verdict if v.outcome == Outcome.VERIFIED}
    assert codes >= {"FWD", "VJP", "JVP", "ORD2", "ORD3", "ADJ", "VMAP", "NEST", "WORD", "DUAL", "PURE", "SAVE", "COMP"}


def _wrong_slope(ctx: Any, g: Tensor, *rest: Any) -> Any:
    (x,) = ctx.saved_tensors
    return 2 * ctx.scale * x * x * g, None


def _summed(ctx: Any, g: Tensor, *rest: Any) -> Any:
    (x,) = ctx.saved_tensors
    return (3 * ctx.scale * x * x * g).mean().expand_as(x), None


def _detached(ctx: Any, g: Tensor, *rest: Any) -> Any:
    (x,) = ctx.saved_tensors
    return 3 * ctx.scale * x.detach() ** 2 * g, None


def _hide(ctx: Any, inputs: Any, output: Any) -> None:
    Cube.setup_context(ctx, inputs, output)
    ctx.x = inputs[0]


def _enclosed(ctx: Any, inputs: Any, output: Any) -> None:
    Cube.setup_context(ctx, inputs, output)
    ctx.get = lambda: inputs[0]


def _from_enclosed(ctx: Any, g: Tensor, *rest: Any) -> Any:
    return 3 * ctx.scale * ctx.get() ** 2 * g, None


def _writing(x: Tensor, scale: float = 2.0) -> Any:
    out = Cube.forward(x, scale)
    x.data.mul_(1.5)
    return out


MISTAKES = [
    ("wrong factor in backward", {"backward": _wrong_slope}, "VJP", Code.VALUE),
    ("mean instead of elements", {"backward": _summed}, "VJP", Code.VALUE),
    ("derivative of backward lost", {"backward": _detached}, "ORD2", Code.VALUE),
    ("jvp of another sign", {"jvp": lambda ctx, t, s: (-Cube.jvp(ctx, t, s)[0], None, None)}, "ADJ", Code.ADJOINT),
    ("tensor kept on the context", {"setup_context": _hide}, "SAVE", Code.MEMORY),
    ("tensor kept in a closure", {"setup_context": _enclosed, "backward": _from_enclosed}, "SAVE", Code.MUTATED),
    ("argument written unmarked", {"forward": _writing}, "PURE", Code.MUTATED),
]


@pytest.mark.parametrize(("name", "members", "code", "kind"), MISTAKES, ids=[m[0] for m in MISTAKES])
def test_a_mistake_is_caught(name: str, members: dict[str, Any], code: str, kind: Code) -> None:
    (verdict,) = verify_function(changed(**members), samples, cube, properties=(code,), dtypes=("float64",))
    print(f"\n{name:32s} {code:6s} {verdict.reason}")
    assert (verdict.outcome, verdict.code) == (Outcome.FAIL, kind), verdict.reason
    (right,) = verify_function(Cube, samples, cube, properties=(code,), dtypes=("float64",))
    assert right.outcome == Outcome.VERIFIED


def test_a_transform_without_a_rule_is_not_asked_for() -> None:
    class Plain(torch.autograd.Function):
        @staticmethod
        def forward(x: Tensor) -> Tensor:
            return x.exp()

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
            ctx.save_for_backward(output)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            (y,) = ctx.saved_tensors
            return g * y

    result = outcomes(verify_function(Plain, samples, dtypes=("float64",)))
    assert {result[code] for code in ("JVP", "ADJ", "VMAP", "NEST")} == {"unsupported"}
    assert {result[code] for code in ("FWD", "VJP", "ORD2", "ORD3", "WORD", "SAVE", "PURE")} == {"verified"}


# ------------------------------------------------------------------------------------------------ without a formula


def _strange(x: Tensor, scale: float = 2.0) -> Any:
    return {"cube": scale * torch.special.erfcx(x) * 0 + scale * x**3, "count": 3, "sign": x > 0}


def _of_its_own_slice(ctx: Any, g: Tensor, *rest: Any) -> Any:
    (x,) = ctx.saved_tensors
    return 3 * ctx.scale * x * x * g + x.roll(1, 0) * g.sum(), None


def _first_slice(info: Any, in_dims: Any, x: Tensor, scale: float) -> Any:
    out = Cube.apply(x.movedim(in_dims[0], 0)[:1].expand(info.batch_size, *x.movedim(in_dims[0], 0).shape[1:]), scale)
    return out, {"cube": 0, "count": None, "sign": 0}


OPAQUE_MISTAKES = [
    ("backward and jvp disagree", {"backward": _wrong_slope}),
    ("backward no derivative of anything", {"backward": _of_its_own_slice}),
    ("vmap rule of the first slice", {"vmap": _first_slice, "generate_vmap_rule": None}),
]


def test_without_a_formula_the_ways_to_a_result_must_agree() -> None:
    verdict = verify_function(changed(forward=_strange), samples, dtypes=("float64",))
    reasons = {v.cell.property: v.reason for v in verdict}
    assert reasons["VJP"].startswith("no formula: it uses aten.special_erfcx.default"), reasons["VJP"]
    assert outcomes(verdict)["AGREE"] == "verified"


@pytest.mark.parametrize(("name", "members"), OPAQUE_MISTAKES, ids=[m[0] for m in OPAQUE_MISTAKES])
def test_a_mistake_is_caught_without_a_formula(name: str, members: dict[str, Any]) -> None:
    function = changed(forward=_strange, **{k: v for k, v in members.items() if v is not None})
    if "generate_vmap_rule" in members:
        function.generate_vmap_rule = False
    (verdict,) = verify_function(function, samples, properties=("AGREE",))[:1]
    print(f"\n{name:36s} {verdict.reason}")
    assert verdict.outcome == Outcome.FAIL, verdict.reason


def test_agreement_is_as_far_as_float32_could_tell() -> None:
    for excess, outcome in ((0.5, Outcome.VERIFIED), (4.0, Outcome.FAIL)):

        def off(ctx: Any, t: Tensor, s: Any, excess: float = excess) -> Any:
            return Cube.jvp(ctx, t, s)[0] * (1 + excess * AGREEMENT), None, None

        verdict = verify_function(changed(forward=_strange, jvp=off), samples, properties=("AGREE",))[0]
        assert verdict.outcome == outcome, verdict.reason


# ----------------------------------------------------------------------------------------------- the formula traced


def _traceable(x: Tensor, y: Tensor) -> list[Tensor]:
    z = x.sigmoid() * y + 2
    z.mul_(3)
    wide = torch.cat([z, torch.stack([x, y]).sum(0)], 1)
    picked = torch.where(x > 0, x.abs().sqrt(), x.clamp(min=-0.5)).relu()
    rest = [(x @ y.t()).tanh(), torch.maximum(x, y).amax(1), (x - x.mean(1, keepdim=True)).square(), y[0, 1:], x.exp()]
    more = [x.expm1().log1p(), 1 / (2 + x * x).rsqrt(), x.unsqueeze(0).expand(2, 2, 3).permute(2, 0, 1).reshape(-1)]
    return [z, wide, picked, *rest, *more, torch.ones_like(x) - y, 3 - x, x.pow(3), -x]


def test_a_traced_forward_reads_as_it_computes() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((2, 3)), rng.standard_normal((2, 3))
    values = formula_of(_traceable)(x, y)
    computed = _traceable(torch.from_numpy(x), torch.from_numpy(y))
    for a, b in zip(values, computed, strict=True):
        spacing = np.spacing(np.abs(b.numpy()).max(initial=0.0))
        assert a.shape == tuple(b.shape)
        assert np.abs(a - b.numpy()).max(initial=0.0) <= 8 * spacing
    assert len(RULES) > 80


def test_a_forward_that_cannot_be_traced_says_so() -> None:
    with pytest.raises(UntraceableError, match="cannot be traced"):
        formula_of(lambda x: x * float(x.sum()))(np.ones(3))
    with pytest.raises(UntraceableError, match="special_erfcx"):
        formula_of(torch.special.erfcx)(np.ones(3))


# ------------------------------------------------------------------------------------------------ names and bad input


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((torch.sin, samples), TypeError, "need a subclass of torch.autograd.Function"),
        ((Cube, []), ValueError, "got none, need at least one"),
        ((Cube, [torch.ones(3)]), TypeError, "got a Tensor, need tuples of arguments"),
        ((Cube, [(1, 2, 3)]), TypeError, "3 arguments do not go with forward"),
    ],
)
def test_bad_input_is_refused_by_name(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        custom_function(*arguments)
    with pytest.raises(ValueError, match="constant='y', need one of x, scale"):
        custom_function(Cube, samples, constant=("y",))


def test_samples_may_be_given_one_by_one() -> None:
    rows = [(torch.ones(3),), (torch.linspace(0.5, 1.5, 4).reshape(2, 2), 0.5)]
    verdict = verify_function(Cube, rows, properties=("VJP", "VMAP", "NEST"), dtypes=("float32",))
    assert set(outcomes(verdict).values()) == {"verified"}, [v.reason for v in verdict]


NAME = f"{HERE}:Cube({HERE}:samples,{HERE}:cube)"


def test_a_function_is_named_by_where_it_is() -> None:
    (cell,) = plan(Selection(ops=(NAME,), properties=("VJP",), dtypes=("float64",)))
    assert cell.op == NAME
    assert run_cell(cell, FEW).outcome == Outcome.VERIFIED
    assert load_op(f"{HERE}:DECLARED").name == "declared"


DECLARED = custom_function(Cube, samples, name="declared")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"{HERE}:Cube", "samples of a custom function are given as"),
        (f"{HERE}:Nothing({HERE}:samples)", "nothing at .*Nothing"),
        ("nowhere:Cube(nowhere:samples)", "nothing at 'nowhere:Cube': ModuleNotFoundError"),
        (f"{HERE}:samples({HERE}:samples)", "need a subclass of torch.autograd.Function"),
        ("a:b(c)", "need module:name, or module:class"),
    ],
)
def test_a_name_of_nothing_is_refused(name: str, message: str) -> None:
    with pytest.raises(SelectionError, match=message):
        load_op(name)


class Wrong(Cube):
    """Cube with a wrong factor."""

    backward = staticmethod(_wrong_slope)


def test_a_failure_is_replayed_by_name(tmp_path: Path) -> None:
    cell = Cell(f"{HERE}:Wrong({HERE}:samples)", "VJP", "float64", "cpu", "opassay")
    verdict = run_cell(cell, FEW)
    assert verdict.failure is not None
    again = replay_case(verdict.failure.case)
    assert (again.outcome, again.code) == (Outcome.FAIL, Code.VALUE)
    assert dataclasses.replace(again.cell) == cell


def _by_exp2(x: Any, scale: float = 1.0) -> Any:
    return torch.exp2(x * math.log2(math.e))


def _flushed(x: Any, scale: float = 1.0) -> Any:
    return torch.where(x.exp() < 2.0**-126, 0.0, x.exp())


def _nothing_kept(ctx: Any, inputs: Any, output: Any) -> None:
    pass


def _exponential(x: Any, scale: float = 1.0) -> Any:
    return np.exp(x)


def test_what_a_declaration_may_allow_is_named_by_a_failure_and_taken_by_verify_function() -> None:
    """exp(x) as 2^(x log2 e) is off by 2u |x|: refused, but for the declarations that allow it by its name."""
    few, single = ("FWD",), ("float32",)
    rows, function = [(torch.linspace(-60.0, 60.0, 64),)], changed(forward=_by_exp2, setup_context=_nothing_kept)
    (failures,) = verify_function(function, rows, _exponential, properties=few, dtypes=single)
    assert failures.failure is not None
    assert "accepted if the declaration allowed algorithms={'exp2'}" in failures.failure.message
    (verdicts,) = verify_function(
        function, rows, _exponential, offer=Offer(algorithms=(EXP2,)), properties=few, dtypes=single
    )
    assert verdicts.outcome == Outcome.VERIFIED
    with pytest.raises(ValueError, match="did you mean 'exp2'"):
        verify_function(function, rows, _exponential, offer=Offer(algorithms=("exp",)))
    rows, function = [(torch.linspace(-90.0, -87.5, 64),)], changed(forward=_flushed, setup_context=_nothing_kept)
    for allowed, outcome in ((False, Outcome.FAIL), (True, Outcome.VERIFIED)):
        offer = Offer(flush=allowed)
        (verdict,) = verify_function(function, rows, _exponential, offer=offer, properties=few, dtypes=single)
        assert verdict.outcome == outcome
