"""torch's own elementwise functions and their gradients are in the balls of their specs, at arguments of all sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import Ball, balls
from opassay.oracles.specs import RULES, traced
from opassay.reference import derivative
from opassay.reference.formats import FORMATS
from tests.oracles.specs.elementwise_specs import ACTIVATIONS, FAULTS, SPECS, TWO, Spec

aten = torch.ops.aten

#: Of arguments: how many, and the largest decimal exponent.
DRAWS = {"float32": (10_000, 37), "bfloat16": (2_000, 37), "float16": (2_000, 4)}
NEAR_KINKS = (0.0, 0.1, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 6.0, 10.0, 20.0, -20.0, 88.0, -88.0, 104.0, -104.0)


def _draw(dtype: str, seed: int, shuffled: bool = False) -> torch.Tensor:
    count, largest = DRAWS[dtype]
    rng = np.random.default_rng(seed)
    usual = rng.standard_normal(count // 2) * 10.0 ** rng.uniform(-3, 1.5, count // 2)
    wide = rng.choice([-1, 1], count // 2) * 10.0 ** rng.uniform(-largest, largest, count // 2)
    values = np.concatenate([usual, wide, NEAR_KINKS])
    return torch.from_numpy(rng.permutation(values) if shuffled else values).to(getattr(torch, dtype))


def _questions(name: str, spec: Spec, dtype: str) -> Iterator[tuple[str, Any, Callable[..., Any], list[torch.Tensor]]]:
    """What is asked, torch's answer, the formula of it, and the tensors that it is of."""
    operands = [_draw(dtype, seed=0)] + [_draw(dtype, 0, shuffled=True)] * (name in TWO)
    out = spec(*operands)
    yield "value", (out,), traced(spec, *operands), operands
    leaves = [x.clone().requires_grad_() for x in operands]
    out = spec(*leaves)
    if dtype == "bfloat16" or not out.requires_grad:  # gradients of a half type are asked in float16, to save time
        return
    g = torch.from_numpy(np.random.default_rng(1).standard_normal(tuple(out.shape))).to(out.dtype)
    result = torch.autograd.grad(out, leaves, g, allow_unused=True)

    def pulled(*args: torch.Tensor) -> Any:
        return torch.func.vjp(spec, *args[:-1])[1](args[-1])

    yield "traced gradient", result, traced(pulled, *operands, g), [*operands, g]
    if dtype == "float32":  # in a half type torch stores what is between, which the spec of the value does not say
        formula = traced(spec, *operands)
        yield "gradient", result, lambda *a: derivative.vjp(lambda *x: formula(*x)[0], a[:-1])[1](a[-1]), [*operands, g]


def _error_over_bound(computed: torch.Tensor, ball: Ball, dtype: str) -> float:
    fmt = FORMATS[dtype]
    got, centre, radius = computed.detach().double().numpy(), ball.centre, ball.radii()
    with np.errstate(all="ignore"):
        # Results that may round to an infinity are not judged here.
        judged = np.isfinite(centre) & np.isfinite(radius) & (np.abs(centre) + radius < fmt.max * (1 - 2.0**-9))
        ratio = np.abs(got - centre) / ball.half_widths(fmt)
    assert judged.any()
    return float(np.max(np.where(judged, np.where(np.isnan(ratio), np.inf, ratio), 0.0)))


def _ratios(name: str, spec: Spec, dtype: str) -> dict[str, float]:
    terms = replace(contract(dtype), intermediates=dtype != "float32")
    ratios = {}
    for question, answers, formula, operands in _questions(name, spec, dtype):
        readings = balls(formula, [x.double().numpy() for x in operands], terms)
        pairs = [(answer, ball) for answer, ball in zip(answers, readings, strict=False) if answer is not None]
        ratios[question] = max(_error_over_bound(answer, ball, dtype) for answer, ball in pairs)
    return ratios


@pytest.mark.one_fast_in(29)
@pytest.mark.parametrize("dtype", DRAWS)
@pytest.mark.parametrize("name", SPECS)
def test_what_torch_computes_is_in_the_ball(name: str, dtype: str) -> None:
    for question, ratio in _ratios(name, SPECS[name], dtype).items():
        if (name, question, dtype) in FAULTS:
            assert ratio > 1.0, f"{FAULTS[name, question, dtype]}: no longer"
        else:
            assert ratio <= 1.0, f"{question}: error over bound {ratio}"


def test_planted_wrong_specs_are_seen() -> None:
    """Rules of a function that is a little different, and torch's own function."""
    faults: dict[str, tuple[Any, Any]] = {
        "silu": (aten.silu.default, lambda rule: lambda x: rule(x) * (1.0 + 2.0**-18)),
        "gelu": (aten.gelu.default, lambda rule: lambda x, approximate="none": rule(x, "tanh")),
        "elu": (aten.elu.default, lambda rule: lambda x, *rest: rule(x, 1.001)),
        "hardswish": (aten.hardswish.default, lambda rule: lambda x: rule(x) + np.where(x == -3.0, 1e-3, 0.0)),
    }
    for name, (operation, changed) in faults.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(RULES, operation, changed(RULES[operation]))
            assert _ratios(name, ACTIVATIONS[name], "float32")["value"] > 1.0, name


def test_the_slope_at_a_kink_is_torchs() -> None:
    kinks = {"relu": 0.0, "hardswish": -3.0, "hardsigmoid": 3.0, "relu6": 6.0, "hardshrink": 0.5, "softshrink": -0.5}
    for name, place in kinks.items():
        x = torch.tensor([place], requires_grad=True)
        spec: Any = ACTIVATIONS[name]
        (needed,) = torch.autograd.grad(spec(x), x)
        formula = traced(ACTIVATIONS[name], x.detach())
        readings = balls(
            lambda a, f=formula: derivative.vjp(lambda b: f(b)[0], [a])[1](a.lift([1.0])),
            [[place]],
            contract("float32"),
        )
        assert abs(needed.item() - readings[0].centre.item()) <= readings[0].radii().item() <= 2.0**-20, name


def test_a_limit_has_the_slope_that_the_page_says() -> None:
    x = torch.tensor([1.0])
    for spec, slope in ((lambda x: (1.0 - x).clamp_min(0.0), -1.0), (lambda x: torch.relu(1.0 - x), 0.0)):
        formula: Any = traced(spec, x)
        readings = balls(
            lambda a, f=formula: derivative.vjp(lambda b: f(b)[0], [a])[1](a.lift([1.0])),
            [[1.0]],
            replace(contract("float32"), lattice=True),
        )
        assert (readings[0].centre, readings[0].radii()) == (slope, 0.0)
