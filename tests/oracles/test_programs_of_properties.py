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
class Planted:
    """A fault that one property sees: the subject, what is special of the declaration and of the sample."""

    property: str
    subject: Callable[..., Tensor]
    more: dict[str, Any] = field(default_factory=dict)
    given: Callable[[Sample], Sample] = _same
    lead: tuple[int, ...] = (4,)
    dtype: str = "float32"

    def op(self) -> Op:
        op = declared(self.subject)
        return replace(op.changed(nesting=3), **self.more)

    def found(self) -> Violation:
        case = self.given(sample(3, self.dtype, self.lead, slices=PROPERTIES[self.property].sampling.slices))
        with pytest.raises(Violation) as caught:
            CHECKS[self.property](Judge(self.op(), "opassay", contract(self.dtype)), case)
        return caught.value


REFUSALS = (Refusal("weight of another length", _longer_weight, RuntimeError, ("size",)),)

PLANTED = (
    *(Planted(code, products.value) for code in ("FWD", "VJP", "JVP", "ORD2", "VMAP", "NEST", "WORD", "SIZE")),
    Planted("NEST", products.at_the_end),
    Planted("ORD3", products.value, dtype="float64"),
    Planted("FWD", products.raising),
    Planted("EMPTY", products.raising, lead=(0,)),
    Planted("VJP", products.slope),
    Planted("ADJ", products.slope),
    Planted("DUAL", products.tracked),
    Planted("DATA", products.off_by_little, given=_integers),
    Planted("LAYOUT", products.strided),
    Planted("SPECIAL", products.clipping),
    Planted("ERROR", products.accepting, {"refusals": REFUSALS}),
    Planted("PURE", products.writing),
    Planted("PURE", products.sharing, given=_ones),
    Planted("FAKE", products.unlike_meta),
    Planted("DET", products.drifting),
    Planted("AUTOCAST", products.cast),
    Planted("MEM", products.keeping),
    Planted("WAYS", products.by_keyword),
)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: f"{planted.property}: {planted.subject.__name__}")
def test_a_program_sees_the_fault_and_passes_the_right_op(planted: Planted) -> None:
    result = planted.found()
    assert result.make_script is not None, result.message
    cell = Cell("scaled", planted.property, planted.dtype, "cpu", "opassay")
    text = program(planted.op(), cell, result.make_script(), result.title, "1234-ab")
    wrong = run_program(text)
    assert wrong.status == 1, f"{wrong.printed}\n{result.message}\n{text}"
    for word in ("computed", "allowed"):
        assert word in wrong.printed
    name = f"op = {products.__name__}."
    assert f"{name}{planted.subject.__name__}" in text
    right = run_program(text.replace(f"{name}{planted.subject.__name__}", f"{name}right"))
    assert right.status == 0, f"{right.printed}\n{text}"


def test_every_property_has_programs_or_says_why_not() -> None:
    with_programs = {planted.property for planted in PLANTED}
    reasons = {code: row.no_program for code, row in PROPERTIES.items() if row.no_program}
    assert with_programs | reasons.keys() == PROPERTIES.keys()
    assert not with_programs & reasons.keys()
    for reason in reasons.values():
        assert reason.endswith(".")
        assert reason.count(". ") == 0
