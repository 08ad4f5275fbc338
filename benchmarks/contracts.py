"""Writes docs/contracts.md and its table: every contract, what it allows, its source, and how wide it is on five specs.

python benchmarks/contracts.py      # half a minute of one core
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the text stands beside the tests

import torch

from tests.specs.contracts import page, table


def main() -> int:
    torch.set_num_threads(1)
    docs = Path(__file__).resolve().parents[1] / "docs"
    (docs / "contracts.md").write_text(page())
    (docs / "tables" / "contracts.txt").write_text(table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
