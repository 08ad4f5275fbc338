"""`assert_conforms` in somebody's test: what stands for tensors, who is named, and what a card says to do."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

import opassay
from opassay import assert_conforms
from opassay.properties.candidates.specification import Specification

GENERATOR = torch.Generator().manual_seed(5)
X, W = (torch.randn(shape, generator=GENERATOR) for shape in ((6, 8), (8, 5)))


def double(x: torch.Tensor) -> torch.Tensor:
    return x + x


def rms(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def rms_of_other_eps(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3)


def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x @ w


def product_of_bfloat16(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().float() @ w.bfloat16().float()


def _card(candidate: Any, spec: Any, *args: Any) -> str:
    with pytest.raises(AssertionError) as error:
        assert_conforms(candidate, spec, *args)
    return str(error.value)


def test_the_first_line_has_candidate_spec_and_numbers() -> None:
    x = torch.full((2, 4), 200.0)
    with pytest.raises(AssertionError) as error:
        assert_conforms(x.exp() / x.exp().sum(-1, keepdim=True), torch.softmax, x, -1)
    first = str(error.value).splitlines()[0]
    assert first.startswith("x.exp() / x.exp().sum(-1, keepdim=True) against softmax: out[0, 0] is NaN where the exact")
    assert first.endswith("value is 0.25")
    assert _card(rms_of_other_eps, rms, X).startswith("rms_of_other_eps against rms: out[")
    with pytest.raises(AssertionError, match=r"^double: out\[0\] is 3 where the exact value is 2, 4"):
        exec("f(x * 3, double, x)", {"f": assert_conforms, "double": double, "x": torch.ones(1)})


def test_a_card_names_the_inputs_the_likely_fault_and_what_explains_more() -> None:
    card = _card(rms_of_other_eps(X), rms, X)
    assert "  input      x: float32[6, 8]" in card
    assert "  likely     add with other=0.001 in place of 1e-06, in line " in card
    assert "  explain    opassay explain OA101" in card
    assert "accepted" not in card


def test_a_card_has_the_contract_that_accepts() -> None:
    card = _card(product_of_bfloat16, product, X, W)
    (line,) = (line for line in card.splitlines() if line.startswith("  accepted"))
    contract = line.split('"')[1]
    assert_conforms(product_of_bfloat16, product, X, W, contract=contract)
    with pytest.raises(AssertionError):
        assert_conforms(product_of_bfloat16(X, W) * 1.05, product, X, W, contract=contract)


def test_shapes_and_dtypes_come_before_values() -> None:
    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + x, x * x

    card = _card((X * 3, (X * X).double()), both, X)
    assert "both: out[1] has dtype float64" in card.splitlines()[0]
    assert "out[0][" in card


@pytest.mark.parametrize("value", [[2.0, 4.0], (2, 4), np.array([2.0, 4.0], np.float32), torch.tensor([2.0, 4.0])])
def test_lists_and_arrays_stand_for_tensors(value: Any) -> None:
    x = np.array([1.0, 2.0], np.float32)
    assert_conforms(value, double, x)
    wrong = value * 2 if not isinstance(value, list | tuple) else [2.0, 5.0]
    assert "where the exact value is" in _card(wrong, double, x)


def test_numbers_that_a_dtype_does_not_have_are_not_rounded() -> None:
    assert "has dtype float64, need float32" in _card([2.0 + 2**-40], double, torch.ones(1))
    assert "got 3 outputs, need 1" not in _card([[2.0], [2.0, 2.0]], double, torch.ones(1))
    assert_conforms(3.0, torch.sum, torch.ones(3))


def test_dictionaries_are_compared_by_key_in_and_out() -> None:
    def scores(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"sum": batch["a"] + batch["b"], "product": batch["a"] * batch["b"]}

    batch = {"a": X, "b": X * 2}
    assert_conforms({"product": X * (X * 2), "sum": X + X * 2}, scores, batch)
    assert "out['sum'][" in _card({"product": X * (X * 2), "sum": X}, scores, batch)
    assert "got 1 outputs, need 2" in _card({"product": X}, scores, batch)


def test_modules_are_called_and_may_be_arguments() -> None:
    linear = torch.nn.Linear(8, 3)
    assert_conforms(linear, lambda x: functional.linear(x, linear.weight.detach(), linear.bias.detach()), X)
    assert_conforms(linear, linear, X)
    twin = torch.nn.Linear(8, 3)
    assert _card(twin, linear, X).startswith("Linear against Linear: out[")
    assert_conforms(linear(X), lambda x, layer: layer(x), X, linear)


def test_what_a_function_writes_is_held_where_the_spec_gives_nothing() -> None:
    def add(x: torch.Tensor, y: torch.Tensor) -> None:
        x.add_(y)

    def subtract(x: torch.Tensor, y: torch.Tensor) -> None:
        x.sub_(y)

    before = X.clone()
    assert_conforms(add, add, X, X)
    assert "subtract against add: written" in _card(subtract, add, X, X)
    assert torch.equal(X, before)


def test_a_kept_specification_is_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    traces: list[Any] = []
    trace = Specification._trace

    def note(*args: Any) -> Any:
        traces.append(args)
        return trace(*args)

    monkeypatch.setattr(Specification, "_trace", note)
    reference = opassay.specification(rms)
    for _ in range(3):
        assert_conforms(rms(X), reference, X)
    assert len(traces) == 1
    with pytest.raises(AssertionError):
        assert_conforms(rms_of_other_eps(X), reference, X)


ALONE = """
import sys, torch

for name in ("msgspec", "hypothesis", "click", "rich", "jinja2", "pytest"):
    sys.modules[name] = None  # as if it were not installed
from opassay import assert_conforms
x = torch.ones(3, 4)
assert_conforms(x @ x.T, lambda x: x @ x.T, x)
try:
    assert_conforms(x.bfloat16().float() @ (x.T * 1.01), lambda x: x @ x.T, x)
except AssertionError as err:
    print(err)
"""


def test_mpmath_numpy_and_torch_are_enough() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert "where the exact value is 4" in done.stdout


UNDER_UNITTEST = """
import unittest, torch
from opassay import assert_conforms

class Tests(unittest.TestCase):
    def test_right(self):
        assert_conforms(torch.ones(2) * 2, lambda x: x + x, torch.ones(2))
    def test_wrong(self):
        assert_conforms(torch.ones(2) * 3, lambda x: x + x, torch.ones(2))

unittest.main()
"""


def test_unittest_shows_the_card_and_the_line_of_the_test() -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNDER_UNITTEST], capture_output=True, text=True, timeout=100, check=False
    )
    assert "FAILED (failures=1)" in done.stderr, done.stderr
    assert "AssertionError: " in done.stderr
    assert "assertion.py" not in done.stderr
