"""Triton kernels in somebody's pytest, on a machine without a GPU: compiled, interpreted, or neither."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

import opassay
from opassay import Settings, custom_kernel, kernel_of_op
from opassay.pytest import assert_conforms, questions

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")

KERNELS = """
import torch, triton, triton.language as tl


@triton.jit
def scaled(X, Y, n, FORGOTTEN: tl.constexpr, BEYOND: tl.constexpr, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + k, mask=k < n + BEYOND)
    tl.store(Y + k, x * 2, mask=k < n - FORGOTTEN)


def launched(x, forgotten=0, beyond=0):
    x = x.contiguous()
    y = torch.zeros_like(x)
    try:
        scaled[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), FORGOTTEN=forgotten, BEYOND=beyond, BLOCK=64)
    except IndexError:
        pass
    return y


def right(x): return launched(x)
def tail(x): return launched(x, forgotten=1)
def outside(x): return launched(x, beyond=1)
def reference(x): return x * 2
"""
THEIRS = """
import opassay, pytest, torch
from opassay.pytest import assert_conforms, assert_verified, questions
from kernels import outside, reference, right, tail

FORWARD = {"offer": opassay.Offer(max_order=0), "settings": opassay.Settings("brief", max_examples=3, simpler=False)}
RIGHT, TAIL, OUTSIDE = (
    opassay.custom_kernel(each, reference, {"x": ("N", "n")}, compiled="sm_90", **FORWARD)
    for each in (right, tail, outside)
)
PLAIN = opassay.custom_kernel(right, reference, {"x": ("N", "n")}, properties=("FWD", "CALLS"), **FORWARD)
X = torch.ones(5, 7)


@pytest.mark.parametrize("question", questions(RIGHT))
def test_right(question): assert_verified(RIGHT, question)
@pytest.mark.parametrize("question", questions(TAIL, ("FWD",)))
def test_tail(question): assert_verified(TAIL, question)
@pytest.mark.parametrize("question", questions(OUTSIDE, ("FWD",)))
def test_outside(question): assert_verified(OUTSIDE, question)
@pytest.mark.parametrize("question", questions(PLAIN))
def test_plain(question): assert_verified(PLAIN, question)
@pytest.mark.parametrize("question", questions(PLAIN, ("FWD",)))
def test_compiled_here(question): assert_verified(PLAIN, question, compiled="sm_90")
def test_line(): assert_conforms(right, reference, X, compiled="sm_90")
def test_wrong_line(): assert_conforms(tail, reference, X, compiled="sm_90")
def test_outside_line(): assert_conforms(outside, reference, X, compiled="sm_90")
def test_line_alone(): assert_conforms(right, reference, X)
def test_output(): assert_conforms(right(X), reference, X)
"""
SENTENCE = "has Triton kernels, and there is no GPU here: add --compiled or --interpret (in Python compiled='sm_90')"


def ask(folder: Path, *words: str, **variables: str) -> str:
    """What a command says in a folder that has the two files."""
    (folder / "kernels.py").write_text(KERNELS)
    (folder / "test_theirs.py").write_text(THEIRS)
    others = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, timeout=200, check=False,
        env={**others, **variables},
    )  # fmt: skip
    return done.stdout + done.stderr


def results(text: str) -> dict[str, str]:
    """By the id of a test what pytest says of it."""
    rows: list[Sequence[str]] = [line.split() for line in text.splitlines() if line.startswith("test_theirs.py::")]
    return {row[0].removeprefix("test_theirs.py::"): row[1] for row in rows}


def test_kernels_are_compiled_for_each_question_of_a_test(tmp_path: Path) -> None:
    text = ask(tmp_path, "pytest", "-v", "-p", "no:cacheprovider", "test_theirs.py")
    answers = results(text)
    right = {name: result for name, result in answers.items() if name.startswith("test_right")}
    assert set(right) == {
        f"test_right[{q}-float32]" for q in ("FWD", "VJP", "LAYOUT", "SPECIAL", "DET", "EMPTY", "DATA")
    }
    assert right.pop("test_right[VJP-float32]") == "SKIPPED"
    assert set(right.values()) == {"PASSED"}
    assert answers["test_compiled_here[FWD-float32]"] == answers["test_line"] == "PASSED"
    wrong = {"test_tail[FWD-float32]", "test_outside[FWD-float32]", "test_wrong_line", "test_outside_line"}
    beside = {"test_plain[FWD-float32]", "test_plain[CALLS-float32]", "test_line_alone", "test_output"}
    assert {name for name, result in answers.items() if result == "FAILED"} == wrong | beside
    assert "tail::FWD[float32-cpu-ptx]: fail, OA101" in text
    assert text.count("of global memory that is no operand's") >= 2
    assert f"RuntimeError: right {SENTENCE}" in text
    assert f"right forward: {SENTENCE}" in text
    assert 'hand the kernel itself over: assert_conforms(kernel, spec, *args, compiled="sm_90")' in text


def test_interpreted_kernels_have_small_samples_and_no_threads(tmp_path: Path) -> None:
    words = ("pytest", "-v", "-rs", "-p", "no:cacheprovider", "test_theirs.py", "-k", "plain or line_alone")
    text = ask(tmp_path, *words, TRITON_INTERPRET="1")
    assert results(text) == {
        "test_plain[FWD-float32]": "PASSED", "test_plain[CALLS-float32]": "SKIPPED", "test_line_alone": "PASSED",
    }  # fmt: skip
    assert "CALLS is not asked of interpreted kernels: Triton interprets in one thread" in text


@pytest.mark.slow
def test_a_run_compiles_what_a_declaration_says(tmp_path: Path) -> None:
    words = ("-k", "FWD", "--dtype", "float32", "--report-dir", "report")
    ask(tmp_path, "opassay", "--version")  # writes the files
    text = ask(tmp_path, "opassay", "run", "test_theirs:RIGHT", *words)
    assert "1 verified" in text, text
    assert "no operand's" in ask(tmp_path, "opassay", "run", "test_theirs:OUTSIDE", *words)


def test_what_a_declaration_says_is_asked() -> None:
    double = {"x": ("n",)}
    op = custom_kernel(lambda x: x + x, lambda x: 2 * x, double, properties=("FWD", "DET"), dtypes=("bf16",))
    assert [each.id for each in questions(op)] == ["FWD-bfloat16", "DET-bfloat16"]
    assert [each.id for each in questions(op, ("VJP",))] == ["VJP-bfloat16"]
    verdicts = opassay.verify_kernel(
        lambda x: x + x, lambda x: 2 * x, double, properties=("FWD",), settings=Settings("brief", max_examples=2)
    )
    assert [verdict.cell.key for verdict in verdicts] == ["kernel::FWD[float32-cpu-opassay]"]
    trace = kernel_of_op(lambda x: x.trace(), "trace", compiled="sm_80")
    assert {each.values[0].subject for each in questions(trace)} == {"ptx"}
    with pytest.raises(TypeError, match=r"^compild: no argument of this name \(did you mean 'compiled'\?\), need"):
        custom_kernel(lambda x: x, lambda x: x, double, compild="sm_90")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match=r"^device=cuda: got compiled=sm_90, too"):
        custom_kernel(lambda x: x, lambda x: x, double, device="cuda", compiled="sm_90")


def test_what_a_function_of_no_kernel_raises_is_its_own() -> None:
    def broken(x: object) -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match=r"^mine$"):
        assert_conforms(broken, lambda x: x, torch.ones(2))
