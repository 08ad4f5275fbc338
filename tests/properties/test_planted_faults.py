"""Sensitivity: faults of the kinds real libraries had, planted in correct ops, each caught by the cell it should be.

That the right op passes the same cells is what the assay asks. Run with `-s` to see the table.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import strategies as st

from opassay import Cell, Code, Draft, Op, Outcome, Promises, Settings, run_cell

from .planted.fault import Fault

Tensor = torch.Tensor
#: Families of ops: the modules of `planted/`.
FAMILIES = sorted(
    p.stem for p in (Path(__file__).parent / "planted").glob("*.py") if p.stem not in ("fault", "__init__")
)
FAULTS: dict[str, tuple[Fault, ...]] = {
    family: importlib.import_module(f".planted.{family}", __package__).FAULTS for family in FAMILIES
}
EVERY = [fault for family in FAMILIES for fault in FAULTS[family]]


#: One fault of each property; the others are slow.
FIRST = {fault.property: fault for fault in reversed(EVERY)}
CASES = [
    pytest.param(
        fault, id=f"{fault.op}: {fault.name}", marks=[] if FIRST[fault.property] is fault else pytest.mark.slow
    )
    for fault in EVERY
]


@pytest.mark.parametrize("fault", CASES)
def test_fault_is_caught(fault: Fault) -> None:
    verdict = fault.verdict()
    print(
        f"\n{fault.op:28s} {fault.name:42s} {fault.property:8s} {fault.dtype:9s} {verdict.outcome:8s} {verdict.reason}"
    )
    assert verdict.outcome == Outcome.FAIL, verdict.reason
    assert verdict.code in fault.codes, "caught for another reason than the planted one"
    assert verdict.failure is not None
    assert verdict.failure.case


def test_every_family_has_at_least_five_faults_with_names_of_their_own() -> None:
    assert {family: len(faults) for family, faults in FAULTS.items() if len(faults) < 5} == {}
    assert max(Counter((fault.op, fault.name) for fault in EVERY).values()) == 1


@st.composite
def _pairs(draw: st.DrawFn, dtype: str, kind: str = "ordinary") -> Draft:
    n = draw(st.sampled_from((100, 500)) if kind == "large" else st.integers(4, 8))
    return Draft(lambda rng: tuple(torch.from_numpy(rng.standard_normal((2, n))).float()), "benign")


@pytest.mark.slow
def test_a_bias_inside_every_accept_set_is_caught() -> None:
    # Products rounded up, never down: each within one ulp, as the bound allows, and all on one side.
    def upwards(x: Tensor, w: Tensor) -> Tensor:
        exact = x.double() * w.double()
        y = exact.float()
        return torch.where(y.double() < exact, torch.nextafter(y, torch.tensor(torch.inf)), y)

    promises = Promises(dtypes=lambda args: (args[0].dtype,))
    subjects: dict[str, Callable[..., Any]] = {"nearest": torch.mul, "faulty": upwards}
    op = Op("product", lambda x, w: x * w, subjects, _pairs, ("x", "w"), promises)
    for name, code in (("faulty", Code.BIAS), ("nearest", Code.HELD)):
        verdict = run_cell(Cell("product", "FWD", "float32", "cpu", name), Settings("nightly", max_examples=600), op)
        assert verdict.code == code, verdict.reason


@pytest.mark.slow
def test_what_a_constant_does_to_every_sample_alike_is_no_bias() -> None:
    # The rounded reciprocal of 255 is too large by nearly half an ulp, and so is every product with it.
    reciprocal = torch.tensor(1.0 / 255.0, dtype=torch.float32)

    def upwards(x: Tensor, w: Tensor) -> Tensor:
        exact = x.double() * x.double() / 255.0
        y = exact.float()
        above = torch.nextafter(y, torch.tensor(torch.inf))
        return torch.where(y.double() < exact, torch.nextafter(above, torch.tensor(torch.inf)), above)

    subjects: dict[str, Callable[..., Any]] = {"by reciprocal": lambda x, w: x * x * reciprocal, "faulty": upwards}
    promises = Promises(dtypes=lambda args: (args[0].dtype,))
    op = Op("scaled square", lambda x, w: x * x / 255.0, subjects, _pairs, ("x",), promises)
    for name, code in (("faulty", Code.BIAS), ("by reciprocal", Code.HELD)):
        verdict = run_cell(Cell(op.name, "FWD", "float32", "cpu", name), Settings("nightly", max_examples=1250), op)
        assert verdict.code == code, verdict.reason
