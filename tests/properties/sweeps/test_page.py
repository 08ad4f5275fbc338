"""The measured table of docs/functions.md and the contract of the CPU: neither may be changed without the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from opassay.oracles.contract import CPU_FUNCTIONS
from opassay.properties.sweeps.tables import promised

PAGE = Path(__file__).parents[3] / "docs" / "functions.md"


def _measured() -> list[list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "| cpu |" in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def _faults(rows: list[list[str]]) -> list[str]:
    found = []
    for function, dtype, _, _, _, worst, _, _, said, _ in rows:
        allowed = promised(function, dtype, CPU_FUNCTIONS)
        if allowed is not None and (float(worst) > allowed or said != f"{allowed:.6g}"):
            found.append(f"{function} in {dtype}: measured {worst}, the page says {said}, the contract {allowed:.6g}")
    return found


def test_the_contract_is_no_tighter_than_what_was_measured() -> None:
    assert _faults(_measured()) == []


def test_every_function_of_the_contract_was_measured_in_every_dtype() -> None:
    measured = {(row[0].partition(":")[0], row[1]) for row in _measured()}
    dtypes = ("float64", "float32", "bfloat16", "float16")
    assert {(function, dtype) for function in CPU_FUNCTIONS for dtype in dtypes} <= measured


@pytest.mark.parametrize(("column", "value"), [(5, "1.01"), (8, "0.5")], ids=["worse than allowed", "another contract"])
def test_a_row_that_contradicts_the_contract_is_found(column: int, value: str) -> None:
    row = next(row for row in _measured() if row[:2] == ["exp", "float32"])
    assert len(_faults([[*row[:column], value, *row[column + 1 :]]])) == 1
