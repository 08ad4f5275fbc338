"""Which commands rehearse, and what is said where they cannot; nothing is built here."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

from opassay.oracles.machine import limits
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


def test_a_command_starts_again_where_a_candidate_asks_for_a_gpu(started: list[str]) -> None:
    with pytest.raises(AssertionError) as error:
        assert torch.empty(3).is_cuda
    deciding._start_for(f"error: {limits.beyond_machine(error.value)}\n  allowed: torch")
    (reason,) = started
    assert reason.startswith("asks for a GPU: AssertionError")
    assert f"{Path(__file__).name}:" in reason
    assert "judge it" not in reason


@pytest.mark.parametrize("text", ["accepted", "rejected: FWD:given", "error: the spec asks for a GPU"])
def test_no_other_verdict_is_made_again(text: str, started: list[str]) -> None:
    deciding._start_for(text)
    assert started == []


def test_a_process_that_rehearses_starts_no_other(started: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environment.LIBRARY, "device.so")
    deciding._start_for(f"error: {limits.ASKS}: AssertionError, at a.py:1: x.is_cuda; judge it by")
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
    def compile_nothing(torch: Path, library: Path) -> None:
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
