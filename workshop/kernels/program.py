"""`python -m workshop.kernels.program QUESTION`: the rows of one table, a line of JSON each.

QUESTION is JSON: {"table": "code" or "traffic", "ops": [...], "dtypes": [...], "architectures": [...], "once": bool}.
This is a process of its own, because Triton decides when it is imported whether kernels are interpreted or compiled.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any


def rows(question: dict[str, Any]) -> Iterator[dict[str, object]]:
    """The rows of a table; see the module."""
    # Imports stand here, because the process must be told what it is before Triton is imported.
    from opassay.oracles.machine import compiling, interpreter

    traffic = question["table"] == "traffic"
    (interpreter.prepare if traffic else compiling.prepare_to_compile)()
    from .classes import first_of_each, select_classes
    from .tables import as_dict, code_rows, traffic_rows

    kinds = select_classes(ops=question["ops"])
    if traffic and question["once"]:
        kinds = first_of_each(kinds)
    if traffic:
        from .booking import Interpreter

        yield from map(as_dict, traffic_rows(kinds, question["dtypes"], Interpreter()))
        return
    yield from map(as_dict, code_rows(kinds, question["dtypes"], question["architectures"], once=question["once"]))


def print_rows() -> None:
    """Prints the rows as they come."""
    for row in rows(json.loads(sys.argv[1])):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    print_rows()
