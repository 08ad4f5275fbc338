"""`compiled=`: somebody's kernel judged in the caller's process, where what a compiler made of it is executed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import opassay


def _same(x: torch.Tensor) -> torch.Tensor:
    return x


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_kernels_of_this_process_are_judged_as_ptx_and_triton_is_left_as_it_was() -> None:
    command = [sys.executable, "-W", "ignore", "-m", "tests.properties.compiled_candidates"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert answers == {
        "right": ["accepted", [], ["OA100", "OA100"], ["_double: 2 launches without a fault"]],
        "beyond its operands": [
            "rejected", ["OA112", "OA112"], ["OA112", "OA112"], ["_double: 0 launches without a fault"],
        ],
        "restored": True,
    }  # fmt: skip


def test_an_architecture_that_the_machine_has_not_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^compiled=sm_70: need one of sm_80, sm_90, sm_100$"):
        opassay.judge(_same, _same, (torch.ones(2),), compiled="sm_70")
    with pytest.raises(ValueError, match=r"^compiled=sm_70: need one of sm_80, sm_90, sm_100$"):
        opassay.verify_kernel(_same, _same, {"x": ("n",)}, compiled="sm_70")


def test_compiled_kernels_are_those_of_the_cpu() -> None:
    with pytest.raises(ValueError, match=r"^device=cuda: got compiled=sm_90, too, whose kernels"):
        opassay.verify_kernel(_same, _same, {"x": ("n",)}, device="cuda", compiled="sm_90")
