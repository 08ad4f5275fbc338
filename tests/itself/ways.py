"""The ways to judge a function of torch by itself; each gives what is red, one line a question."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _pytest.outcomes import Skipped

import opassay
from opassay.oracles.verdicts.verdict import Verdict
from opassay.properties.declaring.shapes import Shapes
from opassay.properties.summary import is_fine
from opassay.pytest import assert_verified, questions

from . import functions
from .functions import FUNCTIONS

_REPOSITORY = Path(__file__).resolve().parents[2]
#: Extents of the inputs of `judge`, where a symbol may have any.
_EXTENT = 12


def judge(name: str) -> list[str]:
    """`opassay.judge` at one call with numbers."""
    function = FUNCTIONS[name].function
    judgement = opassay.judge(function, function, _arguments(name))
    if judgement.verdict == "accepted" or (judgement.verdict == "weak" and judgement.weaknesses):
        return []
    wrong = [finding.text for finding in judgement.causes] or [judgement.error]
    return [f"{judgement.verdict}: {'; '.join(wrong)[:300]}"]


def _arguments(name: str) -> tuple[Any, ...]:
    row = FUNCTIONS[name]
    shapes = Shapes.of(row.shapes, row.sizes)
    extents = {symbol: max(shapes.sizes.get(symbol, (_EXTENT,))) for symbol in shapes.symbols}
    generator = torch.Generator().manual_seed(0)
    arguments: list[Any] = []
    for argument, shape in shapes.at(extents).items():
        if argument not in shapes.integers:
            arguments.append(torch.randn(shape, generator=generator).to(getattr(torch, row.dtype)))
            continue
        least, below = shapes.range_of(argument, extents)
        numbers = torch.randint(least, below, shape, generator=generator)
        arguments.append(numbers if shapes.is_tensor(argument) else int(numbers))
    return tuple(arguments)


def verify_kernel(name: str) -> list[str]:
    """`opassay.verify_kernel` with its defaults."""
    row = FUNCTIONS[name]
    offer = opassay.Offer(max_order=row.order)
    verdicts = opassay.verify_kernel(
        row.function, row.function, row.shapes, sizes=row.sizes, offer=offer, dtypes=(row.dtype,)
    )
    red = _red(verdicts)
    return red or ([] if opassay.ok(verdicts) else ["nothing is verified"])


def in_pytest(name: str) -> list[str]:
    """`assert_verified` of each question, as a test of its own would call it."""
    op, red = getattr(functions, name), []
    for parameter in questions(op, dtypes=(FUNCTIONS[name].dtype,)):
        try:
            assert_verified(op, *parameter.values)
        except Skipped as reason:
            if not str(reason):
                red.append(f"{parameter.id}: skipped without a reason")
        except AssertionError as card:
            red.append(f"{parameter.id}: {' '.join(str(card).split())[:300]}")
    return red


def run(name: str) -> list[str]:
    """`opassay run --op` of its declaration: every property, in its dtype."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "opassay", "run", "--op", f"tests.itself.functions:{name}"]
        command += ["--dtype", FUNCTIONS[name].dtype, "--profile", "brief", "--report-dir", folder]
        environment = {**os.environ, "PYTHONPATH": str(_REPOSITORY)}
        done = subprocess.run(
            command, cwd=_REPOSITORY, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
        records = Path(folder, "run.json")
        cells = json.loads(records.read_text())["verdicts"] if records.exists() else []
    red = [f"{cell['cell']}: {cell['outcome']}, {cell['reason'][:200]}" for cell in cells if cell["outcome"] in _BAD]
    return red or (
        [] if done.returncode == 0 else [f"exit code {done.returncode}: {(done.stdout + done.stderr)[-300:]}"]
    )


_BAD = ("fail", "unstable", "error", "crash", "timeout", "refused")


def _red(verdicts: list[Verdict]) -> list[str]:
    return [f"{v.cell.property}: {v.outcome}, {v.reason[:200]}" for v in verdicts if not is_fine(v)]


#: By name: (name of a function) -> what is red.
WAYS: dict[str, Callable[[str], list[str]]] = {
    "judge": judge,
    "verify_kernel": verify_kernel,
    "pytest": in_pytest,
    "run": run,
}
