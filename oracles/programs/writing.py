"""The text of a program: what is wrong, the values, the subject as `op`, and the lines that show the failure."""

from __future__ import annotations

import platform

import torch

from ..op.declaration import Op
from ..op.script import NoProgram, Script
from ..verdicts.verdict import Cell, clean
from .naming import named
from .values import HELPERS, literal

#: A program with more characters is not written. The program of a large sample that did not shrink would consist of
#: digits, and the case file has these already.
LONGEST = 2**18


def program(op: Op, cell: Cell, script: Script, title: str, case_id: str) -> str:
    """A program that needs torch and the subject alone.

    Args:
        op, cell: the op, and the cell that failed, whose subject is called. script: what it shows.
        title: what is wrong. case_id: the name of the case file.

    Raises:
        NoProgram: the subject has no name, or the text would be longer than `LONGEST`.
    """
    subject = named(op.implementation(cell.subject))
    body = [*subject.lines, "", *(f"{name} = {literal(value)}" for name, value in script.values.items())]
    body += ["", *script.lines]
    text = "\n".join(body)
    needed = [helper for word, helper in HELPERS.items() if word in text]
    imports = [line for line in dict.fromkeys((*subject.imports, *script.imports)) if line != "import torch"]
    whole = "\n".join(
        [
            f"# {_one_line(title)}",
            f"# {_one_line(cell.key)}, case {case_id}; written with torch {torch.__version__}, "
            f"Python {platform.python_version()}.",
            "# Exit status: 1 while the fault is there, 0 once it is gone.",
            "import sys",
            "from math import inf, nan",
            "",
            "import torch",
            *imports,
            "",
            # The order of a sum, and so its last bits, may depend on how many threads share it.
            f"torch.set_num_threads({torch.get_num_threads()})",
            "",
            *needed,
            text,
            "",
        ]
    )
    if len(whole) > LONGEST:
        raise NoProgram(f"The program would have {len(whole)} characters, most of them digits of its input.")
    return whole


def without(reason: str, replay: str) -> str:
    """What stands in place of a program: why there is none, and the command that repeats the failure."""
    return f"# No program: {_one_line(reason)}\n# {replay}"


def _one_line(text: str) -> str:
    return " ".join(clean(text[:1000]).split())
