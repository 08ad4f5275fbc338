"""Files judged in a process apart: both conventions; candidates that leave, hang, fork, patch, write; the commands."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from opassay.properties.candidates import excuses
from opassay.properties.candidates.host.quarters import Confinement
from opassay.properties.candidates.judge_files import judge_file
from opassay.properties.candidates.judgement import Judgement, Ruling
from opassay.properties.candidates.question_plan import QuestionPlan
from opassay.reports.cli.main import main

SPEC = """
import torch

class Model(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.fc = torch.nn.Linear(6, columns)

    def forward(self, x):
        return torch.relu(self.fc(x)).softmax(-1)

def get_init_inputs():
    return [5]

def get_inputs():
    return [torch.randn(4, 6)]
"""
MODEL = """
import os, sys, time, torch
import {spec}

class ModelNew({spec}.Model):
    def forward(self, x):
{body}
        return super().forward(x)
"""
KERNEL_SPEC = """
import torch

def generate_input(size, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, 3, generator=generator), torch.randn(3, generator=generator)

def ref_kernel(data):
    x, scale = data
    print("a spec may print")
    return torch.relu(x) * scale
"""
QUICK = ("FWD:given", "PURE:untouched", "PURE:left")


def _write(folder: Path, name: str, body: str) -> tuple[str, str]:
    """The paths of a candidate whose forward does something first, and of its spec."""
    spec, candidate = folder / f"spec_{name}.py", folder / f"{name}.py"
    spec.write_text(SPEC)
    candidate.write_text(MODEL.format(spec=spec.stem, body=f"        {body}"))
    return str(candidate), str(spec)


def _judge(folder: Path, name: str, body: str, seconds: float = 60.0) -> Judgement:
    files = _write(folder, name, body)
    # What is looked at here holds without isolation, too.
    confinement = Confinement(seconds, isolation="none")
    return judge_file(*files, contract="torch", confinement=confinement, plan=QuestionPlan(QUICK))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "body", "question", "message"),
    [
        ("exits", "os._exit(0)", "FWD:given", "process died (exit status 0)"),
        ("hangs", "time.sleep(1000)", "FWD:given", "process did not answer in time (8 s for a call: --seconds)"),
        ("forks", "os.fork() or (time.sleep(60), os._exit(0))", "PURE:untouched", "left a child process"),
        ("writes", "open(sys.modules['spec_writes'].__file__, 'a').write('#')", "PURE:left", "a file was written"),
        ("copies", "os.fork()", "PURE:untouched", "left a child process"),
    ],
)
def test_what_a_candidate_does_to_its_process_is_a_verdict(
    name: str, body: str, question: str, message: str, tmp_path: Path
) -> None:
    judgement = _judge(tmp_path, name, body, seconds=8.0 if name == "hangs" else 60.0)
    assert judgement.verdict is Ruling.REJECTED, str(judgement)
    assert [each.question for each in judgement.causes] == [question], str(judgement)
    assert message in judgement.causes[0].text


@pytest.mark.slow
def test_an_end_says_nothing_where_the_files_of_opassay_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(excuses, "_SOURCES", "")
    judgement = _judge(tmp_path, "ends", "os._exit(0)")
    assert (judgement.verdict, "start it again" in judgement.error) == (Ruling.ERROR, True), str(judgement)


@pytest.mark.slow
def test_a_candidate_that_cannot_be_made_is_rejected_and_one_that_patches_torch_too(tmp_path: Path) -> None:
    candidate, spec = _write(tmp_path, "broken", "pass")
    Path(candidate).write_text("raise ImportError('no compiler')")
    judgement = judge_file(candidate, spec, contract="torch", plan=QuestionPlan(QUICK))
    assert (judgement.verdict, judgement.causes[0].question) == (Ruling.REJECTED, "PURE:process")
    assert "raised ImportError: no compiler" in judgement.causes[0].text
    Path(candidate).write_text(
        f"import torch\nimport {Path(spec).stem} as s\ntorch.relu = lambda x: x\nModelNew = s.Model"
    )
    judgement = judge_file(candidate, spec, contract="torch", plan=QuestionPlan(["PURE:process"]))
    assert "torch.relu: replaced" in judgement.causes[0].text


def test_the_command_prints_one_line_of_json_and_its_exit_code_is_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, candidate = tmp_path / "kernel_spec.py", tmp_path / "kernel.py"
    spec.write_text(KERNEL_SPEC)
    candidate.write_text(
        "import torch\ndef custom_kernel(data):\n    x, s = data\n    return torch.clamp(x, min=0) * s\n"
    )
    words = ["judge", str(candidate), "--spec", str(spec), "--input", "size=7", "--json"]
    assert main([*words, "--seed", "5"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    reply = json.loads(line)
    assert (reply["verdict"], reply["causes"], reply["seed"]) == ("accepted", [], 5)
    assert {"FWD:given", "FWD:seeds", "VJP:grad", "SIZE:sizes", "CALLS:reborn"} <= set(reply["asked"])
    assert reply["arithmetic"] == "float64, rounded once"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--contract", "loose"], "contract: got 'loose'"),
        (["--input", "size"], "--input: got 'size', need NAME=VALUE"),
        ([], "generate_input needs size; give --input size=VALUE"),
    ],
)
def test_a_wrong_command_line_ends_with_2_and_says_so_in_json_too(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "wrongly_used.py"
    spec.write_text(KERNEL_SPEC)
    assert main(["judge", str(spec), "--spec", str(spec), "--json", *words]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "error"
    assert message in document["error"]


def test_a_spec_without_a_reading_is_no_verdict_on_the_candidate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "unreadable.py"
    spec.write_text("import torch\ndef ref_kernel(x): return torch.special.bessel_j0(x)\ninputs = [torch.ones(3)]\n")
    assert main(["judge", str(spec), "--spec", str(spec)]) == 3
    assert "bessel_j0" in capsys.readouterr().out


RMS_SPEC = """
import torch

def reference(x, w):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w

def get_inputs():
    return [torch.randn(3, 100).bfloat16(), torch.randn(100).bfloat16()]
"""
TRITON = """
import torch, triton
import triton.language as tl

@triton.jit
def rows(x, w, y, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    mask = at < n
    v = tl.load(x + row * n + at, mask=mask, other=0.0).to(tl.float32)
    squares = v * v
    rms = tl.sqrt(tl.sum(squares, 0) / n + 1e-6)
    out = v / rms * tl.load(w + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(y + row * n + at, out.to(tl.bfloat16), mask=mask)

def candidate(x, w):
    x, w = x.contiguous(), w.contiguous()
    y, n = torch.empty_like(x), x.shape[-1]
    rows[(x.numel() // n,)](x, w, y, n, BLOCK=128)
    return y
"""
LIBRARY = """
import torch

@torch.library.custom_op("opassay_tests::rms", mutates_args=())
def rms(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.rms_norm(x, x.shape[-1:], w, 1e-6)
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize(
    ("wrong", "ruling"), [("", Ruling.ACCEPTED), ("tl.where(at < 64, v, 0.0) * ", Ruling.REJECTED)]
)
def test_a_kernel_of_triton_is_judged_in_an_interpreter(wrong: str, ruling: Ruling, tmp_path: Path) -> None:
    (tmp_path / "rms_spec.py").write_text(RMS_SPEC)
    (tmp_path / "rms.py").write_text(TRITON.replace("squares = v * ", f"squares = {wrong or 'v * '}"))
    files = str(tmp_path / "rms.py"), str(tmp_path / "rms_spec.py")
    interpreted = Confinement(interpret=True)
    judgement = judge_file(
        *files,
        contract="torch",
        confinement=interpreted,
        plan=QuestionPlan(("FWD:given", "FWD:seeds", "PURE:untouched")),
    )
    assert judgement.verdict == ruling, judgement


@pytest.mark.usefixtures("copied_candidates")
def test_an_operator_of_a_library_is_a_candidate(tmp_path: Path) -> None:
    (tmp_path / "rms_spec.py").write_text(RMS_SPEC)
    (tmp_path / "library.py").write_text(LIBRARY)
    address = f"{tmp_path / 'library.py'}:opassay_tests::rms"
    judgement = judge_file(
        address, str(tmp_path / "rms_spec.py"), contract="torch", plan=QuestionPlan((*QUICK, "VJP:grad"))
    )
    assert judgement.verdict == Ruling.ACCEPTED, judgement
