"""PARITY: why two implementations differ is said, and which of them is worse."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import opassay
from opassay.properties.candidates.judgement import Judgement
from opassay.properties.candidates.question_plan import parts_of_beside
from opassay.reports.cli.main import main
from opassay.reports.schemas.documents import text_of

from .parity_pairs import PAIRS

Kernel = Callable[..., Any]


def _compare(name: str, seed: int = 1) -> Judgement:
    pair = PAIRS[name]
    return opassay.parity(pair.first or pair.spec, pair.second, pair.operands(), spec=pair.spec, seed=seed)


@pytest.mark.one_fast_in(4)
@pytest.mark.parametrize("name", PAIRS)
def test_why_two_differ_is_said(name: str) -> None:
    text = _compare(name).difference
    assert text.startswith(PAIRS[name].word), text


def test_what_two_are_is_the_same_the_other_way_round() -> None:
    pair = PAIRS["factors: TF32"]
    text = opassay.parity(pair.second, pair.spec, pair.operands(), spec=pair.spec, seed=1).difference
    assert text.startswith("precision: A is of less precision"), text


@pytest.mark.parametrize(
    ("second", "text"),
    [
        (lambda x: [][0], "wrong: of B it raises IndexError"),
        (lambda x: x[:1], "wrong: of B its out 0 is torch.float32[1, 4]"),
        (lambda x: (x, x), "wrong: of B it gives 2 outs"),
        (lambda x: x.double(), "wrong: of B its out 0 is torch.float64[3, 4]"),
        (lambda x: x * 1.0, "equal: A and B have the same bits"),
        (lambda x: -(0.0 - x), "equal: A and B have the same bits"),  # but for zeros, which it makes -0
    ],
)
def test_results_of_another_kind_are_wrong(second: Kernel, text: str) -> None:
    judgement = opassay.parity(lambda x: x.clone(), second, (torch.randn(3, 4),), seed=1)
    assert judgement.difference.startswith(text), judgement.difference


def test_who_refuses_other_sizes_is_not_wrong() -> None:
    def even(x: Tensor) -> Tensor:
        if len(x) % 2:
            raise ValueError("need an even number of rows")
        return x * 1.0

    text = opassay.parity(lambda x: x.clone(), even, (torch.randn(4, 8),), seed=1).difference
    assert text.startswith("equal: "), text
    assert "calls: ValueError: need an even number of rows for float32[" in text


def test_parameters_are_set_in_both() -> None:
    torch.manual_seed(0)  # of the modules' parameters
    spec, one, other = (torch.nn.Linear(96, 8) for _ in range(3))
    judgement = opassay.parity(one, other, (torch.randn(4, 96),), spec=spec, seed=1)
    assert judgement.difference.startswith("equal:"), judgement.difference
    assert not torch.equal(one.weight, other.weight)  # each has its own again


def test_log_probabilities_have_their_ratio() -> None:
    text = _compare("order: log-softmax in pieces").difference
    assert "ratio      as log-probabilities: exp(A - B) is " in text
    assert "a clip range of 0.2 cuts 0 of 1536" in text
    assert "ratio" not in _compare("order: product in pieces").difference


def test_the_line_for_programs_is_what_its_schema_says() -> None:
    line = json.loads(_compare("order: sum in pieces").as_json())
    known = json.loads(text_of("judgement"))["$defs"]["JudgementLine"]["properties"]
    assert line["parity"].startswith("order: ")
    assert line.keys() <= known.keys()


def test_nothing_is_said_where_each_draws_its_own() -> None:
    def drop(x: Tensor) -> Tensor:
        return torch.nn.functional.dropout(x, 0.5)

    judgement = opassay.parity(drop, drop, (torch.randn(8, 32),), seed=1)
    finding = next(each for each in judgement.findings if each.question == "PARITY")
    assert finding.text == "the spec draws random numbers, of which each candidate has its own"


def test_rows_of_a_large_problem_are_compared() -> None:
    def norm(x: Tensor) -> Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)

    def scaled(x: Tensor) -> Tensor:
        return norm(x) * 1.01

    x = torch.randn(4096, 1024)
    assert opassay.parity(norm, norm, (x,), seed=1, questions=("FWD:given", "PARITY")).difference.startswith("equal:")
    judgement = opassay.parity(norm, scaled, (x,), seed=1, questions=("FWD:given", "PARITY"))
    assert judgement.difference.startswith("wrong: B at FWD:given"), judgement.difference


def test_a_tuple_is_no_candidate() -> None:
    with pytest.raises(TypeError, match="candidate: got a tuple, need a function or a module"):
        opassay.judge((torch.exp, torch.exp), torch.exp, (torch.randn(3),))


def test_without_another_candidate_it_is_not_asked() -> None:
    judgement = opassay.judge(torch.exp, torch.exp, (torch.randn(3),), questions=("PARITY",))
    assert "no other candidate is asked beside this one" in str(judgement)


FILE = """
import torch
def reference(x, w): return torch.log_softmax(x @ w, -1)
def backward(x, w): return torch.log_softmax(x.flip(1) @ w.flip(0), -1)
def half(x, w): return torch.log_softmax((x @ w).bfloat16().float(), -1)
def get_inputs(): return [torch.randn(16, 64), torch.randn(64, 32)]
"""


@pytest.mark.parametrize(
    ("second", "code", "text"),
    [
        ("backward", 0, "order: the order of sums explains it"),
        ("half", 4, "precision: B is of less precision than the contract torch has: mm rounded to bfloat16"),
        ("absent", 2, "has no absent"),
    ],
)
def test_the_command_says_why(
    second: str, code: int, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "layer.py").write_text(FILE)
    words = ["parity", f"{tmp_path}/layer.py:reference", f"{tmp_path}/layer.py:{second}", "--seed", "1", "-q"]
    assert main([*words, "--python", sys.executable]) == code
    printed = capsys.readouterr()
    assert text in printed.out + printed.err


_ON_TWO = (
    FILE
    + """
def trained(x, w):
    if x.is_cuda: raise ValueError("need the CPU")
    return torch.log_softmax(x @ w, -1)
def served(x, w):
    if not x.is_cuda: raise ValueError("need a GPU")
    return backward(x, w)
def rounded(x, w): return half(x, w) if x.is_cuda else x
"""
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["trained", "served", "--device", "cpu", "--on", "rehearsal"], 0, "parity: order: the order of sums"),
        (["served", "trained", "--device", "rehearsal", "--on", "cpu"], 0, "parity: order: the order of sums"),
        (["trained", "rounded", "--on", "rehearsal"], 4, "parity: precision: B is of less precision"),
        (["trained", "trained", "--on", "rehearsal"], 1, "wrong: of B it raises ValueError: need the CPU"),
    ],
)
def test_two_are_compared_on_two_devices(words: list[str], code: int, text: str, tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("the rehearsal device is built by g++")
    (tmp_path / "layer.py").write_text(_ON_TWO)
    first, second, *options = words
    command = ["parity", f"layer.py:{first}", f"layer.py:{second}", "--spec", "layer.py:reference", "--seed", "1", "-q"]
    done = subprocess.run(
        [sys.executable, "-m", "opassay", *command, *options], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert text in done.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_here_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "layer.py").write_text(FILE)
    words = ["parity", f"{tmp_path}/layer.py:reference", f"{tmp_path}/layer.py:backward", "--on", "cuda"]
    assert main(words) == 2
    assert "layer.py:backward on cuda: got cuda, and there is no GPU here" in capsys.readouterr().err


def test_a_folder_may_have_the_words_of_a_device() -> None:
    assert parts_of_beside("a on b/k.py:f on cpu under /usr/bin/python") == ("a on b/k.py:f", "cpu", "/usr/bin/python")
    assert parts_of_beside("a on b/k.py:f") == ("a on b/k.py:f", "", "")
