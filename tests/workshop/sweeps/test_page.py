"""The table docs/tables/functions.txt and the contract of the CPU: neither may be changed without the other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from opassay.oracles.bound.contract import CPU_FUNCTIONS
from workshop.sweeps import sampling
from workshop.sweeps.reading import promised

PAGE = Path(__file__).parents[3] / "docs" / "tables" / "functions.txt"


#: What torch computes worse than its contract says, and what is told of it on the page: faults of torch.
EXCEPTIONS = {("erf", "bfloat16"), ("erf", "float16")}
#: Those that overflow early, which samples do not reach.
OVERFLOWING = {(name, dtype) for name in ("sinh", "cosh") for dtype in ("float32", "bfloat16")}


#: Functions of two arguments, of which no table is made, and NumPy's cube root, which torch and half types do not have.
OF_PARTS = {(name, dtype) for name in ("arctan2", "hypot") for dtype in ("float64", "float32", "bfloat16", "float16")}
OF_PARTS |= {("cbrt", "bfloat16"), ("cbrt", "float16")}


def _rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def _measured() -> list[list[str]]:
    return [row for row in _rows() if row[2] == "cpu"]


def _sampled() -> list[list[str]]:
    return [row for row in _rows() if len(row) == 6 and row[0] in sampling.SAMPLED]


def _faults(rows: list[list[str]], known: set[tuple[str, str]]) -> list[str]:
    results = []
    for function, dtype, _, _, _, worst, _, _, message, _ in rows:
        allowed = promised(function, dtype, CPU_FUNCTIONS)
        if (function, dtype) in known:
            assert float(worst) > (allowed or 0.0), f"{function} in {dtype} is no fault any more"
        elif allowed is not None and (float(worst) > allowed or message != f"{allowed:.6g}"):
            results.append(
                f"{function} in {dtype}: measured {worst}, the page says {message}, the contract {allowed:.6g}"
            )
    return results


def test_the_contract_is_no_tighter_than_what_was_measured() -> None:
    assert _faults(_measured(), EXCEPTIONS | OVERFLOWING) == []


def test_every_function_of_the_contract_was_measured_in_every_dtype() -> None:
    measured = {(row[0].partition(":")[0], row[1]) for row in (*_measured(), *_sampled())}
    dtypes = ("float64", "float32", "bfloat16", "float16")
    needed = {(function, dtype) for function in CPU_FUNCTIONS for dtype in dtypes} - OF_PARTS
    assert needed <= measured


def test_a_sample_is_within_the_contract() -> None:
    results = [
        [name, dtype, "", "", "", worst, "", "", message, ""] for name, dtype, _, worst, _, message in _sampled()
    ]
    assert len(results) > 80
    assert _faults(results, EXCEPTIONS) == []


@pytest.mark.parametrize("name", sampling.SAMPLED)
def test_a_sample_measures_what_the_page_says(name: str) -> None:
    worst, place = sampling.worst_of(name, "float32", sampling.sample_arguments("float32", every=1_000_003))
    assert 0.3 < worst <= CPU_FUNCTIONS[name]
    assert np.isfinite(place)


def test_a_sample_sees_a_function_that_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.sin
    monkeypatch.setattr(torch, "sin", lambda x: right(x) * (1.0 + 2.0**-21))
    worst, _ = sampling.worst_of("sin", "float32", sampling.sample_arguments("float32", every=1_000_003))
    assert worst > CPU_FUNCTIONS["sin"]


@pytest.mark.parametrize(("column", "value"), [(5, "1.01"), (8, "0.5")], ids=["worse than allowed", "another contract"])
def test_a_row_that_contradicts_the_contract_is_found(column: int, value: str) -> None:
    row = next(row for row in _measured() if row[:2] == ["exp", "float32"])
    assert len(_faults([[*row[:column], value, *row[column + 1 :]]], EXCEPTIONS)) == 1
