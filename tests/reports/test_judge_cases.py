"""Every wrong question of a judgement leaves a case, which asks it again, and a program, which needs torch alone."""

from __future__ import annotations

import html
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from opassay.reports.cli.judge.recording import read_failures
from opassay.reports.cli.main import main
from opassay.reports.record import load

SPEC = """
import torch

class Model(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.linear = torch.nn.Linear(200, columns)

    def forward(self, x, scale, others):
        h = torch.relu(self.linear(x))
        return {"b": h * scale, "a": h / torch.sqrt(h.square().mean(-1, keepdim=True) + 1e-5) + others["y"]}

def get_init_inputs():
    return [32]

def get_inputs():
    return [torch.randn(8, 400)[:, ::2], 2.0, {"y": torch.randn(32)}]
"""
CANDIDATE = """
import reference
import torch

class ModelNew(reference.Model):
    def forward(self, x, scale, others):
        h = torch.relu(torch.addmm(self.linear.bias, x, self.linear.weight.T))
        return {"b": h * scale, "a": h * torch.rsqrt(h.square().mean(-1, keepdim=True) + EPS) + others["y"]}
"""
JUDGE = ["judge", "candidate.py", "--spec", "reference.py", "--report-dir", "report", "-q"]
CODES = [
    word
    for code in ("FWD:given", "CALLS:same", "FWD:small", "FWD:params", "LAYOUT:strides", "LAYOUT:align")
    for word in ("-k", code)
]


def _write_candidate(folder: Path, eps: str) -> None:
    (folder / "candidate.py").write_text(CANDIDATE.replace("EPS", eps))


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copied_candidates: None) -> Path:
    (tmp_path / "reference.py").write_text(SPEC)
    _write_candidate(tmp_path, "1e-2")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _run(program: Path) -> tuple[int, str]:
    """A program's exit status and text, in a process and a folder where the framework is not."""
    code = "import runpy, sys; sys.modules['opassay'] = None; sys.argv[:] = sys.argv[1:]; runpy.run_path(sys.argv[0])"
    words = [sys.executable, "-c", code, str(program.absolute())]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd="/", check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_a_case_asks_its_question_again_and_its_program_shows_it(
    pair: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*JUDGE, *CODES]) == 1
    failures = {v.cell.property: v.failure for v in load(pair / "report" / "run.json").verdicts if v.failure}
    assert set(failures) == {"FWD:given", "CALLS:same", "FWD:small", "FWD:params", "LAYOUT:strides", "LAYOUT:align"}
    files = {path.name for path in (pair / "report" / "cases").iterdir()}
    assert {f"{failure.case_id}.json" for failure in failures.values()} <= files
    # CALLS:same depends on the call before it, so that one call does not show it.
    assert f"{failures['CALLS:same'].case_id}.py" not in files
    assert failures["CALLS:same"].snippet.startswith("# No program: One call")
    # The weight takes more bytes than a program has in its text.
    assert f"{failures['FWD:given'].case_id}.bin" in files
    programs = {
        code: pair / "report" / "cases" / f"{f.case_id}.py" for code, f in failures.items() if code != "CALLS:same"
    }
    for code, program in programs.items():
        status, text = _run(program)
        worst = json.loads((program.with_suffix(".json")).read_text())
        assert (status, worst["question"]) == (1, code), text
        measure = next(v.measure for v in load(pair / "report" / "run.json").verdicts if v.cell.property == code)
        assert measure.worst is not None
        # Bit for bit what the judge was given.
        assert f"computed {float.fromhex(measure.worst.computed)!r}, exact {measure.worst.exact}, allowed " in text
        assert ("laid(" in program.read_text()) == (
            code in ("FWD:given", "FWD:params", "LAYOUT:strides", "LAYOUT:align")
        )

    capsys.readouterr()
    name = failures["FWD:small"].case_id
    assert main(["replay", name[:9], "--report-dir", "report"]) == 1
    output = capsys.readouterr()
    assert "FWD:small: out['a']" in output.out
    assert output.out.count("\nWRONG") == 1
    assert "has changed" not in output.err
    assert main(["replay", f"report/cases/{name}.json"]) == 2
    assert "add --op 'candidate.py'" in capsys.readouterr().err

    _write_candidate(pair, "1e-5")
    assert main(["replay", name[:9], "--report-dir", "report"]) == 0
    assert "the file of the candidate has changed since" in capsys.readouterr().err
    for program in programs.values():
        status, text = _run(program)
        assert status == 0, text


@pytest.mark.fast_cases("a folder")
@pytest.mark.parametrize("folder", ["a folder", "deep/er", "opassay-report"])
def test_every_printed_replay_command_works_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "import torch\ndef reference(x): return x.exp()\ndef kernel(x): return x.exp() * 1.01\n"
        "def inputs(seed): return (torch.linspace(0, 1, 8),)\n"
    )
    of = ["--spec", "mine.py:reference", "-k", "FWD:given", "--report-dir"]
    main(["judge", "mine.py:reference", *of, "before"])
    assert main(["judge", "mine.py:kernel", *of, folder]) == 1
    (failure,) = [verdict.failure for verdict in load(Path(folder, "run.json")).verdicts if verdict.failure]
    command = f"opassay replay {failure.case_id} --op mine.py:kernel"
    command += "" if folder == "opassay-report" else f" --report-dir {shlex.quote(folder)}"
    texts = [html.unescape(Path(folder, name).read_text()) for name in ("report.html", "junit.xml")]
    capsys.readouterr()
    for words in (["gate"], ["report", "compare", "before/run.json"]):
        main([*words, f"{folder}/run.json"])
        texts.append(" ".join(capsys.readouterr().out.split()))
    main(["report", "causes", "--out", "causes", f"{folder}/run.json"])
    texts += [page.read_text() for page in Path("causes").glob("0*.md") if "```python" not in page.read_text()]
    for text in texts:
        assert re.search(re.escape(command) + r"(?! --report-dir)", text), text
    assert main(shlex.split(command)[1:]) == 1
    assert "FWD:given: out[" in capsys.readouterr().out


FAULTS = """
import torch

def reference(x, weight):
    return torch.tanh(x) * weight

class Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return torch.tanh(x) * weight

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        y = torch.tanh(x)
        return g * (1 - y * y) * weight * 1.01, (g * y).sum(0)

def gradient(x, weight):
    return Tanh.apply(x, weight)

def compiled(x, weight):
    return reference(x, weight) * (1.01 if torch.compiler.is_compiling() else 1)

def poison(x, weight):
    y = torch.empty_like(x)
    y[:-1] = reference(x, weight)[:-1]
    return torch.where(y.isnan(), y, reference(x, weight))

def autocast(x, weight):
    return reference(x, weight) * (1.1 if torch.is_autocast_enabled("cpu") else 1)

def raising(x, weight):
    if not x.count_nonzero():
        raise ArithmeticError("no number but zero")
    return reference(x, weight)

def get_inputs():
    return [torch.randn(8, 6, requires_grad=True), torch.randn(6, requires_grad=True)]
"""


#: Of a candidate of that file, the question that it fails.
CODES_OF = {
    "gradient": "VJP:grad",
    "raising": "SPECIAL:zeros",
    "compiled": "COMP:compiled",
    "poison": "POISON",
    "autocast": "AUTOCAST",
}


@pytest.mark.fast_cases("poison")
@pytest.mark.parametrize("name", sorted(CODES_OF))
def test_a_call_in_another_manner_has_a_program(name: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FAULTS)
    report, address = tmp_path / "report", f"{tmp_path}/mine.py:{name}"
    codes = ["-k", "FWD:given", "-k", CODES_OF[name]]
    assert (
        main(["judge", address, "--spec", f"{tmp_path}/mine.py:reference", "-q", "--report-dir", str(report), *codes])
        == 1
    )
    (program,) = (report / "cases").glob("*.py")
    status, text = _run(program)
    assert status == 1, text
    assert "computed" in text
    (tmp_path / "mine.py").write_text(f"{FAULTS}\n{name} = reference\n")
    status, text = _run(program)
    assert status == 0, text


ARGUMENTS = """
import torch

def reference(x, *, scale):
    return torch.softmax(x, -1) * scale, x.argmax(-1)

def named(x, *, scale):
    return torch.softmax(x, -1) * scale * FACTOR, x.argmax(-1)

def in_order(values, factor):
    return named(values, scale=factor)

def into(x, scale, out, places):
    out[:], places[:] = named(x, scale=scale)

def raising(x, scale, out, places):
    into(x, scale, out, places)
    assert FACTOR == 1, "not right"

def inputs():
    return {"x": torch.randn(4, 8), "scale": 2.0}
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["named", "in_order", "into", "raising"])
def test_arguments_with_names_and_destinations_have_a_program(name: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(ARGUMENTS.replace("FACTOR", "1.01"))
    report, address = tmp_path / "report", f"{tmp_path}/mine.py:{name}"
    words = ["--spec", f"{tmp_path}/mine.py:reference", "-q", "--report-dir", str(report), "-k", "FWD:given"]
    assert main(["judge", address, *words]) == 1
    (program,) = (report / "cases").glob("*.py")
    status, text = _run(program)
    assert (status, "computed" in text) == (1, True), text
    (tmp_path / "mine.py").write_text(ARGUMENTS.replace("FACTOR", "1"))
    status, text = _run(program)
    assert status == 0, text


def test_a_broken_case_is_refused(pair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*JUDGE, "-k", "FWD:small"]) == 1
    (path,) = (pair / "report" / "cases").glob("*.json")
    case = json.loads(path.read_text())
    for changed in ({**case, "seed": "0"}, {**case, "other": 1}, {**case, "cell": {}}):
        path.write_text(json.dumps(changed))
        assert main(["replay", path.stem, "--report-dir", "report"]) == 2
        assert "case file: " in capsys.readouterr().err


@pytest.mark.slow
def test_what_was_wrong_before_is_asked_first(pair: Path) -> None:
    codes = ["-k", "FWD:given", "-k", "FWD:signs", "-k", "FWD:small"]
    _write_candidate(pair, "3e-5")
    for cells in (
        ["FWD:given", "FWD:signs", "FWD:small"],
        ["FWD:given", "FWD:small"],
    ):  # the second run ends before it reaches FWD:signs
        assert main([*JUDGE, *codes, "-x"]) == 1
        run = load(pair / "report" / "run.json")
        assert [verdict.cell.property for verdict in run.verdicts] == cells
        assert read_failures(Path("report"), "candidate.py", "reference.py") == ["FWD:small"]
    assert read_failures(Path("report"), "candidate.py", "other.py") == []
    assert read_failures(None, "candidate.py", "reference.py") == []
