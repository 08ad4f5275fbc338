"""What was rehearsed with which outcome, and the table docs/tables/rehearsed.txt.

`python -m tests.rehearsal.record RUN.json...` adds the verdicts of runs under the rehearsal to the record beside this
module and writes the table of the page; without runs it writes the table alone.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

RECORD = Path(__file__).with_name("record.json")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "tables" / "rehearsed.txt"
BEGIN, END = "<!-- python -m tests.rehearsal.record -->\n", "<!-- end -->"
#: What the device is called in the environment of a run.
NAME = "rehearsal device (host memory)"
#: Outcomes in the words of the table. What held on the rehearsal device is rehearsed, and nothing more.
WORDS = {"verified": "rehearsed", "weak": "weak", "fail": "failed", "unstable": "failed", "unsupported": "not asked"}
_COLUMNS = ("rehearsed", "weak", "failed", "not decided", "not asked")

#: By op, and by "property dtype device fabric": outcome and date.
Record = dict[str, dict[str, list[str]]]


def add(record: Record, run: Mapping[str, Any]) -> None:
    """Add the verdicts of a run; a cell that was rehearsed before has the later outcome.

    Raises:
        ValueError: the run is not one under the rehearsal.
    """
    device = run["environment"].get("gpu")
    if device != NAME:
        raise ValueError(f"run: got gpu={device!r}, need {NAME!r}")
    words = run["command"]
    fabric = words[words.index("--fabric") + 1] if "--fabric" in words else "host"
    for verdict in run["verdicts"]:
        cell = verdict["cell"]
        if verdict["outcome"] == "not run" or cell["subject"] != "opassay":
            continue
        name = f"{cell['property']} {cell['dtype']} {cell['device']} {fabric}"
        record.setdefault(cell["op"], {})[name] = [verdict["outcome"], run["started"][:10]]


def lines(record: Record) -> Iterable[str]:
    """The table, a row for each op, and the cells that are neither rehearsed nor unasked."""
    yield "| op | " + " | ".join(_COLUMNS) + " | last |\n"
    yield "| --- |" + " --- |" * (len(_COLUMNS) + 1) + "\n"
    total: Counter[str] = Counter()
    others: list[str] = []
    for op in sorted(record):
        counts = Counter(WORDS.get(outcome, "not decided") for outcome, _ in record[op].values())
        total += counts
        last = max(date for _, date in record[op].values())
        yield f"| {op} | " + " | ".join(str(counts[word]) for word in _COLUMNS) + f" | {last} |\n"
        others += [
            f"{op}::{name.split()[0]} ({', '.join(name.split()[1:])}): {outcome}"
            for name, (outcome, _) in sorted(record[op].items())
            if outcome not in ("verified", "unsupported")
        ]
    yield "| all | " + " | ".join(str(total[word]) for word in _COLUMNS) + " | |\n"
    yield "\nCells that are neither rehearsed nor unasked:\n\n" if others else ""
    yield from (f"- {each}\n" for each in others)


def read_record() -> Record:
    """The record beside this module."""
    record: Record = json.loads(RECORD.read_text(encoding="utf-8"))
    return record


def with_table(page: str, record: Record) -> str:
    """The text of the page with the table of a record."""
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n{''.join(lines(record))}\n{END}{rest.partition(END)[2]}"


def main(paths: list[str]) -> None:
    """Add the runs, write record and page."""
    record = read_record() if RECORD.exists() else {}
    for path in paths:
        add(record, json.loads(Path(path).read_text(encoding="utf-8")))
    rows = (f"{json.dumps(op)}: {json.dumps(record[op], sort_keys=True)}" for op in sorted(record))
    RECORD.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), record), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
