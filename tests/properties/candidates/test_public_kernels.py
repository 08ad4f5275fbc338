"""The table of `benchmarks/public_kernels.py`: which kernels it has, and what comes where a package is absent."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.programs import loaded

_FOLDER = Path(__file__).parents[3] / "benchmarks"
_TABLE: Any = loaded(_FOLDER / "public_kernels.py")
_ROW = sys.modules["public.row"]


def _judged(monkeypatch: pytest.MonkeyPatch, candidate: Any, fault: str = "") -> tuple[str, str]:
    """The verdict on a row of this process, as it has no device, and what is said of it."""
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
    call = _ROW.Call(candidate, lambda x: 2 * x, (torch.randn(3, 4),), fault=fault)
    judgement, why, _ = _TABLE.judge_row(_ROW.Row("none", "double", lambda: call), False)
    return str(judgement.verdict), why or _TABLE.describe(judgement)


def test_every_kernel_has_a_name_of_its_own_and_there_are_sixty() -> None:
    names = [(each.package, each.name) for each in _ROW.ROWS]
    assert len({*names}) == len(names) >= 60
    assert len({package for package, _ in names}) >= 10


def test_a_package_that_is_absent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_ROW.SOURCES, "/nowhere")
    row = next(each for each in _ROW.ROWS if each.package == "applied-ai")
    judgement, why, call = _TABLE.judge_row(row, False)
    assert (judgement, call) == (None, None)
    assert why == "not run: ModuleNotFoundError: OPASSAY_PUBLIC_SOURCES=/nowhere: need a folder with applied-ai"
    with pytest.raises(ModuleNotFoundError):
        _ROW.load("no_such_package.part")


def test_rows_are_chosen_by_words() -> None:
    assert _TABLE.choose([]) == _ROW.ROWS
    assert [each.name for each in _TABLE.choose(["tutorials soft"])] == ["softmax"]


def test_a_right_kernel_is_accepted_and_a_wrong_one_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    assert _judged(monkeypatch, lambda x: x + x)[0] == "accepted"
    assert _judged(monkeypatch, lambda x: x + x.abs()) == ("rejected", "OA101 FWD:given, CALLS:again")


def test_what_is_wanted_of_a_row_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = {"accepted": ("", 0), "rejected": ("a sign", 0), "weak": ("", 1)}
    for verdict, (fault, code) in outcomes.items():
        judgement = SimpleNamespace(verdict=verdict, causes=(), weaknesses=("few",), error="", report=lambda **_: "")
        call = _ROW.Call(lambda x: x, lambda x: x, (), fault=fault)
        monkeypatch.setattr(_TABLE, "judge_row", lambda *_, row=(judgement, "", call): row)
        monkeypatch.setattr(_ROW, "ROWS", [_ROW.Row("one", "kernel", lambda: None)])
        monkeypatch.setattr(_TABLE, "ROWS", _ROW.ROWS)
        monkeypatch.setattr(sys, "argv", ["public_kernels.py", "--here", "one"])
        assert _TABLE.main() == code
        assert ("UNEXPECTED" in capsys.readouterr().out) == bool(code)
