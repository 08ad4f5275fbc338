"""Functions of Triton's language and of libdevice, each in the smallest kernel that calls it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .contender import Contender, read_table

_TABLE = Path(__file__).parent / "tables" / "triton.txt"


def contenders() -> Iterator[Contender]:
    from . import triton_kernels as kernels

    lines = []
    for line in _TABLE.read_text().strip().splitlines():
        name, _, meaning = line.partition("|")
        letter = "p" if "(p" in meaning or ", p" in meaning else "u" if "(u" in meaning else "x"
        lines.append(f"launch({name.strip()}, {letter}) | {meaning.strip()}")
    names: dict[str, Any] = {"launch": kernels.launch, "tl": kernels.language, "libdevice": kernels.libdevice}
    return read_table("triton", "\n".join(lines), names, compiled="sm_80")
