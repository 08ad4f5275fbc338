"""Chains in half types, of which every intermediate may be stored: what their bounds hold, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from opassay.oracles.bound.rounding import Ball, affine, balls, logarithms
from opassay.oracles.bound.terms import terms
from opassay.oracles.specs import traced
from opassay.reference.exact import evaluate, to_float_pair
from opassay.reference.formats import FORMATS
from tests.oracles.chain_specs import Spec, layer_norms, newton_schulz, norms_spelled_out, power_iteration, sinkhorn
from tests.oracles.spec_judging import accepted, draw, name_of
from workshop.checking.directed import decompose, directed_errors
from workshop.random_evaluation import evaluate_at_random


def _norms_that_store(count: int) -> Spec:
    """Layer norms as one function each, whose results alone are stored."""

    def spec(x: Tensor) -> Tensor:
        for _ in range(count):
            x = norms_spelled_out(1)(x).clone()
        return x

    return spec


BOTH = (torch.bfloat16, torch.float16)
#: The spec, what the directed evaluation evaluates, whose results it stores, the shape of the input, and the dtypes.
CHAINS: dict[str, tuple[Spec, Spec, str, tuple[int, ...], tuple[torch.dtype, ...]]] = {
    "sinkhorn of 8 rounds": (sinkhorn(8), sinkhorn(8), "", (2, 4, 4), BOTH),
    "sinkhorn of 20 rounds": (sinkhorn(20), sinkhorn(20), "", (2, 4, 4), BOTH),
    "8 layer norms": (layer_norms(8), _norms_that_store(8), "clone", (2, 24), BOTH),
    "8 norms spelled out": (norms_spelled_out(8), norms_spelled_out(8), "", (2, 24), BOTH),
    "3 rounds of a power iteration": (power_iteration(3), power_iteration(3), "", (12, 16), BOTH),
    "3 steps of newton and schulz": (newton_schulz(3), newton_schulz(3), "", (16, 32), (torch.float16,)),
}
CASES = [(name, dtype) for name, (*_, dtypes) in CHAINS.items() for dtype in dtypes]
#: How many times as far as the farthest directed evaluation a radius may reach.
MOST = 10.0


def _read(spec: Spec, tensors: tuple[Tensor, ...]) -> Ball:
    formula, arrays = traced(spec, *tensors), [x.double().numpy() for x in tensors]
    (ball,) = balls(formula, arrays, terms("torch").contract(name_of(tensors[0].dtype)))
    return ball


@pytest.mark.fast_cases("sinkhorn of 8 rounds-dtype0")
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_a_radius_is_near_to_an_evaluation_that_stores_everything(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, text, at, shape, _ = CHAINS[name]
    for seed in range(2):
        tensors = draw(shape, dtype=dtype, seed=seed)
        radius = torch.as_tensor(np.array(_read(spec, tensors).radii())).reshape(-1)
        graph = decompose(text, tensors)
        for element in (0, radius.numel() // 2, radius.numel() - 1):
            error = directed_errors(graph, tensors, 0, element, FORMATS[name_of(dtype)], at).reshape(-1).abs()
            assert (error <= radius).all()
            assert radius[element] <= MOST * error[element]
    monkeypatch.setattr(affine, "narrow", lambda ball, *_: ball)
    assert np.max(_read(spec, tensors).radii()) > 100 * float(radius.max())


@pytest.mark.fast_cases("sinkhorn of 8 rounds-dtype0")
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_the_exact_value_and_evaluations_are_held(name: str, dtype: torch.dtype) -> None:
    spec, _, _, shape, _ = CHAINS[name]
    contract = terms("torch").contract(name_of(dtype))
    for seed in range(4):
        tensors = draw(shape, dtype=dtype, seed=seed)
        formula, arrays = traced(spec, *tensors), [x.double().numpy() for x in tensors]
        ball = _read(spec, tensors)
        assert accepted(spec(*tensors), ball).all()  # torch's own, stored after every operation
        assert accepted(spec(*(x.float() for x in tensors)).to(dtype), ball).all()
        if not seed:
            high, low = to_float_pair(evaluate(formula, *arrays)[0][0])
            assert np.all(np.abs((ball.centre - high) - low) <= ball.radii())
        for number in range(4):
            (computed,) = evaluate_at_random(formula, arrays, contract, np.random.default_rng(number))
            assert np.all(np.abs(computed - ball.centre) <= ball.radii())


def test_a_comparison_that_forms_settle_leaves_no_result_open() -> None:
    """A length is clamped from below; balls that grow from round to round reach the bound, and forms do not."""

    def spec(w: Tensor) -> Tensor:
        u = w[:, 0]
        for _ in range(3):
            u = torch.nn.functional.normalize(w @ torch.nn.functional.normalize(w.mT @ u, dim=0), dim=0)
        return u

    (w,) = draw((12, 16), dtype=torch.bfloat16)
    ball = _read(spec, (w,))
    assert np.isfinite(ball.radii()).all()
    assert accepted(spec(w), ball).all()
    assert not accepted(-spec(w), ball).all()


def _rows_alone(x: Tensor) -> Tensor:
    p = torch.exp(x)
    for _ in range(8):
        p = p / p.sum(-1, keepdim=True)
    return p


#: Kernels that are wrong beyond what storing explains: the chain, the fault, and the shape.
FAULTS: dict[str, tuple[Spec, Spec, tuple[int, ...]]] = {
    "a round fewer": (sinkhorn(3), sinkhorn(1), (3, 4, 4)),
    "rows alone": (sinkhorn(8), _rows_alone, (3, 4, 4)),
    "another eps": (norms_spelled_out(4, 1e-1), norms_spelled_out(4, 4e-1), (4, 64)),
    "eps beside the root": (norms_spelled_out(8, 0.5), norms_spelled_out(8, 0.5, False), (4, 64)),
    "a value of another round": (power_iteration(2), power_iteration(2, 1.25), (12, 16)),
    "the other axis": (layer_norms(8), lambda x: layer_norms(8)(x.mT).mT, (16, 16)),
}


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_refused(name: str, dtype: torch.dtype) -> None:
    spec, fault, shape = FAULTS[name]
    tensors = draw(shape, dtype=dtype, seed=1)
    ball = _read(spec, tensors)
    assert accepted(spec(*tensors), ball).all()
    assert not accepted(fault(*tensors), ball).all()


# ------------------------------------------------------------------------------------------- forms of logarithms

Formula = Callable[..., Any]
#: Formulas of a state that is above zero.
OF_LOGARITHMS: dict[str, Formula] = {
    "scaled": lambda p: p / np.sum(p, axis=-1, keepdims=True),
    "product": lambda p: p * p[..., :1],
    "sum": lambda p: np.sum(p, axis=-1),
    "moved": lambda p: np.reshape(p, (2, 1)) / np.sum(p, axis=-1, keepdims=True),
    "quotient of sums": lambda p: np.sum(p * p, axis=-1) / np.sum(p, axis=-1),
    "without first order": lambda p: (
        np.sum(p, axis=-1, keepdims=True) * np.sum(p, axis=-1, keepdims=True) / (p[..., :1] * p[..., 1:])
    ),
}


def _is_held(formula: Formula, share: float) -> bool:
    contract = terms("torch").contract("float32")
    centre = np.array([[1.0, 1.0]])
    tape = affine.Tape(contract, {0: (-1,)})
    with np.errstate(all="ignore"):
        (out,) = affine.read_with_forms(tape, formula, [Ball(centre, centre * share, contract)])
    assert share > 0.5 or out.form.relative
    ends = np.linspace(-1.0, 1.0, 21) * share
    values = [np.asarray(formula(centre * (1.0 + np.array([[a, b]])))) for a in ends for b in ends]
    return all(bool(np.all(np.abs(value - out.ball.centre) <= out.ball.radii())) for value in values)


@pytest.mark.parametrize("name", OF_LOGARITHMS)
@pytest.mark.parametrize("share", [0.01, 0.2, 0.9])
def test_logarithms_hold_every_point_of_a_state(name: str, share: float) -> None:
    assert _is_held(OF_LOGARITHMS[name], share)


def test_what_a_mean_of_logarithms_leaves_out_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logarithms, "_beyond_mean", lambda reach, *_: np.zeros(()))
    monkeypatch.setattr(logarithms, "_beyond_slope", lambda reach: np.zeros(()))
    assert not _is_held(OF_LOGARITHMS["without first order"], 0.3)
