"""Every property that claims programs has one that sees a planted fault, and that a right implementation passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

from opassay.oracles.bound.contract import contract
from opassay.oracles.judge.judge import Judge
from opassay.oracles.op.declaration import Op, Refusal, Sample, Tensor
from opassay.oracles.programs.writing import program
from opassay.oracles.verdicts.verdict import Cell
from opassay.oracles.verdicts.violation import Violation
from opassay.properties.checks import CHECKS
from opassay.properties.table import PROPERTIES

from . import faulty_products as products
from .planted_ops import declared, sample
from .program_runner import run_program

pytestmark = pytest.mark.slow


def _longer_weight(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return args[0], torch.ones(args[1].shape[0] + 1)


def _ones(sample: Sample) -> Sample:
    return sample.with_args((sample.args[0], torch.ones_like(sample.args[1])))


def _integers(sample: Sample) -> Sample:
    return sample.with_args(tuple((4 * a).round() for a in sample.args))


def _same(sample: Sample) -> Sample:
    return sample


@dataclass(frozen=True)
class PlantedFault:
    """A fault that one property sees: the subject, what is special of the declaration and of the sample."""

    property: str
    subject: Callable[..., Tensor]
    more: dict[str, Any] = field(default_factory=dict)
    change: Callable[[Sample], Sample] = _same
    lead: tuple[int, ...] = (4,)
    dtype: str = "float32"

    def op(self) -> Op:
        op = declared(self.subject)
        return replace(op.changed(nesting=3), **self.more)

    def violation(self) -> Violation:
        case = self.change(sample(3, self.dtype, self.lead, slices=PROPERTIES[self.property].sampling.slices))
        with pytest.raises(Violation) as error:
            CHECKS[self.property](Judge(self.op(), "opassay", contract(self.dtype)), case)
        return error.value


REFUSALS = (Refusal("weight of another length", _longer_weight, RuntimeError, ("size",)),)

FAULT = (
    *(PlantedFault(code, products.value) for code in ("FWD", "VJP", "JVP", "ORD2", "VMAP", "NEST", "WORD", "SIZE")),
    PlantedFault("NEST", products.at_the_end),
    PlantedFault("ORD3", products.value, dtype="float64"),
    PlantedFault("FWD", products.raising),
    PlantedFault("EMPTY", products.raising, lead=(0,)),
    PlantedFault("VJP", products.slope),
    PlantedFault("ADJ", products.slope),
    PlantedFault("DUAL", products.tracked),
    PlantedFault("DATA", products.off_by_little, change=_integers),
    PlantedFault("LAYOUT", products.strided),
    PlantedFault("SPECIAL", products.clipping),
    PlantedFault("ERROR", products.accepting, {"refusals": REFUSALS}),
    PlantedFault("PURE", products.writing),
    PlantedFault("PURE", products.sharing, change=_ones),
    PlantedFault("FAKE", products.unlike_meta),
    PlantedFault("DET", products.drifting),
    PlantedFault("AUTOCAST", products.cast),
    PlantedFault("MEM", products.keeping),
    PlantedFault("WAYS", products.by_keyword),
)


@pytest.mark.parametrize("fault", FAULT, ids=lambda fault: f"{fault.property}: {fault.subject.__name__}")
def test_a_program_sees_the_fault_and_passes_the_right_op(fault: PlantedFault) -> None:
    result = fault.violation()
    assert result.make_script is not None, result.message
    cell = Cell("scaled", fault.property, fault.dtype, "cpu", "opassay")
    text = program(fault.op(), cell, result.make_script(), result.title, "1234-ab")
    wrong = run_program(text)
    assert wrong.status == 1, f"{wrong.printed}\n{result.message}\n{text}"
    for word in ("computed", "allowed"):
        assert word in wrong.printed
    name = f"op = {products.__name__}."
    assert f"{name}{fault.subject.__name__}" in text
    right = run_program(text.replace(f"{name}{fault.subject.__name__}", f"{name}right"))
    assert right.status == 0, f"{right.printed}\n{text}"


def test_every_property_has_programs_or_says_why_not() -> None:
    with_programs = {fault.property for fault in FAULT}
    reasons = {code: row.no_program for code, row in PROPERTIES.items() if row.no_program}
    assert with_programs | reasons.keys() == PROPERTIES.keys()
    assert not with_programs & reasons.keys()
    for reason in reasons.values():
        assert reason.endswith(".")
        assert reason.count(". ") == 0
