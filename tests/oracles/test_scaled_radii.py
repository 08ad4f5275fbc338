"""Radii that are kept as a share of the centre and a part are those that the same rules compute element by element."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from opassay.oracles.bound.contract import CPU_FUNCTIONS, Contract, Functions, contract
from opassay.oracles.bound.rounding import Ball, arithmetic, ball
from opassay.oracles.bound.rounding.spread import SLACK

#: Operations of one formula at most, each of which may round its radius by less than SLACK.
OPERATIONS = 32


def _centred(x: Any) -> Any:
    return x - np.mean(x, -1, keepdims=True)


FORMULAS: dict[str, Callable[[Any, Any], Any]] = {
    "difference": lambda x, s: x - s * 3.1,
    "product": lambda x, s: (x - s * 3.1) * (s * 0.7),
    "product with errors": lambda x, s: (np.exp(x) * 1.1) * (s * 0.7),
    "products on both sides": lambda x, s: (s * 0.7) * ((x * 0.3) * (s * 1.3)),
    "quotient": lambda x, s: (x - s * 3.1) / (s * 0.7),
    "quotient with errors": lambda x, s: (np.exp(x) * 1.1) / (s * 0.7),
    "square": lambda x, s: np.square((x - s * 3.1) * (s * 0.7)),
    "square of exact": lambda x, s: np.square(x) * 0.3,
    "sums": lambda x, s: np.sum(x * x, -1, keepdims=True) + np.sum(_centred(x), -1, keepdims=True),
    "halves": lambda x, s: (x * 3.1) * 0.5 + (x / 0.7) * 4.0,
    "signs and moves": lambda x, s: np.absolute(-(x * 3.1))[:, 1:] + np.transpose(x * 0.3)[0, :1],
    "a factor that may be zero": lambda x, s: (x * 3.1) * (s * 3.0 - s * 3.0),
    "a factor that is zero": lambda x, s: (x * 3.1) * (s - s),
    "a divisor that may be zero": lambda x, s: (x * 3.1) / (s * 3.0 - s * 3.0),
    "layer norm": lambda x, s: _centred(x) / np.sqrt(np.mean(np.square(_centred(x)), -1, keepdims=True) + 1e-5) * s,
}


def _terms(dtype: str, **changes: Any) -> Contract:
    return dataclasses.replace(contract(dtype), **changes)


TERMS = {
    "float32": _terms("float32"),
    "float32, flushed": _terms("float32", flush=True),
    "bfloat16": _terms("bfloat16", accumulate=contract("bfloat16").stores),
    "float64": _terms("float64"),
    "second order": _terms("float32", roundings=2.0),
    "fast quotients": _terms("float32", functions=Functions(CPU_FUNCTIONS, division=4.0)),
    "without systematic errors": _terms("float32", systematic=False),
}


def _operands(size: float) -> list[Any]:
    rng = np.random.default_rng(11)
    draws = [rng.standard_normal(shape).astype(np.float32).astype(np.float64) * size for shape in ((3, 40), (3, 1))]
    draws[0][0, 0] = 0.0
    return draws


def _element_by_element(
    monkeypatch: pytest.MonkeyPatch, formula: Callable[..., Any], operands: Any, terms: Contract
) -> Ball:
    """The balls where no operand is called few, and no operand of the formula has a known bound."""
    with monkeypatch.context() as patched:
        patched.setattr(arithmetic, "_FEW", 10**9)
        result: Ball = formula(*(Ball(x.centre, x.radius, terms) for x in operands))
        result.radii()
    return result


@pytest.mark.one_fast_in(5)
@pytest.mark.parametrize("size", [1.0, 2.0**-130, 2.0**60])
@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("name", FORMULAS)
def test_radii_are_those_of_every_element(name: str, terms: str, size: float, monkeypatch: pytest.MonkeyPatch) -> None:
    operands = [ball(x, TERMS[terms]) for x in _operands(size)]
    with np.errstate(all="ignore"):
        fast: Ball = FORMULAS[name](*operands)
        slow = _element_by_element(monkeypatch, FORMULAS[name], operands, TERMS[terms])
        np.testing.assert_array_equal(fast.centre, slow.centre)
        ratio = fast.radii() / slow.radii()
    agree = (fast.radii() == slow.radii()) | (np.abs(ratio - 1.0) <= OPERATIONS * SLACK)
    assert np.all(agree | (np.isnan(fast.radii()) & np.isnan(slow.radii()))), ratio


def test_radii_are_computed_when_somebody_asks() -> None:
    x, s = (ball(each, TERMS["float32"]) for each in _operands(1.0))
    product: Any = (x - s) * s
    assert product.parts is not None
    assert product._radius is None
    assert not product.exact
    assert np.all(product.radius > 0)


def test_what_changes_radii_forgets_what_they_were_computed_of() -> None:
    (x, _) = (ball(each, TERMS["float32"]) for each in _operands(1.0))
    product: Any = x * 0.3
    product.radius = np.full(product.shape, 7.0)
    assert product.parts is None
    assert np.all(product.radii() == 7.0)
    assert np.all(np.square(product).radii() >= 49.0)


def test_the_bound_of_all_elements_holds() -> None:
    for terms in TERMS.values():
        for formula in FORMULAS.values():
            with np.errstate(all="ignore"):
                result: Ball = formula(*(ball(x, terms) for x in _operands(1.0)))
                assert not np.any(np.abs(result.centre) + result.radii() > result.most)
