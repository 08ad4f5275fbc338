"""The page of a run on a GPU: every part, whether it ran, and its rows as a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def text(measures: dict[str, Any]) -> str:
    """The page, in Markdown."""
    return "\n".join([*_head(measures), *(line for part in measures["parts"] for line in _part(part))]) + "\n"


def _head(measures: dict[str, Any]) -> Iterator[str]:
    yield f"# On a GPU, {measures['date'][:10]}"
    yield ""
    yield (
        f"Written by `python benchmarks/on_gpu.py --minutes {measures['minutes']:g}`, "
        f"which took {measures['seconds']} s. "
        "A fraction is the bytes that must move over the time and the copy bandwidth of this run; times are of CUDA "
        "events, in µs, with the L2 cache flushed before every call."
    )
    yield ""
    yield "| part | status | seconds | rows |"
    yield "| --- | --- | --- | --- |"
    for part in measures["parts"]:
        status = part["status"] + (f": {_cell(part['reason'])}" if part["reason"] else "")
        yield f"| {part['name']} | {status} | {part['seconds']} | {len(part['rows'])} |"


def _part(part: dict[str, Any]) -> Iterator[str]:
    """A table for each set of columns that the rows of a part have."""
    if not part["rows"]:
        return
    yield ""
    yield f"## {part['name'][0].upper()}{part['name'][1:]}"
    tables: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in part["rows"]:
        tables.setdefault(tuple(row), []).append(row)
    for columns, rows in tables.items():
        yield ""
        yield "| " + " | ".join(columns) + " |"
        yield "| " + " | ".join("---" for _ in columns) + " |"
        for row in rows:
            yield "| " + " | ".join(_cell(row[column]) for column in columns) + " |"


def _cell(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")
