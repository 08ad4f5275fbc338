"""The campaign of `benchmarks/strange_kernels.py`: a right kernel is accepted, and one with a fault is rejected."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from opassay.oracles.machine.ptx.cuda_headers import include_folders
from opassay.oracles.machine.ptx.nvrtc import library_paths
from tests.programs import loaded

_CAMPAIGN = loaded(Path(__file__).parents[3] / "benchmarks" / "strange_kernels.py")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "case"),
    _CAMPAIGN.CASES,
    ids=[f"{case.kernel}-{case.family}-{case.contract}" for _, case in _CAMPAIGN.CASES],
)
def test_a_strange_kernel_has_its_verdict(file: str, case: object, monkeypatch: pytest.MonkeyPatch) -> None:
    if file.startswith(("cuda", "header", "tilelang")) and not library_paths():
        pytest.skip("NVRTC is not installed: opassay[cuda-source]")
    if file.startswith("header") and not any((folder / "cub").is_dir() for folder in include_folders()):
        pytest.skip("CUDA's headers are not installed: opassay[cuda-source]")
    if file.startswith("triton") and importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    if file.startswith("tilelang") and importlib.util.find_spec("tilelang") is None:
        pytest.skip("TileLang is not installed")
    monkeypatch.setenv("OPASSAY_PTX_ARCHITECTURE", "sm_80")
    row, right = _CAMPAIGN.judge(file, case)
    assert right, row
