"""No right everyday function is accused, and each of them is refused with one defect: `pytest -s` prints the table."""

from __future__ import annotations

import pytest

from opassay import Outcome, Settings, declare, strategies, verify, verify_function

from .everyday import FORMULAS, FUNCTIONS, function_of

pytestmark = pytest.mark.slow

SETTINGS = Settings("brief", max_examples=4)


def test_there_are_forty() -> None:
    assert len(FUNCTIONS) >= 40


@pytest.mark.parametrize("name", FORMULAS)
def test_torch_is_right_by_the_formula_and_a_defect_is_not(name: str) -> None:
    each = FORMULAS[name]
    op = declare(
        lambda x: each.formula(x),
        {"opassay": each.right, "wrong": each.wrong},
        name=name,
        samples=strategies.same_shape(1, ("benign", "ties", "constant rows", "large offset")),
        differentiable=("x",),
        dtypes=lambda x: (x.dtype,),
    )
    settings = Settings("brief", max_examples=8)
    results = {
        subject: verify(op, subject, ("FWD", "VJP"), ("float32",), settings=settings)
        for subject in ("opassay", "wrong")
    }
    dtypes = sorted({v.cell.dtype for v in results["wrong"] if v.outcome is Outcome.FAIL})
    print(f"{name:22s} wrong: refused in {', '.join(dtypes) or 'nothing'}")
    assert [(v.cell, v.reason) for v in results["opassay"] if v.outcome is not Outcome.VERIFIED] == []
    assert dtypes == ["float32"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_right_one_is_verified_and_the_wrong_one_refused(name: str) -> None:
    each = FUNCTIONS[name]
    right, wrong = (
        verify_function(function_of(each.forward, backward), each.samples, properties=("FWD", "VJP"), settings=SETTINGS)
        for backward in (each.backward, each.wrong)
    )
    dtypes = sorted(v.cell.dtype for v in wrong if v.outcome is Outcome.FAIL)
    largest = max(v.measure.max_ratio for v in right)
    print(f"{name:22s} right: {largest:6.3f} of the bound   wrong: refused in {', '.join(dtypes) or 'nothing'}")
    assert [(v.cell.property, v.cell.dtype, v.reason) for v in right if v.outcome is not Outcome.VERIFIED] == []
    assert dtypes == ["float32", "float64"]
