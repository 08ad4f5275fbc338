"""What was proved of each op on CUDA, and how: `python benchmarks/cuda_proofs.py [RUN.json | LAUNCHES.jsonl]...`

adds to the record in `benchmarks/results/` runs of subjects "triton" and "ptx", runs on a GPU, and what
`benchmarks/gpu/launches.py` has written, and writes the table of docs/tables/kernels.txt. What was rehearsed has a
record of its own, in `tests/rehearsal/`. A cell has the outcome of its last run, and so has a launch.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from opassay.properties.catalog.loading import load_op, op_names
from workshop.kernels.classes import CLASSES

_ROOT = Path(__file__).resolve().parents[1]
RECORD = _ROOT / "benchmarks" / "results" / "cuda_cells.json"
REHEARSED = _ROOT / "tests" / "rehearsal" / "record.json"
PAGE = _ROOT / "docs" / "tables" / "kernels.txt"
BEGIN, END = "<!-- python benchmarks/cuda_proofs.py -->\n", "<!-- end -->"
#: How cells were asked, in the order of the table.
INTERPRETED, EXECUTED, GPU = "interpreted", "executed", "GPU"
_WAYS = {"triton": INTERPRETED, "ptx": EXECUTED}
_HEADINGS = ("op", "kernels", INTERPRETED, "executed as PTX", "rehearsed", "on an H100", "launches with an H100's bits")
#: What says nothing of an op.
_UNASKED = ("not run", "unsupported")

#: By op and by way, "property dtype" and the outcome of that cell; by op and "launches", "class dtype" and how many
#: launches, elements afterwards and elements with the GPU's bits there were.
Record = dict[str, dict[str, dict[str, Any]]]


def add_run(record: Record, run: Mapping[str, Any]) -> None:
    """Add the cells of a run.

    Raises:
        ValueError: it was neither on a GPU nor of kernels on a CPU.
    """
    on_gpu = str(run["environment"].get("gpu", "")).startswith("NVIDIA")
    for verdict in run["verdicts"]:
        cell = verdict["cell"]
        way = GPU if on_gpu and cell["device"] == "cuda" else _WAYS.get(cell["subject"])
        if way is None:
            raise ValueError(f"run: got subject={cell['subject']!r}, need {' or '.join(_WAYS)}, or an NVIDIA GPU")
        if verdict["outcome"] not in _UNASKED:
            name = f"{cell['property']} {cell['dtype']}"
            record.setdefault(cell["op"], {}).setdefault(way, {})[name] = verdict["outcome"]


def add_launches(record: Record, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add rows of launches that were compared with a GPU's."""
    for row in rows:
        if "op" in row:
            counts = [row["launches"], row["elements"], row["equal"]]
            record.setdefault(row["op"], {}).setdefault("launches", {})[f"{row['label']} {row['dtype']}"] = counts


def _cells(outcomes: Iterable[str]) -> str:
    """As "34 of 36": how many are verified, of those that were asked; and what the others are."""
    counts = Counter(outcomes)
    others = [f"{count} {outcome}" for outcome, count in sorted(counts.items()) if outcome != "verified"]
    text = f"{counts['verified']} of {counts.total()}"
    return f"{text} ({', '.join(others)})" if others else text if counts else ""


def _launches(rows: Sequence[Sequence[int]]) -> str:
    launches, elements, equal = (sum(column) for column in zip(*rows, strict=True)) if rows else (0, 0, 0)
    other = f", {elements - equal:,} elements with others" if elements != equal else ""
    return f"{launches:,}{other}" if launches else ""


def kernels_of(op: str) -> str:
    """The directions for which an op has kernels, or the op whose kernels it launches; empty for none."""
    owner = load_op(op).production.kernels
    if owner != op:
        return f"those of {owner}" if owner else ""
    own = [kind for kind in CLASSES if kind.op == op]
    has_tangents = any(kind.must(kind.shape, 4).jvp for kind in own)
    return "forward, backward, jvp" if has_tangents else "forward, backward"


def rows_of(record: Record, rehearsed: Mapping[str, Mapping[str, Sequence[str]]]) -> list[tuple[str, ...]]:
    """A row of the table for each op of the catalog."""
    rows = []
    for op in op_names():
        ways = record.get(op, {})
        outcomes = [outcome for outcome, _ in rehearsed.get(op, {}).values() if outcome not in _UNASKED]
        cells = [_cells(ways.get(way, {}).values()) for way in (INTERPRETED, EXECUTED)]
        cells += [_cells(outcomes), _cells(ways.get(GPU, {}).values())]
        rows.append((op, kernels_of(op), *cells, _launches(list(ways.get("launches", {}).values()))))
    return rows


def table(record: Record, rehearsed: Mapping[str, Mapping[str, Sequence[str]]]) -> str:
    """The table in Markdown."""
    lines = [_HEADINGS, ("---",) * len(_HEADINGS), *rows_of(record, rehearsed)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def with_table(page: str) -> str:
    """The text of the page with the table of both records."""
    record, rehearsed = (json.loads(path.read_text(encoding="utf-8")) for path in (RECORD, REHEARSED))
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n{table(record, rehearsed)}\n\n{END}{rest.partition(END)[2]}"


def main(paths: Sequence[str]) -> None:
    """Add what the files have, and write record and page."""
    record: Record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    for path in map(Path, paths):
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".jsonl":
            add_launches(record, map(json.loads, text.splitlines()))
        else:
            add_run(record, json.loads(text))
    rows = (f"{json.dumps(op)}: {json.dumps(record[op], sort_keys=True)}" for op in sorted(record))
    RECORD.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
