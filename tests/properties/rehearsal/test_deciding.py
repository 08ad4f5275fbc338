"""Which commands rehearse, and what is said where they cannot; nothing is built here."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from opassay.properties.candidates.host.module_files import GivenError, problem_of
from opassay.properties.candidates.judging import judge
from opassay.properties.rehearsal import building, deciding, environment
from opassay.properties.rehearsal.__main__ import main as rehearse
from opassay.reports.cli.main import main


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Why a command was started again, each time."""
    reasons: list[str] = []
    monkeypatch.setattr(deciding, "start_again", reasons.append)
    monkeypatch.delenv(environment.LIBRARY, raising=False)
    return reasons


def _kernel(x: Tensor) -> Tensor:
    if x.is_cuda:
        scale = 2
    return scale * x


@pytest.mark.parametrize(
    ("candidate", "why"),
    [
        (lambda x: 2 * x.cuda(), "asks for a GPU: AssertionError: Torch not compiled with CUDA"),
        (_kernel, "raises without a GPU: raised UnboundLocalError"),
        (lambda x: 2 * x, "launches no kernel without a GPU"),
    ],
)
def test_a_command_starts_again_where_a_gpu_would_have_made_a_difference(
    candidate: Callable[[Tensor], Tensor], why: str, started: list[str]
) -> None:
    judgement = judge(candidate, lambda x: 2 * x, (torch.randn(3),), questions=["FWD:given"])
    assert deciding.rehearse_instead(lambda: judgement) is judgement
    (reason,) = started
    assert reason.startswith(why)
    assert "judge it" not in reason


def test_a_command_starts_again_where_a_file_of_the_spec_asks_for_a_gpu(started: list[str], tmp_path: Path) -> None:
    (tmp_path / "spec.py").write_text("import torch\nx = torch.zeros(3).cuda()\n")
    with pytest.raises(GivenError, match=r"spec\.py asks for a GPU, and there is none here"):
        deciding.rehearse_instead(lambda: problem_of(str(tmp_path / "spec.py"), 0))
    assert started[0].endswith("spec.py:2: x = torch.zeros(3).cuda()")


def test_a_fault_that_a_gpu_does_not_explain_stands(started: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    questions = ["FWD:given", "SPECIAL:nan"]
    judgement = judge(lambda x: 3 * x, lambda x: 2 * x, (torch.randn(3),), questions=questions)
    deciding.rehearse_instead(lambda: judgement)
    deciding.rehearse_instead(
        lambda: replace(judge(lambda x: 2 * x, lambda x: 2 * x, (torch.randn(3),)), execution=("k",))
    )
    assert started == []
    monkeypatch.setenv(environment.LIBRARY, "device.so")  # a process that rehearses starts no other
    deciding.rehearse_instead(lambda: judge(lambda x: x.cuda(), lambda x: x, (torch.randn(3),)))
    assert started == []


def test_without_a_compiler_the_command_says_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(building, "torch_folder", lambda: tmp_path)
    with pytest.raises(building.BuildError, match=r"there is no g\+\+"):
        building.build(tmp_path / "cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        rehearse(["mine.py"])
    assert ended.value.code == 2
    assert "there is no g++" in capsys.readouterr().err


def test_a_compiler_that_refuses_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "g++").write_text("#!/bin/sh\necho no such header >&2\nexit 1\n")
    (tmp_path / "g++").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(building.BuildError, match=r"refuses(.|\n)*no such header"):
        building.build(tmp_path / "cache")
    assert not [*(tmp_path / "cache").glob("*.so")]


def test_a_torch_for_cuda_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libtorch_cuda.so").write_bytes(b"")
    monkeypatch.setattr(building, "torch_folder", lambda: tmp_path)
    with pytest.raises(building.BuildError, match="built for CUDA"):
        building.build(tmp_path / "cache")


def test_every_text_of_the_device_decides_what_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_nothing(torch: Path, options: list[str], text: str, library: Path) -> None:
        library.write_bytes(b"")

    monkeypatch.setattr(building, "_compile", compile_nothing)
    monkeypatch.setattr(building, "SOURCE", tmp_path / "device.cpp")
    (tmp_path / "device.cpp").write_text("one")
    (tmp_path / "guard.h").write_text("one")
    first = building.build(tmp_path)
    assert building.build(tmp_path) == first
    (tmp_path / "guard.h").write_text("two")
    assert building.build(tmp_path) != first


def test_the_environment_names_the_library_and_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "build", lambda: Path("/cache/device.so"))
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    variables = environment.environment("asks for a GPU")
    assert variables[environment.LIBRARY] == "/cache/device.so"
    assert variables["PYTHONPATH"] == f"{environment.START}{os.pathsep}/mine"
    assert "TRITON_INTERPRET" not in variables
    monkeypatch.setattr(os, "environ", variables)
    assert environment.place_of_work() == [f"on the {environment.NAME}, because it asks for a GPU"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--interpret"], "got rehearsal, and --interpret, too"),
        (["--time"], "got --device rehearsal, too"),
        ([], "got rehearsal in a process that has imported torch"),
    ],
)
def test_what_the_device_is_not_taken_with(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(environment.LIBRARY, raising=False)
    assert "torch" in sys.modules
    assert main(["judge", f"{__file__}:main", "--spec", f"{__file__}:rehearse", "--device", "rehearsal", *words]) == 2
    assert message in capsys.readouterr().err
