"""Rows about kernels as tables: of their machine code, and of the bytes that they move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opassay.reports.text import TextTable

Row = Mapping[str, Any]


def code_table(rows: Sequence[Row]) -> TextTable:
    """Of every kernel in every configuration what its machine code takes.

    The last figure is the part of the copy bandwidth that is within reach: how far the accesses that are under way at
    once cover the latency of memory, on a multiprocessor full of this kernel.
    """
    cells = [
        (
            row["architecture"], row["kernel"], row["dtypes"], row["configuration"], f"{row['op']} {row['label']}",
            str(row["registers"]), str(row["spills"] or row["stack"]), str(row["shared"]), str(row["warps"]),
            _accesses(row["loads"]), _accesses(row["stores"]), f"{row['latency_cover']:.0%}", _verdict_of(row),
        )
        for row in rows if row["table"] == "code"
    ]  # fmt: skip
    headings = ("arch", "kernel", "dtypes", "configuration", "launched by", "registers", "stack", "shared", "warps/SM")
    return TextTable((*headings, "loads", "stores", "reach", "verdict"), cells, _remarks(rows, "kernels compiled"))


def traffic_table(rows: Sequence[Row]) -> TextTable:
    """Of every shape class and direction the bytes that moved, over those that must."""
    cells = [
        (
            f"{row['op']} {row['label']}", row["direction"], row["dtype"], "x".join(map(str, row["shape"])),
            ", ".join(dict.fromkeys(row["kernels"])), str(row["must"]), str(row["booked"]),
            f"{row['booked'] / row['must']:.3f}", f"{row['limit']:.3f}", f"{min(1.0, row['must'] / row['booked']):.0%}",
            f"{row['workspace']:.2%}", _verdict_of(row) + (f" ({row['why']})" if row["why"] else ""),
        )
        for row in rows if row["table"] == "traffic"
    ]  # fmt: skip
    headings = ("shape class", "direction", "dtype", "interpreted", "kernels", "must", "booked", "ratio", "limit")
    return TextTable((*headings, "reach", "workspace", "verdict"), cells, _remarks(rows, "directions interpreted"))


def _accesses(widths: Mapping[str, int]) -> str:
    """As "8 of 16 B"."""
    return " + ".join(f"{count} of {width} B" for width, count in widths.items()) or "none"


def _verdict_of(row: Row) -> str:
    return "; ".join(row["faults"]) or "pass"


def _remarks(rows: Sequence[Row], counted: str) -> list[str]:
    judged = [row for row in rows if row["table"] != "missing"]
    failed = [row for row in rows if row["faults"]]
    missing = [row for row in rows if row["table"] == "missing"]
    remarks = [f"{len(judged)} {counted}, {len(failed)} failed"]
    remarks += [f"{_name_of(row)}: {'; '.join(row['faults'])}" for row in missing if row["faults"]]
    without = dict.fromkeys(f"{row['op']} {row['direction']}" for row in missing if not row["faults"])
    return remarks + ([f"no kernels: {', '.join(without)}"] if without else [])


def _name_of(row: Row) -> str:
    return f"{row['op']} {row['label']} {row['direction']} {row['dtype']}"
