"""`opassay judge --device rehearsal`: files that ask for a GPU are judged as they stand, right and wrong ones."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

import opassay
from opassay.oracles.verdicts.verdict import Outcome
from opassay.properties.rehearsal.environment import LIBRARY, NAME

pytestmark = [
    pytest.mark.rehearsal,
    pytest.mark.skipif(LIBRARY not in os.environ, reason="tests of python -m tests.rehearsal -m pytest"),
]
if TYPE_CHECKING or LIBRARY in os.environ:  # the file asks for a GPU when it is imported
    from tests.properties.rehearsal.said_cuda import RIGHT, WRONG
else:
    RIGHT = WRONG = ()
_FILE = Path(__file__).with_name("said_cuda.py")
_SPEC = "import torch\ndef reference(x):\n    return 2 * x\ndef inputs():\n    return (torch.randn(3, 40{}),)\n"


def _double(x: Tensor) -> Tensor:
    return 2 * x


def _names(function: Callable[[Tensor], Tensor]) -> str:
    return function.__name__


@pytest.mark.parametrize("candidate", RIGHT, ids=_names)
def test_host_code_that_asks_for_a_gpu_is_accepted(candidate: Callable[[Tensor], Tensor]) -> None:
    questions = ["FWD:given", "FWD:wide", "CALLS:again", "LAYOUT:strides", "SIZE:sizes"]
    inputs = (torch.randn(3, 40, device="cuda"),)
    judgement = opassay.judge(candidate, _double, inputs, questions=questions, compiled="sm_90")
    assert judgement.verdict == "accepted", str(judgement)
    assert judgement.execution[0] == f"on the {NAME}"


@pytest.mark.parametrize("candidate", WRONG, ids=_names)
def test_host_code_with_a_fault_is_rejected(candidate: Callable[[Tensor], Tensor]) -> None:
    inputs = (torch.randn(3, 40, device="cuda"),)
    judgement = opassay.judge(candidate, _double, inputs, questions=["FWD:given"], compiled="sm_90")
    assert judgement.verdict == "rejected", str(judgement)
    assert ("race" in str(judgement)) == (candidate.__name__ == "racing")


@pytest.mark.parametrize(
    ("name", "verdict", "outcome"),
    [
        ("wide", "accepted", Outcome.VERIFIED),
        ("narrow", "rejected", Outcome.FAIL),
        ("silent", "rejected", Outcome.FAIL),
        ("computes_on_the_host", "weak", Outcome.UNSUPPORTED),
        ("refuses", "accepted", Outcome.REFUSED),
    ],
)
def test_rows_beyond_32_bits_are_on_the_device(name: str, verdict: str, outcome: Outcome) -> None:
    kernels = importlib.import_module("tests.properties.candidates.wrapping_kernels")
    judgement = opassay.judge(
        getattr(kernels, name), kernels.reference, (torch.randn(3, 96, device="cuda"),), seed=0,
        questions=["FWD:given", "FAR"], compiled="sm_90",
    )  # fmt: skip
    assert judgement.verdict == verdict, str(judgement)
    assert [each.outcome for each in judgement.findings if each.question == "FAR"] == [outcome]


def _judge(candidate: str, spec: Path, *words: str, rehearses: bool = False) -> tuple[int, dict[str, object]]:
    """The exit code and the record of a command, of a process that does not rehearse unless it is told to."""
    variables = {name: value for name, value in os.environ.items() if rehearses or name not in (LIBRARY, "PYTHONPATH")}
    command = [sys.executable, "-m", "opassay", "judge", candidate, "--spec", str(spec), "--json", "-k", "FWD:given"]
    done = subprocess.run(
        [*command, *words], env=variables, capture_output=True, text=True, timeout=600, check=False,
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize(("name", "code"), [("guarded", 0), ("tripled", 1)])
@pytest.mark.parametrize("way", ["--compiled", "--device=rehearsal"])
def test_a_command_takes_the_device_if_it_must(name: str, code: int, way: str, tmp_path: Path) -> None:
    (tmp_path / "spec.py").write_text(_SPEC.format(""))
    status, record = _judge(f"{_FILE}:{name}", tmp_path / "spec.py", way)
    assert status == code, record
    executed = record["executed"]
    assert isinstance(executed, list)
    because = ", because it asks for a GPU: AssertionError" if way == "--compiled" else ""
    assert executed[0].startswith(f"on the {NAME}{because}")
    assert "said_cuda.py" in executed[0] or not because


def test_a_spec_that_asks_for_a_gpu_takes_the_device_too(tmp_path: Path) -> None:
    (tmp_path / "spec.py").write_text(_SPEC.format(", device='cuda'"))
    code, record = _judge(f"{tmp_path / 'spec.py'}:reference", tmp_path / "spec.py", "--compiled")
    assert (code, record["verdict"]) == (0, "accepted")
    assert NAME in str(record["executed"])


def test_a_file_that_launches_no_kernel_takes_the_device_to_see_whether_it_does_there(tmp_path: Path) -> None:
    (tmp_path / "spec.py").write_text(_SPEC.format(""))
    code, record = _judge(f"{tmp_path / 'spec.py'}:reference", tmp_path / "spec.py", "--compiled")
    because = "because it launches no kernel without a GPU"
    assert (code, record["executed"]) == (0, [f"on the {NAME}, {because}"])


def test_what_the_device_lacks_is_no_fault_of_a_candidate(tmp_path: Path) -> None:
    kernel = "def kernel(x):\n    return 2 * x * torch._C._cuda_getBus(0)\n"
    (tmp_path / "spec.py").write_text(_SPEC.format("") + kernel)
    code, record = _judge(f"{tmp_path / 'spec.py'}:kernel", tmp_path / "spec.py", "--device=rehearsal")
    assert (code, record["verdict"]) == (3, "error")
    assert "the rehearsal device has not all of a GPU: AttributeError" in str(record["error"])


def test_a_case_is_asked_again_on_the_device(tmp_path: Path) -> None:
    (tmp_path / "spec.py").write_text(_SPEC.format(""))
    code, _ = _judge(f"{_FILE}:tripled", tmp_path / "spec.py", "--device=rehearsal", f"--report-dir={tmp_path / 'r'}")
    assert code == 1
    (case,) = (tmp_path / "r" / "cases").glob("*.json")
    assert "--device=rehearsal" in (tmp_path / "r" / "run.json").read_text()
    variables = {name: value for name, value in os.environ.items() if name not in (LIBRARY, "PYTHONPATH")}
    command = [sys.executable, "-m", "opassay", "replay", str(case), "--op", f"{_FILE}:tripled"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"executed: on the {NAME}" in done.stdout
