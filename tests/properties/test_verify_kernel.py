"""`verify_kernel`: a callable against its plain PyTorch, by shapes; right ones pass, wrong ones fail as they must."""

from __future__ import annotations

import functools
import importlib.util
import logging
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import opassay
from opassay import Offer, Outcome, Settings, Verdict, custom_kernel, kernel_of_op, verify, verify_kernel
from opassay.oracles.specs import SpecFormula
from opassay.properties.declaring.shapes import BANDS, Shapes
from opassay.reference.algorithms import algorithm_of, declared

pytestmark = pytest.mark.slow

SHAPES = {"x": ("N", "n"), "w": ("n",)}
LINEAR = {"input": ("N", "k"), "weight": ("M", "k")}
FEW = Settings("brief", max_examples=12, simpler=False)


def reference(x: Tensor, w: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w


class OldStyle(torch.autograd.Function):
    """RMS norm in the style before `setup_context`, which torch.func refuses."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, eps: float = 1e-6) -> Tensor:
        r = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, w, r)
        return x * r * w

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> Any:
        x, w, r = ctx.saved_tensors
        scaled = g * w
        return r * scaled - x * r**3 * (scaled * x).mean(-1, keepdim=True), (g * x * r).flatten(0, -2).sum(0), None


#: Torch's `apply` has no types.
apply: Any = OldStyle.apply


class WrongBackward(OldStyle):
    """The same without the mean in the gradient."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, w, r = ctx.saved_tensors
        return g * w * r, (g * x * r).flatten(0, -2).sum(0), None


def with_eps(x: Tensor, w: Tensor, eps: float = 1e-6) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * w


def norm(x: Tensor, w: Tensor) -> Tensor:
    out: Tensor = apply(x, w)
    return out


def tail_forgotten(x: Tensor, w: Tensor) -> Tensor:
    """What lies beyond one block of 64 is not normalized."""
    return torch.cat([norm(x, w)[:, :64], x[:, 64:] * w[64:]], 1)


def misread_strides(x: Tensor, w: Tensor) -> Tensor:
    """Reads its input as if it were contiguous."""
    return norm(x.as_strided(x.shape, (x.shape[1], 1)), w)


def seeding(seed: Any, x: Tensor, w: Tensor) -> Tensor:
    """Seeds a generator anew."""
    seed(0)
    return norm(x, w)


def ask(kernel: Any, *codes: str, **options: Any) -> dict[str, Verdict]:
    words: dict[str, Any] = {"settings": FEW, **options}
    result = verify_kernel(kernel, words.pop("spec", reference), words.pop("shapes", SHAPES), properties=codes, **words)
    return {verdict.cell.property: verdict for verdict in result}


# ----------------------------------------------------------------------------------------------- right and wrong ones


def test_the_ten_lines_take_a_right_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    verdicts = opassay.verify_kernel(norm, reference, shapes={"x": ("N", "n"), "w": ("n",)}, settings=FEW)
    print(opassay.table(verdicts))
    assert opassay.ok(verdicts)
    assert [v.cell.property for v in verdicts] == list(opassay.KERNEL_PROPERTIES)
    assert {v.outcome for v in verdicts} == {Outcome.VERIFIED}
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(opassay.KERNEL_PROPERTIES)
    assert lines[1].startswith("FWD       float32  verified")


@pytest.mark.parametrize(
    ("kernel", "code"),
    [
        (tail_forgotten, "FWD"),
        (WrongBackward, "VJP"),
        (lambda x, w: apply(x, w) + (x - x.detach()), "VJP"),
        (misread_strides, "LAYOUT"),
        (lambda x, w: apply(x.relu_(), w), "PURE"),
        (functools.partial(seeding, random.seed), "PURE"),
        (functools.partial(seeding, np.random.seed), "PURE"),
        (lambda x, w: apply(x, w) + 1e-6, "DATA"),
        (lambda x, w: apply(x.nan_to_num(), w), "SPECIAL"),
        (lambda x, w: apply(x, w) if x.numel() else torch.zeros(1), "EMPTY"),
    ],
)
def test_a_wrong_kernel_fails_where_it_must(kernel: Any, code: str) -> None:
    result = ask(kernel, code)
    assert result[code].outcome == Outcome.FAIL, result[code].reason
    assert not opassay.ok(list(result.values()))


def test_what_the_wrong_kernels_do_right_is_verified() -> None:
    assert ask(WrongBackward, "FWD")["FWD"].outcome == Outcome.VERIFIED
    assert ask(misread_strides, "FWD")["FWD"].outcome == Outcome.VERIFIED


def test_what_a_kernel_does_not_offer_is_no_failure() -> None:
    lacking = {"func", "double", "compile", "fake", "jvp", "empty"}
    codes = ("ORD2", "JVP", "VMAP", "COMP", "FAKE", "EMPTY", "NEST", "NEEDS")
    result = ask(norm, *codes, offer=Offer(without=lacking))
    assert result.pop("NEEDS").outcome == Outcome.VERIFIED
    assert {v.outcome for v in result.values()} == {Outcome.UNSUPPORTED}
    assert result["ORD2"].reason.startswith("norm offers no double: derivatives of second order")
    assert ask(norm, "ORD2")["ORD2"].outcome == Outcome.FAIL
    assert ask(norm, "ORD2", offer=Offer(max_order=1))["ORD2"].outcome == Outcome.UNSUPPORTED


def test_a_kernel_without_gradients_is_asked_for_values_alone() -> None:
    kernel, codes = (lambda x, w: reference(x.detach(), w.detach())), opassay.KERNEL_PROPERTIES
    result = ask(kernel, *codes, offer=Offer(max_order=0))
    assert [result.pop(code).outcome for code in ("VJP", "NEEDS")] == [Outcome.UNSUPPORTED] * 2
    assert {v.outcome for v in result.values()} == {Outcome.VERIFIED}, {k: v.reason for k, v in result.items()}


def test_the_spec_rounds_where_it_says_so() -> None:
    def rounding(x: Tensor, w: Tensor) -> Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w

    def exact(x: Tensor, w: Tensor) -> Tensor:
        return reference(x.float(), w.float()).to(x.dtype)

    for spec, outcome in ((rounding, Outcome.VERIFIED), (exact, Outcome.FAIL)):
        assert ask(rounding, "FWD", spec=spec, dtypes=("bfloat16",))["FWD"].outcome == outcome
    assert ask(exact, "FWD", spec=exact, dtypes=("bfloat16",))["FWD"].outcome == Outcome.VERIFIED


def test_a_reference_in_numpy_constants_outputs_and_restricted_sizes() -> None:
    def formula(x: Any, w: Any, eps: float) -> Any:
        return x / np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + eps) * w

    def kernel(w: Tensor, x: Tensor, eps: float) -> Any:
        assert x.shape[-1] in (16, 64)
        return x.mean(), apply(x, w, eps)

    options: dict[str, Any] = {
        "sizes": {"n": (16, 64)}, "constants": {"eps": 1e-6}, "offer": Offer(outputs=(1,))
    }  # fmt: skip
    result = ask(kernel, "FWD", "VJP", "EMPTY", spec=formula, **options)
    assert {v.outcome for v in result.values()} == {Outcome.VERIFIED}, [v.reason for v in result.values()]
    assert ask(kernel, "FWD", spec=formula, **options | {"offer": Offer(outputs=(0,))})["FWD"].outcome == Outcome.FAIL


def test_a_kernel_under_the_declaration_of_an_op() -> None:
    def kernel(input: Tensor, shape: Any, weight: Any, bias: Any, eps: float) -> Tensor:
        assert weight is not None
        return torch.nn.functional.layer_norm(input, shape, weight, bias, eps)

    options: dict[str, Any] = {"properties": ("FWD",), "dtypes": ("float32",), "settings": Settings("brief")}
    op = kernel_of_op(kernel, "layer_norm", offer=Offer(supported=lambda weight: weight is not None))
    (result,) = verify(op, **options)
    assert result.outcome == Outcome.VERIFIED, result.reason
    assert "weight None" not in result.reason
    (result,) = verify_kernel(kernel, "layer_norm", **options | {"settings": FEW})
    assert result.outcome == Outcome.FAIL
    assert opassay.load_op("layer_norm").name == op.name
    with pytest.raises(ValueError, match="regimes: got one, and the declaration of an op has its own"):
        verify_kernel(kernel, "layer_norm", regimes=("wide",))


@pytest.mark.parametrize("is_op", [False, True])
def test_gradients_are_asked_of_what_the_kernel_differentiates(is_op: bool) -> None:
    def kernel(input: Tensor, weight: Tensor) -> Tensor:
        return input @ weight.detach().t()

    linear = torch.nn.functional.linear
    options: dict[str, Any] = {"spec": linear, "shapes": LINEAR}
    if is_op:
        options = {"spec": custom_kernel(linear, linear, LINEAR), "shapes": None}
    assert ask(kernel, "VJP", **options)["VJP"].outcome == Outcome.FAIL
    result = ask(kernel, "VJP", offer=Offer(differentiable="input"), **options)["VJP"]
    assert result.outcome == Outcome.VERIFIED, result.reason


# ------------------------------------------------------------------------------------------------------ small print


def test_bands_are_met_and_shapes_agree() -> None:
    known = Shapes.of({"a": ("M", "2*k"), "b": ("k", 3)}, {})
    assert known.symbols == ("k", "M")
    assert known.at({"k": 5, "M": 2}) == {"a": (2, 10), "b": (5, 3)}
    assert known.within({"k": 33, "M": 129}, 400) == {"k": 1, "M": 129}
    assert {7, 9, 31, 33, 63, 65, 127, 129} <= {extent for extents in BANDS.values() for extent in extents}
    fixed = Shapes.of({"a": ("M", 64)}, {})
    assert fixed.bands("M") == ("1", "2 to 7", "about a vector")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"kernel": 3}, TypeError, "kernel: got int, need a callable"),
        ({"shapes": {}}, ValueError, "shapes: got none"),
        ({"shapes": [(8, 32)]}, TypeError, "shapes: got list, need a dict from the name of every tensor"),
        ({"shapes": {"x": ("N", -1), "w": ("n",)}}, ValueError, r"shapes: got -1 in x=\('N', -1\)"),
        ({"shapes": {"x": ("N",)}}, ValueError, "reference: does not take shapes x"),
        ({"shapes": {"X": ("N",)}}, ValueError, r"X=\('N',\) \(did you mean 'x'\?\), need .* of reference: x, w"),
        ({"shapes": {"x": torch.ones(2, 3)}}, TypeError, r"got a Tensor of shape \(2, 3\) for 'x', need a tuple"),
        ({"shapes": {"x": "N", "w": ("n",)}}, TypeError, "shapes: got a str for 'x', need a tuple"),
        ({"shapes": torch.ones(2)}, TypeError, "shapes: got Tensor, need a dict from the name of every tensor"),
        ({"sizes": {"m": (2,)}}, ValueError, r"sizes: got m=\(2,\).*, need symbols of n, N"),
        ({"sizes": {"n": 64}}, TypeError, "sizes: got a int for 'n', need a tuple"),
        ({"regimes": ("bening",)}, ValueError, r"regime='bening' \(did you mean 'benign'\?\), need one of benign, "),
        ({"regimes": ()}, ValueError, "regimes: got none"),
        ({"offer": Offer(differentiable=("v",))}, ValueError, "differentiable='v', need one of x, w"),
        ({"constants": {"epss": 1}, "reference": with_eps}, ValueError, r"epss=1 \(did you mean 'eps'\?\), need"),
        ({"offer": Offer(without=("jpv",))}, ValueError, r"got 'jpv' \(did you mean 'jvp'\?\), need names of jvp"),
        ({"offer": {"max_order": 1}}, TypeError, "offer: got dict, need opassay.Offer"),
        ({"offer": Offer(supported=lambda x: True)}, ValueError, "supported: got ... in offer"),
        ({"reference": lambda x, w: float(x.sum()) * torch.sin(w)}, TypeError, "as plain PyTorch, .* NumPy arrays"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_by_name(arguments: Any, error: type[Exception], message: str) -> None:
    options: dict[str, Any] = {"kernel": norm, "reference": reference, "shapes": SHAPES, **arguments}
    with pytest.raises(error, match=message):
        custom_kernel(**options)


def test_a_function_in_the_old_style_is_judged_by_autograd() -> None:
    def samples(rng: Any) -> Any:
        return torch.from_numpy(rng.standard_normal((3, 5))), torch.from_numpy(rng.standard_normal(5))

    codes = ("FWD", "VJP", "JVP", "ORD2", "VMAP", "LAYOUT")
    options: dict[str, Any] = {"properties": codes, "dtypes": ("float64",), "settings": FEW}
    results = {v.cell.property: str(v.outcome) for v in opassay.verify_function(OldStyle, samples, **options)}
    assert results == dict.fromkeys(("FWD", "VJP", "LAYOUT"), "verified") | dict.fromkeys(
        ("JVP", "ORD2", "VMAP"), "unsupported"
    )
    wrong = opassay.verify_function(WrongBackward, samples, **options | {"properties": ("VJP",)})
    assert [v.outcome for v in wrong] == [Outcome.FAIL]


def test_a_wrapper_of_a_formula_does_not_have_its_algorithms() -> None:
    def formula(x: Any) -> Any:
        return x, x

    algorithm_of(formula)(lambda x: (x, x))

    @functools.wraps(formula)
    def first(x: Any) -> Any:
        return formula(x)[0]

    assert len(declared(formula)) == 1
    assert declared(first) == ()


def test_samplers_that_ignore_the_kind_are_told() -> None:
    op = opassay.declare(
        lambda x: x + x, {"opassay": lambda x: x + x}, lambda dtype, kind: opassay.strategies.same_shape(1)(dtype),
        ("x",), lambda x: (x.dtype,), name="double",
    )  # fmt: skip
    for code, kind in (("EMPTY", "empty"), ("DATA", "integers")):
        (result,) = verify(op, properties=(code,), dtypes=("float32",), settings=FEW)
        assert result.outcome == Outcome.ERROR
        assert f"kind '{kind}' gave {'floating ' * (kind == 'integers')}tensors of shapes" in result.reason


def test_a_failure_on_fake_tensors_leaves_torchs_log_out(caplog: pytest.LogCaptureFixture) -> None:
    op = torch.library.custom_op(
        "opassay_tests::no_shape_rule", lambda x: x + x, mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    with caplog.at_level(logging.ERROR):
        result = ask(op, "FAKE", spec=lambda x: x + x, shapes={"x": ("n",)})["FAKE"]
    assert result.outcome == Outcome.FAIL
    assert not caplog.records
    assert result.failure is not None
    assert len(result.failure.message.splitlines()) < 12


def test_the_worst_is_told_beside_the_simplest() -> None:
    def wrong(x: Tensor, w: Tensor) -> Tensor:
        return norm(x, w) * (1 + 1e-5 * x.shape[1])

    result = ask(wrong, "FWD", settings=Settings("brief", max_examples=12))["FWD"]
    assert result.failure is not None
    assert "elsewhere" in result.failure.message
    assert "times its bound at out[" in result.failure.message


TRITON = Path(__file__).with_name("triton_kernel.py")


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_a_triton_kernel_in_the_interpreter() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", str(TRITON)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["right", "True", "wrong", "['FWD',", "'LAYOUT']"]


def test_formulas_are_traced_in_the_dtypes_of_the_arguments() -> None:
    formula = SpecFormula(lambda x: x * torch.finfo(x.dtype).eps, "eps")
    half = formula.for_arguments((torch.ones(1, dtype=torch.float16),))
    assert [float(f(np.ones(1))[0][0]) for f in (half, formula)] == [2.0**-10, 2.0**-52]


@pytest.mark.parametrize("shape", [(8, 8), (3, 3), (2, 5)])
def test_small_fixed_shapes_are_verified(shape: tuple[int, int]) -> None:
    def softmax(x: Tensor) -> Tensor:
        return torch.softmax(x, -1)

    verdicts = verify_kernel(softmax, softmax, {"x": shape}, properties=("FWD", "VJP"), settings=FEW)
    assert [v.outcome for v in verdicts] == [Outcome.VERIFIED] * 2, str(verdicts)


def test_an_old_style_kernel_is_asked_no_forward_mode_in_the_ways_to_call_it() -> None:
    (verdict,) = verify_kernel(apply, reference, SHAPES, properties=("WAYS",), settings=FEW)
    assert verdict.outcome is Outcome.VERIFIED, str(verdict)


class Coupled(OldStyle):
    """The weight has a gradient only where the input needs one, too."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        d_x, d_w, _ = OldStyle.backward(ctx, g)
        return d_x, d_w if ctx.needs_input_grad[0] else None, None


def test_frozen_operands_are_asked_by_default() -> None:
    assert {"NEEDS", "WAYS", "CALLS"} <= set(opassay.KERNEL_PROPERTIES)
    (verdict,) = verify_kernel(Coupled.apply, reference, SHAPES, properties=("NEEDS",), settings=FEW)
    assert verdict.outcome is Outcome.FAIL, str(verdict)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_a_row_is_asked_for_its_extreme_element_where_there_are_nans(name: str) -> None:
    """A NaN is the largest and the least, also where elements are exact."""

    def right(x: Tensor) -> Tensor:
        return x.gather(1, getattr(x, name)(1, keepdim=True))

    def without_nans(x: Tensor) -> Tensor:
        return x.gather(1, getattr(x.nan_to_num(), name)(1, keepdim=True))

    for kernel, outcome in ((right, "verified"), (without_nans, "fail")):
        assert (
            ask(kernel, "SPECIAL", spec=right, shapes={"x": ("N", "n")}, settings="commit")["SPECIAL"].outcome
            == outcome
        )
