"""`bound` and `assert_conforms`: specs of every kind, the edge of the bound, and the card of a failure."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

import opassay
from opassay.oracles.bound.rounding import Ball
from opassay.oracles.bound.terms import Terms, terms
from opassay.oracles.judge.holding import OperandFacts
from opassay.properties.candidates.arguments import CallArguments
from opassay.properties.candidates.comparing import hold_in_turn
from opassay.properties.candidates.specification import specification

GENERATOR = torch.Generator().manual_seed(3)


def _normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=GENERATOR)


def plain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.softmax(torch.relu(x @ w), -1)


def formula(x: Any, w: Any) -> Any:
    scores = np.maximum(np.matmul(x, w), 0.0)
    grown = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    return grown / np.sum(grown, axis=-1, keepdims=True)


X, W = _normal(5, 7), _normal(7, 6)


@pytest.mark.parametrize("spec", [plain, formula, opassay.Formula(formula)])
def test_torch_conforms_to_specs_of_both_languages(spec: object) -> None:
    balls = opassay.bound(spec, X, W)
    assert isinstance(balls, opassay.Bound)
    assert balls.centre.dtype == balls.radius.dtype == torch.float64
    assert balls.centre.shape == balls.radius.shape == (5, 6)
    assert bool((balls.radius > 0).all())
    assert bool((balls.half_width > balls.radius).all())
    opassay.assert_conforms(plain(X, W), spec, X, W)


def test_the_name_of_an_op_is_a_spec() -> None:
    opassay.assert_conforms(X.softmax(-1), "softmax", X, -1)
    with pytest.raises(AssertionError, match="where the exact value is"):
        opassay.assert_conforms(X.softmax(0), "softmax", X, -1)


def test_a_module_is_a_spec_with_the_parameters_that_it_has_now() -> None:
    module = torch.nn.Linear(7, 3)
    opassay.assert_conforms(module(X).detach(), module, X)
    output = module(X).detach()
    with torch.no_grad():
        module.bias.add_(1.0)
    with pytest.raises(AssertionError, match="Linear: out"):
        opassay.assert_conforms(output, module, X)


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_what_is_just_inside_the_bound_conforms_and_what_is_beyond_does_not(side: float) -> None:
    balls = opassay.bound(plain, X, W)
    assert isinstance(balls, opassay.Bound)
    inside = (balls.centre + side * 0.99 * balls.radius).float()
    opassay.assert_conforms(inside, plain, X, W)
    for at in np.ndindex(5, 6):
        beyond = inside.clone()
        beyond[at] = balls.centre[at] + side * 1.01 * balls.half_width[at]
        beyond[at] = torch.nextafter(beyond[at], torch.tensor(side * torch.inf))
        with pytest.raises(AssertionError):
            opassay.assert_conforms(beyond, plain, X, W)


def test_the_card_says_where_how_far_how_severe_and_what_was_allowed() -> None:
    wrong = plain(X, W)
    wrong[2, 3] += 0.01
    with pytest.raises(AssertionError) as error:
        opassay.assert_conforms(wrong, plain, X, W, contract="strict")
    card = str(error.value)
    first = r"wrong against plain: out\[2, 3\] is 0\.\d+ where the exact value is 0\.\d+, \d"
    assert re.match(first, card)
    words = [line.split()[0] for line in card.splitlines()[1:]]
    assert words == ["computed", "exact", "error", "severity", "outside", "where", "allowed", "format", "sees",
                     "input", "usually", "of", "explain"]  # fmt: skip
    assert "only in [2, 3]" in card
    assert "1 of 30 elements" in card
    assert "strict: sums in the dtype" in card


def test_half_precision_conforms_where_it_is_allowed_and_not_elsewhere() -> None:
    rounded = (X.bfloat16().float() @ W).relu().softmax(-1)
    with pytest.raises(AssertionError):
        opassay.assert_conforms(rounded, plain, X, W)
    opassay.assert_conforms(rounded, plain, X, W, contract="strict+bfloat16_inputs")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_torch_conforms_in_every_dtype(dtype: torch.dtype) -> None:
    x, w = X.to(dtype), W.to(dtype)
    opassay.assert_conforms(plain(x, w), plain, x, w)


def test_what_is_no_output_of_the_spec_is_told_by_shape_dtype_and_number() -> None:
    for wrong, message in ((X, "shape"), (plain(X, W).double(), "dtype"), ((plain(X, W), X), "got 2 outputs, need 1")):
        with pytest.raises(AssertionError, match=message):
            opassay.assert_conforms(wrong, plain, X, W)


def test_what_cannot_be_read_is_said_in_a_sentence() -> None:
    with pytest.raises(opassay.SpecError, match=r"bessel_j0.*has no rule"):
        opassay.bound(lambda x: torch.special.bessel_j0(x), X)
    with pytest.raises(opassay.SpecError, match="need a function, a module, or the name of an op"):
        opassay.bound(3, X)
    with pytest.raises(opassay.SpecError, match="plain raises RuntimeError"):
        opassay.bound(plain, X, X)
    with pytest.raises(ValueError, match="contract: got 'tight'"):
        opassay.bound(plain, X, W, contract="tight")


def test_exact_data_is_exact_only_where_every_algorithm_of_a_formula_is() -> None:
    from opassay.oracles.bound.terms import PRESETS
    from opassay.properties.candidates.arguments import CallArguments
    from opassay.properties.candidates.specification import Specification
    from opassay.reference.algorithms import algorithm_of

    def total(x: Any) -> Any:
        return np.sum(x, axis=-1)

    arguments = CallArguments.of([torch.tensor([[1.0, 2.0, 3.0]])])
    spec = Specification("total", total, numpy=True)
    sharp: Any
    plain: Any
    both: Any
    (sharp,) = spec.read(arguments, {}, PRESETS["strict"], sharp=True)
    (plain,) = spec.read(arguments, {}, PRESETS["strict"])
    assert sharp.radii().max() == 0 < plain.radii().min()
    algorithm_of(total)(lambda x: np.sum(x / 3.0, axis=-1) * 3.0)
    (both,) = spec.read(arguments, {}, PRESETS["strict"], sharp=True)
    assert both.radii().min() >= plain.radii().min()


@pytest.mark.parametrize(("factor", "contracts"), [(0.9, [False]), (1.5, [False, True]), (2.1, [False, True])])
def test_other_algorithms_are_read_where_the_own_text_does_not_accept(factor: float, contracts: list[bool]) -> None:
    """The ball of all algorithms is made twice as wide here, so that a result at 1.5 times the narrow one needs it."""
    x, allowed = _normal(64), terms("torch")
    spec = specification(torch.exp)
    read_with: list[bool] = []

    def read(terms: Terms) -> list[Any]:
        read_with.append(terms.algorithms is not None)
        (ball,) = spec.read(CallArguments.of([x]), {}, terms)
        assert isinstance(ball, Ball)
        ball.radius = ball.radii() * (2.0 if terms.algorithms is not None else 1.0)
        return [ball]

    (narrow,) = read(allowed.of_text_alone)
    read_with.clear()
    computed = torch.from_numpy(narrow.centre + factor * narrow.radii()).double()
    (standings,) = hold_in_turn(["out"], [computed], read, allowed, None, OperandFacts.FINITE)
    assert read_with == contracts
    assert (standings.wrong is None) is (factor < 2.0)
