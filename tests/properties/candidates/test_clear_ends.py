"""What a reading raises ends in a sentence, and hides no verdict; a program gets its line of JSON whatever happens."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import opassay
from opassay.oracles.specs import rules
from opassay.oracles.verdicts.verdict import Code
from opassay.properties.candidates import judge_files
from opassay.properties.candidates.host.calls import GoneError
from opassay.properties.candidates.host.host import CandidateHost
from opassay.properties.candidates.judgement import Ruling
from opassay.properties.candidates.judging import judge
from opassay.reports.cli.addresses import pair_in, require_in_file
from opassay.reports.cli.host import Stop
from opassay.reports.cli.main import main

GENERATOR = torch.Generator().manual_seed(5)


def _normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=GENERATOR)


def experts(x: Tensor, router: Tensor, w: Tensor) -> Tensor:
    """The two likeliest of four experts: which ones they are a wide ball does not decide."""
    shares = torch.softmax(x @ router, -1)
    best, which = shares.topk(2, -1)
    gates = torch.zeros_like(shares).scatter(1, which, best / best.sum(-1, keepdim=True))
    return torch.einsum("te,td,ehd->th", gates, x, w)


@pytest.mark.parametrize("right", [True, False])
def test_terms_that_cannot_be_read_hide_no_verdict(right: bool) -> None:
    def candidate(x: Tensor, router: Tensor, w: Tensor) -> Tensor:
        out = experts(x, router, w)
        out[-1] *= 1.0 if right else 0.0
        return out

    inputs = (_normal(5, 8), _normal(8, 4), _normal(4, 6, 8))
    judgement = judge(candidate, experts, inputs, questions=["FWD:given", "FWD:seeds"])
    assert judgement.verdict is (Ruling.ACCEPTED if right else Ruling.REJECTED), str(judgement)
    assert (judgement.kept == "") is not right


def test_whatever_a_rule_raises_names_the_line_of_the_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> Any:
        return dict[str, Any]()["float7"]

    monkeypatch.setitem(rules.RULES, torch.ops.aten.erf.default, fail)
    with pytest.raises(
        opassay.SpecError, match=r"aten\.erf\.default in line \d+ .*cannot be read there.*KeyError: 'float7'"
    ):
        opassay.bound(lambda x: torch.special.erf(x), _normal(3))
    judgement = judge(torch.special.erf, lambda x: torch.special.erf(x), (_normal(3),))
    assert judgement.verdict is Ruling.ERROR
    assert "KeyError" in judgement.error


def test_a_fault_of_the_judge_is_a_line_of_json_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def faulty(*args: Any, **named: Any) -> Any:
        raise KeyError("planted")

    monkeypatch.setattr(judge_files, "judge_file", faulty)
    (tmp_path / "any.py").touch()
    assert main(["judge", f"{tmp_path}/any.py", "--spec", f"{tmp_path}/any.py", "--json"]) == 3
    (line,) = capsys.readouterr().out.splitlines()
    reply = json.loads(line)
    assert reply["verdict"] == "error"
    assert reply["error"] == "internal error, KeyError: 'planted'"


def test_outputs_that_are_not_shown_again_are_not_taken_for_what_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(_: CandidateHost) -> None:
        raise GoneError("after 65 s: no answer", True)

    monkeypatch.setattr(CandidateHost, "review", late)
    judgement = judge(torch.relu, torch.relu, (_normal(4, 8),), questions=["FWD:given", "PURE:left"])
    assert judgement.verdict is Ruling.REJECTED, str(judgement)
    assert [(each.question, each.wrong and each.wrong.code) for each in judgement.causes] == [
        ("PURE:left", Code.TIMED_OUT)
    ]


def _nothing(x: Tensor) -> None:
    torch.relu(x)


@pytest.mark.parametrize(
    ("candidate", "text"),
    [
        (_nothing, "the result is None; did you forget `return`?"),
        (lambda x: (torch.relu(x), 1), "the result is [*, int], need a tensor"),
        (lambda x: torch.relu(x).half(), "out has dtype float16, need float32"),
        (lambda x: torch.relu(x)[:1], "out has shape (1, 8), need (4, 8)"),
        (lambda x: torch.relu(x).numpy(), "got 0 outputs, need 1: the result is ndarray, need a tensor"),
        (lambda x: [1][x.shape[0]], "raised IndexError: list index out of range"),
        (lambda: 1, "raised TypeError: <lambda>() takes 0 positional arguments but 1 was given"),
    ],
)
def test_where_every_question_would_say_the_same_one_says_it(candidate: Any, text: str) -> None:
    judgement = judge(candidate, torch.relu, (_normal(4, 8),))
    assert judgement.verdict is Ruling.REJECTED
    (cause,) = judgement.causes
    assert (cause.question, cause.text) == ("FWD:given", text)
    assert "FWD:given says it of them all" in judgement.weaknesses[-1]
    assert "usually" not in str(judgement)
    assert [each.question for each in judgement.findings if each.question != "PURE:process"] == [
        "FWD:given",
        "PURE:left",
    ]


def _without_numbers() -> dict[str, Any]:
    with FakeTensorMode():
        fake = torch.empty(3, 4)
    return {
        "on device meta": torch.empty(3, 4, device="meta"), "torch.sparse_coo": _normal(3, 4).to_sparse(),
        "torch.sparse_csr": _normal(3, 4).to_sparse_csr(), "FakeTensor": fake,
        "is nested": torch.nested.nested_tensor([_normal(4), _normal(3)]),
        "is quantized": torch.quantize_per_tensor(_normal(3, 4), 0.1, 0, torch.qint8),
        "zeros without memory": torch._efficientzerotensor((3, 4)),
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "text",
    ["on device meta", "torch.sparse_coo", "torch.sparse_csr", "FakeTensor", "is nested", "is quantized",
     "zeros without memory"],
)  # fmt: skip
def test_tensors_without_numbers_are_named(text: str) -> None:
    odd, x = _without_numbers()[text], _normal(3, 4)
    with pytest.raises(AssertionError, match=text):
        opassay.assert_conforms(odd, torch.relu, x)
    with pytest.raises(opassay.SpecError, match=text):
        opassay.assert_conforms(torch.relu(x), torch.relu, odd)
    judgement = judge(torch.relu, torch.relu, (odd,), questions=["FWD:given"])
    assert judgement.verdict is Ruling.ERROR
    assert text in judgement.error


def test_what_is_no_function_and_no_text_is_named() -> None:
    with pytest.raises(TypeError, match="candidate: got a NoneType, need a function or a module"):
        judge(None, torch.relu, (_normal(3),))
    with pytest.raises(TypeError, match="Formula: got a NoneType"):
        opassay.Formula(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="case file: got a NoneType, need its text"):
        opassay.replay_case(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="op: got a NoneType, need its name"):
        opassay.load_op(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"got 'torhc' \(did you mean 'torch'\?\)"):
        opassay.bound(torch.relu, _normal(3), contract="torhc")


def test_a_spec_that_raises_logs_nothing(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    judgement = judge(torch.relu, lambda x: x @ x, (_normal(3, 4),))
    assert judgement.verdict is Ruling.ERROR
    assert "".join(capfd.readouterr()) == ""
    assert not [each for each in caplog.records if each.name == "torch._subclasses.fake_tensor"]


@pytest.mark.one_fast_in(2)
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["judge", "min.py", "--spec", "mine.py"], "min.py: no such file (did you mean 'mine.py'?)"),
        (["judge", "mine.py", "--spec", "min.py"], "min.py: no such file (did you mean 'mine.py'?)"),
        (["judge", "mine.py:kernal", "--spec", "mine.py"], "mine.py:kernal: has no kernal (did you mean 'kernel'?)"),
        (
            ["judge", "mine.py", "--spec", "mine.py", "-k", "OFSET"],
            "--question: got 'OFSET' (did you mean 'FWD:offset'?)",
        ),
        (["judge", "mine.py:spec"], "--spec: got none, as in `opassay judge mine.py:kernel --spec mine.py:reference`"),
        (["judge", "open.py", "--spec", "mine.py"], "open.py does not compile: SyntaxError: '(' was never closed"),
        (["judge", "mine.py", "--spec", "open.py:spec"], "(open.py, line 2): return (x"),
        (["tolerances", "min.py"], "min.py: no such file (did you mean 'mine.py'?)"),
        (["run", "min.py:OP"], "min.py: no such file (did you mean 'mine.py'?)"),
        (["list", "mine.py:kernal"], "mine.py:kernal: has no kernal (did you mean 'kernel'?)"),
        (["list", "mine.py"], "mine.py: got a file, need mine.py:NAME of an op or a function in it"),
        (["gate", "."], "run.json: no such file"),
    ],
)
def test_names_are_looked_for_before_torch_is_imported(words: list[str], text: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def kernel(x): return x\ndef spec(x): return x\ndef inputs(): return ()\n")
    (tmp_path / "open.py").write_text("def spec(x):\n    return (x\n")
    program = f"""import sys
from opassay.reports.cli.main import main
assert (main({words}), "torch" in sys.modules) == (2, False)
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert text in ended.stderr


@pytest.mark.parametrize(
    ("text", "name", "spec"),
    [
        ("def kernel(x): return x\ndef reference(x): return x", "", "reference"),
        ("def fast(x): return x\ndef reference(x): return x", ":fast", "reference"),
        ("class ModelNew: pass\nclass Model: pass", "", "Model"),
        ("class Model: pass", "", ""),  # which would be judged by itself
        ("def reference(x): return x", ":reference", ""),
        ("def kernel(x): return x", "", ""),
    ],
)
def test_a_spec_in_the_file_of_the_candidate(text: str, name: str, spec: str, tmp_path: Path) -> None:
    (file := tmp_path / "mine.py").write_text(text)
    pair = pair_in(f"{file}{name}")
    assert (pair and pair[1]) == (f"{file}:{spec}" if spec else None)
    assert pair is None or pair[0] != pair[1]


def test_names_that_a_file_makes_as_it_runs_are_left_to_it(tmp_path: Path) -> None:
    for number, text in enumerate(("from os.path import *", "globals()['kernel'] = len", "import math as kernel",
                                   "if True:\n    kernel = len", "for kernel in (len,): pass")):  # fmt: skip
        file = tmp_path / f"made_{number}.py"
        file.write_text(text)
        require_in_file(f"{file}:kernel")
    (tmp_path / "lacks.py").write_text("def other(): pass")
    with pytest.raises(Stop, match="has no kernel"):
        require_in_file(f"{tmp_path}/lacks.py:kernel")
