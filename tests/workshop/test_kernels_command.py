"""`python -m workshop kernels`: its tables, its exit codes, and what it says where Triton is not installed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.workshop.calling import workshop
from workshop.commands import kernels
from workshop.commands.kernel_tables import code_table, traffic_table

CODE: dict[str, Any] = {
    "table": "code", "op": "softmax", "label": "rows of 768", "direction": "forward", "kernel": "softmax_forward",
    "dtypes": "float32", "configuration": "BLOCK=1024 warps=8", "architecture": "sm_90", "registers": 40, "stack": 0,
    "spills": 0, "shared": 1024, "blocks": 6, "warps": 48, "loads": {"16": 4}, "stores": {"4": 1, "16": 4},
    "narrow": 0.0, "latency_cover": 0.5, "dense": True, "faults": [],
}  # fmt: skip
TRAFFIC: dict[str, Any] = {
    "table": "traffic", "op": "softmax", "label": "rows of 768", "direction": "backward", "dtype": "float32",
    "shape": [32, 768], "kernels": ["softmax_backward"], "must": 300, "booked": 400, "limit": 1.05, "why": "",
    "workspace": 0.0, "faults": ["1.333 times the bytes that must move; need 1.05 at most"],
}  # fmt: skip
MISSING: dict[str, Any] = {
    "table": "missing", "op": "trace", "label": "8192x8192", "direction": "forward", "dtype": "float32", "faults": []
}  # fmt: skip


@pytest.fixture
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "is_installed", lambda module: True)


def _answers(monkeypatch: pytest.MonkeyPatch, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    commands: list[dict[str, Any]] = []

    def answer(question: dict[str, Any]) -> list[dict[str, Any]]:
        commands.append(question)
        return list(rows)

    monkeypatch.setattr(kernels, "_rows", answer)
    return commands


@pytest.mark.usefixtures("_installed")
def test_the_table_of_machine_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    commands = _answers(monkeypatch, CODE, MISSING)
    assert workshop(["kernels", "softmax", "--family", "linalg", "--arch", "sm_90"]) == 0
    assert commands == [
        {
            "table": "code", "ops": ["softmax", "trace"], "dtypes": ("float32", "bfloat16", "float16"),
            "architectures": ("sm_90",), "once": False,
        }
    ]  # fmt: skip
    out = capsys.readouterr().out
    assert "4 of 16 B  1 of 4 B + 4 of 16 B  50%    pass" in out
    assert "1 kernels compiled, 0 failed\nno kernels: trace forward\n" in out


@pytest.mark.usefixtures("_installed")
def test_a_kernel_that_fails_ends_the_command_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _answers(monkeypatch, TRAFFIC)
    assert workshop(["kernels", "--traffic"]) == 1
    assert "1.333  1.050  75%    0.00%      1.333 times the bytes that must move" in capsys.readouterr().out


@pytest.mark.usefixtures("_installed")
def test_a_declared_op_without_kernels_ends_the_command_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _answers(monkeypatch, {**MISSING, "faults": ["no kernel is launched"]})
    assert workshop(["kernels"]) == 1
    assert "trace 8192x8192 forward float32: no kernel is launched" in capsys.readouterr().out


@pytest.mark.usefixtures("_installed")
def test_rows_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _answers(monkeypatch, CODE)
    assert workshop(["kernels", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [CODE]


def test_without_triton_the_command_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernels, "is_installed", lambda module: False)
    assert workshop(["kernels"]) == 2
    assert 'Triton is not installed, which compiles and interprets kernels; pip install "opassay[triton]"' in (
        capsys.readouterr().err
    )


def test_an_unknown_op_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert workshop(["kernels", "sofmax"]) == 2
    assert "unknown op: got op='sofmax', need one of softmax, log_softmax" in capsys.readouterr().err


@pytest.mark.usefixtures("_installed")
def test_a_process_that_breaks_is_an_error_of_the_tool(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernels, "_PROGRAM", "workshop.kernels.nothing")
    assert workshop(["kernels"]) == 3
    assert "the process that judges kernels ended with 1" in capsys.readouterr().err


def test_tables_in_markdown() -> None:
    lines = traffic_table([TRAFFIC]).markdown()
    assert lines[0].startswith("| shape class | direction |")
    assert lines[1].startswith("| --- | --- |")
    assert lines[2].startswith("| softmax rows of 768 | backward | float32 | 32x768 | softmax_backward | 300 | 400 |")
    assert lines[-1] == "- 1 directions interpreted, 1 failed"
    assert code_table([]).lines() == ["0 kernels compiled, 0 failed"]
