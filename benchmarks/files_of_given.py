"""Files of opassay in which a function runs while FWD:given of a right softmax is asked, in the process that judges.

A reader who follows the simplest question has to open these files, and no others. Bodies of modules do not count.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from measurement import Row, line

import opassay
from opassay import judge
from opassay.properties.candidates.judgement import Ruling


def _reference(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def _kernel(x: torch.Tensor) -> torch.Tensor:
    powers = torch.exp(x - x.amax(-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True)


def files() -> list[str]:
    """The files, from the root of the package, in the order of their first call."""
    called: dict[str, None] = {}

    def note(frame: FrameType, event: str, _arg: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            called.setdefault(frame.f_code.co_filename)

    arguments = (torch.randn(8, 32),)
    sys.setprofile(note)
    try:
        judgement = judge(_kernel, _reference, arguments, questions=("GIVEN",))
    finally:
        sys.setprofile(None)
    if judgement.verdict is not Ruling.ACCEPTED:
        raise AssertionError(f"a right softmax is not accepted: {judgement}")
    folder = Path(opassay.__file__).resolve().parents[1]
    within = [Path(name).relative_to(folder) for name in called if name.startswith(f"{folder}{os.sep}")]
    return [str(path) for path in within if path.parts[0] != "benchmarks"]


if __name__ == "__main__":
    names = files()
    print("\n".join(names))
    print(line(Row("files_of_given", "files in which a function runs", float(len(names)), "files")))
