"""The README's programs run as written, and its tables are the code's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import opassay
from opassay import Outcome, Settings

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def _run(program: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(program, "README.md", "exec"), names)
    return names


def test_the_library_example_gives_the_shape_it_says() -> None:
    program = next(p for p in PROGRAMS if "hessians" in p)
    assert _run(program)["hessians"].shape == (8, 32, 32)


def test_the_example_of_ranks_gives_the_parts_it_says() -> None:
    program = next(p for p in PROGRAMS if "LockstepWorld" in p)
    assert [part.shape for part in _run(program)["parts"]] == [(3, 3)] * 4


def test_the_own_op_example_is_verified() -> None:
    program = next(p for p in PROGRAMS if "OP = declare(" in p)
    op = _run(program)["OP"]
    codes = ("FWD", "VJP", "JVP", "ORD2", "VMAP", "DUAL", "LAYOUT", "PURE", "EMPTY", "DATA")
    verdicts = opassay.verify(op, properties=codes, dtypes=("float32", "bfloat16"), settings=Settings(max_examples=15))
    assert {v.outcome for v in verdicts} == {Outcome.VERIFIED}, [(v.cell.key, v.reason) for v in verdicts]
