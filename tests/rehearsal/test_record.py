"""The record of the rehearsal, and its table docs/tables/rehearsed.txt."""

from __future__ import annotations

from typing import Any

import pytest

from .record import NAME, PAGE, Record, add, lines, read_record, with_table


def _run(outcome: str, gpu: str = NAME, *words: str) -> dict[str, Any]:
    cell = {"op": "trace", "property": "FWD", "dtype": "float32", "device": "cuda", "subject": "opassay"}
    verdicts = [{"cell": cell, "outcome": outcome}]
    return {"environment": {"gpu": gpu}, "command": list(words), "started": "2026-01-02T03:04", "verdicts": verdicts}


def test_the_page_has_the_table_of_the_record() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page, read_record())


def test_a_cell_has_the_outcome_of_its_last_run() -> None:
    record: Record = {}
    for outcome in ("fail", "verified", "not run"):
        add(record, _run(outcome))
    add(record, _run("timeout", NAME, "run", "--fabric", "folded"))
    assert record == {
        "trace": {
            "FWD float32 cuda host": ["verified", "2026-01-02"],
            "FWD float32 cuda folded": ["timeout", "2026-01-02"],
        }
    }
    table = "".join(lines(record))
    assert "| trace | 1 | 0 | 0 | 1 | 0 | 2026-01-02 |" in table
    assert "- trace::FWD (float32, cuda, folded): timeout\n" in table


def test_a_run_elsewhere_is_no_rehearsal() -> None:
    with pytest.raises(ValueError, match="got gpu='H100', need 'rehearsal device"):
        add({}, _run("verified", "H100"))
