"""The subjects of kernels: what is not asked of them, and that both are the production op's kernels."""

from __future__ import annotations

import pytest

from opassay.oracles.op.declaration import KERNELS
from opassay.oracles.verdicts.verdict import Cell, Code, Outcome
from opassay.properties.engine.samples import Settings
from opassay.properties.names import ON_KERNELS, SUBJECTS
from opassay.properties.places.kernels import PREPARATIONS
from opassay.properties.table import PROPERTIES
from opassay.properties.verification import run_cell


def test_the_subjects_have_one_list() -> None:
    assert set(ON_KERNELS) == KERNELS == set(PREPARATIONS) <= set(SUBJECTS)


def test_ptx_is_asked_what_triton_is_asked_and_the_order_of_warps() -> None:
    codes_of = {subject: {code for code, row in PROPERTIES.items() if subject in row.kernels} for subject in ON_KERNELS}
    assert codes_of["ptx"] - codes_of["triton"] == {"DET"}
    assert codes_of["triton"] <= codes_of["ptx"]


@pytest.mark.parametrize("subject", ON_KERNELS)
@pytest.mark.parametrize(
    ("op", "code", "device", "expected"),
    [
        ("softmax", "COMP", "cpu", Code.NOT_APPLICABLE),
        ("softmax", "FWD", "cuda", Code.NOT_APPLICABLE),
        ("broadcast", "FWD", "cpu", Code.NO_SUBJECT),
    ],
)
def test_what_does_not_apply_is_not_asked(subject: str, op: str, code: str, device: str, expected: Code) -> None:
    verdict = run_cell(Cell(op, code, "float32", device, subject), Settings("brief"))
    assert (verdict.outcome, verdict.code) == (Outcome.UNSUPPORTED, expected)
