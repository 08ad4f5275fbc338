"""The table of what was proved of each op on CUDA: `benchmarks/cuda_proofs.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.programs import loaded

_PROOFS = loaded(Path(__file__).resolve().parents[2] / "benchmarks" / "cuda_proofs.py")


def _run(outcome: str, subject: str = "ptx", device: str = "cpu", gpu: str = "") -> dict[str, Any]:
    cell = {"op": "trace", "property": "FWD", "dtype": "float32", "device": device, "subject": subject}
    return {"environment": {"gpu": gpu}, "verdicts": [{"cell": cell, "outcome": outcome}]}


def test_the_page_has_the_table_of_the_records() -> None:
    page = _PROOFS.PAGE.read_text(encoding="utf-8")
    assert page == _PROOFS.with_table(page)


def test_a_cell_stands_where_it_was_asked_with_its_last_outcome() -> None:
    record: dict[str, Any] = {}
    for outcome in ("fail", "verified", "not run"):
        _PROOFS.add_run(record, _run(outcome))
    _PROOFS.add_run(record, _run("timeout", "triton"))
    _PROOFS.add_run(record, _run("fail", "opassay", "cuda", "NVIDIA H100 80GB HBM3"))
    (row,) = [row for row in _PROOFS.rows_of(record, {}) if row[0] == "trace"]
    assert row == ("trace", "forward, backward", "0 of 1 (1 timeout)", "1 of 1", "", "0 of 1 (1 fail)", "")


def test_what_was_rehearsed_and_what_ran_on_a_cpu_is_none_of_a_gpus() -> None:
    for run in (_run("verified", "opassay"), _run("verified", "opassay", "cuda", "rehearsal device (host memory)")):
        with pytest.raises(ValueError, match="got subject='opassay', need triton or ptx, or an NVIDIA GPU"):
            _PROOFS.add_run({}, run)


def test_launches_with_other_bits_are_told() -> None:
    rows = [
        {"op": "trace", "label": "8192x8192", "dtype": "float32", "launches": 4, "elements": 5000, "equal": 4000},
        {"what": "trace 8192x8192, float16", "failed": "Unsupported"},
    ]
    record: dict[str, Any] = {}
    _PROOFS.add_launches(record, rows)
    (row,) = [row for row in _PROOFS.rows_of(record, {}) if row[0] == "trace"]
    assert row[-1] == "4, 1,000 elements with others"
