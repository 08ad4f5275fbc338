"""What the options of `opassay judge` change: which questions are asked, of which dtype, for how long, and the text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from opassay.properties.candidates.asking import later_calls
from opassay.properties.candidates.judge_draws import Draws
from opassay.properties.candidates.judgement import Ruling
from opassay.properties.candidates.judging import judge
from opassay.properties.candidates.question_plan import USUAL, QuestionPlan
from opassay.reports.cli.main import main
from opassay.reports.schemas.documents import schema_of
from tests.reports.json_schema import schema_errors

FILE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 4)

    def forward(self, x):
        return torch.relu(self.linear(x))

class ModelNew(Model):
    def forward(self, x):
        assert x.dtype == self.linear.weight.dtype == torch.bfloat16, x.dtype
        return super().forward(x)

def reference(x):
    return torch.softmax(x, -1)

def kernel(x):
    powers = torch.exp(x)
    return powers / powers.sum(-1, keepdim=True)

def contiguous(x):
    if not x.is_contiguous():
        raise ValueError("rows that lie together")
    return kernel(x)

def get_inputs():
    return [torch.randn(8, 6)]
"""
X = torch.randn(8, 32, generator=torch.Generator().manual_seed(3))


@pytest.fixture(autouse=True)
def _file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copied_candidates: None) -> None:
    (tmp_path / "mine.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)


def _judge(name: str, *words: str, spec: str = "reference") -> int:
    return main(["judge", f"mine.py:{name}", "--spec", f"mine.py:{spec}", *words])


def _line(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    line: dict[str, Any] = json.loads(capsys.readouterr().out)
    return line


def test_the_first_wrong_answer_ends_the_questions(capsys: pytest.CaptureFixture[str]) -> None:
    codes = [word for code in ("FWD:given", "FWD:offset", "FWD:signs", "FWD:wide") for word in ("-k", code)]
    assert _judge("kernel", "-x", "--json", "--seed", "0", *codes) == 1
    line = _line(capsys)
    assert line["asked"] == ["FWD:given", "FWD:signs", "FWD:offset"]
    assert line["weaknesses"] == ["not asked: FWD:offset is wrong: FWD:wide"]


def test_what_time_does_not_reach_is_a_weakness() -> None:
    judgement = judge(torch.relu, torch.relu, (X,), total=1e-9)
    assert judgement.verdict is Ruling.WEAK
    assert judgement.weaknesses[-1] == f"not asked: out of time: {', '.join(USUAL)}"
    with pytest.raises(ValueError, match="total=0"):
        judge(torch.relu, torch.relu, (X,), total=0)


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("name", ["bf16", "bfloat16", "torch.bfloat16"])
def test_inputs_and_parameters_are_cast(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _judge("ModelNew", f"--dtype={name}", "-k", "FWD:given", "-k", "FWD:params", spec="Model") == 0
    assert "ok      FWD             given, params" in capsys.readouterr().out
    assert _judge("ModelNew", "-k", "FWD:given", spec="Model") == 1
    assert "AssertionError: torch.float32" in capsys.readouterr().out


def test_a_dtype_that_is_none_has_a_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert _judge("kernel", "--dtype", "bflot16") == 2
    assert "did you mean 'bfloat16'?" in capsys.readouterr().err


def _faulty_after(count: int, noise: float = 0.0) -> Any:
    """A function that is wrong after so many calls, and with noise has other last bits at every second call."""
    calls = 0

    def faulty(x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        y = torch.softmax(x, -1)
        y = y * (1 + noise * (calls % 2))
        return y * 2 if calls > count else y

    return faulty


@pytest.mark.parametrize("noise", [0.0, 2.0**-23])
def test_many_calls_show_a_rare_fault(noise: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later_calls, "_SECONDS", 60.0 if not noise else 0.5)  # on a busy machine 250 calls take longer

    def reference(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)

    if not noise:  # else every call is held, for which half a second may be too short
        assert judge(_faulty_after(250), reference, (X,), questions=["CALLS:again"]).verdict is Ruling.REJECTED
    assert judge(_faulty_after(400, noise), reference, (X,), questions=["CALLS:again"]).verdict is Ruling.ACCEPTED
    judgement = judge(_faulty_after(400, noise), reference, (X,), questions=["CALLS:again"], calls=600)
    (cause,) = judgement.causes
    assert cause.wrong is not None
    # One call was made before those in a row.
    assert cause.wrong.lines[-1] == "call       400 in a row"
    assert (
        judge(_faulty_after(900, noise), reference, (X,), questions=["CALLS:again"], calls=600).verdict
        is Ruling.ACCEPTED
    )
    with pytest.raises(ValueError, match="calls=1"):
        judge(reference, reference, (X,), calls=1)


def test_questions_that_build_on_others_are_not_asked_sooner() -> None:
    order = QuestionPlan(sooner=["PURE:left", "LIKELY", "FWD:offset", "VJP:grad"]).order()
    assert order[:5] == ["PURE:process", "FWD:given", "FWD:offset", "VJP:grad", "PURE:untouched"]
    assert order[-1] == "PURE:left"
    assert sorted(order) == sorted(USUAL)


def test_a_secret_orders_the_questions_that_have_no_place_of_their_own() -> None:
    plan = QuestionPlan(sooner=["VJP:grad", "FWD:offset"])
    secrets = [Draws(0, f"{number:032x}") for number in range(20)]
    orders = [plan.order(draws) for draws in secrets]
    assert orders == [plan.order(draws) for draws in secrets]
    assert len({tuple(order) for order in orders}) == 20
    # Each of the questions between is asked first, or nearly, under some secret.
    assert len({code for order in orders for code in order[4:7]}) > 15
    for order in orders:
        assert order[:4] == ["PURE:process", "FWD:given", "FWD:offset", "VJP:grad"]
        assert order[-3:] == ["COMP:compiled", "LIKELY", "PURE:left"]
        assert sorted(order) == sorted(USUAL)


def test_the_order_of_asking_is_not_that_of_the_report() -> None:
    from opassay.properties.candidates.judging import ask_all
    from opassay.properties.candidates.session import Session

    questions: list[str] = []
    session = _session(Session)
    plan = QuestionPlan(["FWD:given", "FWD:seeds", "FWD:offset"], sooner=["FWD:offset"])
    judgement = ask_all(session, plan, lambda code, *_: questions.append(code))
    assert questions == ["FWD:given", "FWD:offset", "FWD:seeds"]
    assert [finding.question for finding in judgement.findings] == ["FWD:given", "FWD:seeds", "FWD:offset"]


def _session(session: Any) -> Any:
    from opassay.oracles.bound.terms import terms
    from opassay.properties.candidates.arguments import CallArguments
    from opassay.properties.candidates.host.host import CandidateHost
    from opassay.properties.candidates.judge_draws import Draws
    from opassay.properties.candidates.specification import specification

    return session(
        specification(torch.relu), CandidateHost("relu", torch.relu), terms("torch"), Draws(0), CallArguments.of((X,))
    )


@pytest.mark.slow
def test_verbose_shows_every_card(capsys: pytest.CaptureFixture[str]) -> None:
    codes = ["-k", "FWD:offset", "-k", "SPECIAL:inf", "-k", "LAYOUT:strides"]
    assert _judge("contiguous", *codes) == 1
    brief = capsys.readouterr().out
    assert _judge("contiguous", "-v", *codes) == 1
    whole = capsys.readouterr().out
    cards = re.compile(r"^([A-Z]+): ", re.MULTILINE)
    assert cards.findall(brief) == ["FWD:offset"]
    assert cards.findall(whole) == ["FWD:offset", "SPECIAL:inf", "LAYOUT:strides"]
    assert 'in contiguous: raise ValueError("rows that lie together")' in whole


def test_what_a_candidate_prints_is_shown_where_it_is_asked_for(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (file := tmp_path / "mine.py").write_text(
        "import torch\ndef kernel(x):\n    print('of the candidate')\n    return x.exp()\n"
        "def reference(x): return x.exp()\ndef inputs(): return (torch.ones(3),)\n"
    )
    for words, number in (((), 0), (("-v",), 1)):
        assert main(["judge", str(file), "-k", "FWD:given", *words]) == 0
        text = "".join(capfd.readouterr())
        assert text.count("of the candidate\n") == number


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("name", ["FORCE_COLOR", "NO_COLOR", "OTHER"])
def test_colour_is_as_the_environment_asks(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for other in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, "1")
    assert _judge("kernel", "-k", "FWD:offset") == 1
    output, coloured = capsys.readouterr().out, name == "FORCE_COLOR"
    assert ("\x1b[31m\x1b[1mWRONG\x1b[0m   FWD:offset" in output) == coloured
    assert ("\x1b[31m\x1b[1mrejected\x1b[0m: FWD:offset" in output) == coloured
    assert ("\x1b" in output) == coloured


def test_every_line_of_json_fits_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    codes = [
        word for code in ("FWD:given", "FWD:offset", "PURE:fresh", "SIZE:sizes", "VJP:grad") for word in ("-k", code)
    ]
    commands = [
        ("kernel", *codes),
        ("contiguous", "-k", "CALLS:again", "--total", "1e-9"),
        ("nothing",),
        ("kernel", "-k", "X"),
    ]
    for (name, *words), code in zip(commands, (1, 4, 2, 2), strict=True):
        assert _judge(name, "--json", *words) == code
        (text,) = capsys.readouterr().out.splitlines()
        assert schema_errors(json.loads(text), schema_of("judgement")) == []
        assert code == 2 or set(json.loads(text)) == set(schema_of("judgement")["$defs"]["JudgementLine"]["properties"])
    worst = {"index", "computed", "exact", "bound", "ratio", "outside", "elements", "box"}
    assert _judge("kernel", "--json", "-k", "FWD:offset") == 1
    (cause,) = _line(capsys)["causes"]
    assert worst <= set(cause)
    assert cause["computed"] == "nan"
    assert schema_errors({**cause, "computed": "many"}, schema_of("judgement")) != []
