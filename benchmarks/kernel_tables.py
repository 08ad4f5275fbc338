"""Writes the tables of docs/tables/kernels.txt: `python benchmarks/kernel_tables.py`, which takes minutes.

Every table there stands between the comment that has its command and the comment `<!-- end -->`.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "tables" / "kernels.txt"
TABLE = re.compile(r"(<!-- (python -m workshop kernels [^\n]*) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(match: re.Match[str]) -> str:
    """One table anew.

    Raises:
        RuntimeError: the command ended neither with 0 nor, because a kernel fails, with 1.
    """
    opening, command, closing = match.groups()
    words = shlex.split(command)[1:]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{command}: exit code {done.returncode}: {done.stderr.strip()[-500:]}")
    return f"{opening}\n{done.stdout.strip()}\n\n{closing}"


if __name__ == "__main__":
    PAGE.write_text(TABLE.sub(table, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
