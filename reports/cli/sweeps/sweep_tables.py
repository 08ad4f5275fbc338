"""The table of measured functions, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....properties.sweeps.tables import Swept
from ...text_table import TextTable


@dataclass(frozen=True)
class SweepTable(TextTable):
    """A table, and whether a contract in it is tighter than what was measured."""

    broken: bool = False


def sweep_table(rows: Sequence[Swept]) -> SweepTable:
    """Of every function and dtype the largest error that was seen, and what the contract allows."""
    broken = [row for row in rows if row.broken]
    remarks = [
        f"{row.key.function} in {row.key.dtype} on {row.key.device}: the contract allows {row.promised:.6g} ulp, and "
        f"argument {row.where} is {row.normal:.6g} ulp off; the contract is too tight for this device"
        for row in broken
    ]
    headings = ("function", "dtype", "device", "arguments", "not correctly rounded", "worst (ulp)", "at")
    return SweepTable(
        (*headings, "worst below the normal range", "contract (ulp)", "verdict"),
        [_cells(row) for row in rows],
        remarks,
        bool(broken),
    )


def _cells(row: Swept) -> tuple[str, ...]:
    verdict = "too tight" if row.broken else "" if row.promised is None else "holds"
    return (
        row.key.function, row.key.dtype, row.key.device,
        f"{'all ' if row.complete else ''}{row.inputs:,}", f"{row.misrounded:.3%}", _ulps(row.normal), row.where,
        _ulps(row.subnormal), "none" if row.promised is None else f"{row.promised:.6g}", verdict,
    )  # fmt: skip


def _ulps(error: float) -> str:
    return "none" if error < 0 else f"{error:.6g}"
