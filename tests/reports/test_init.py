"""`opassay init`: what it writes is run, passes, and fails on a fault; nothing of the user's is overwritten."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

from opassay.properties.table import TABLE
from opassay.reports.cli.main import main

pytestmark = pytest.mark.slow

SCRIPT = r"- name: Assay\n(?:\s+#.*\n)*\s+run: \|\n((?:          .*\n)+)"


def _step(folder: Path) -> subprocess.CompletedProcess[str]:
    """The step of the workflow that judges, run as GitHub's runner does: by `bash -e`."""
    (script,) = re.findall(SCRIPT, (folder / ".github/workflows/opassay.yml").read_text())
    command = f'opassay() {{ "{sys.executable}" -m opassay "$@"; }}\n{script}'
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    words = ["bash", "-e", "-c", command]
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_what_is_written_runs_passes_and_fails_on_a_fault(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path / "mine")]) == 0
    folder = tmp_path / "mine"
    settings = folder / "pyproject.toml"
    # A part of the questions, or this test would take minutes.
    few = 'property = ["FWD", "VJP"]\ndtype = ["float32"]\nmax-examples = 6\nworkers = 1\n'
    settings.write_text(settings.read_text() + few)
    done = _step(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "opassay: all 2 verified" in done.stdout
    assert "gate: ok (exit 0)" in done.stdout
    assert (folder / "opassay-report/report.html").exists()
    # The fault that the example itself proposes.
    example = folder / "opassay_example.py"
    assert "change `x * x` in the op to `x * x * 1.001`" in example.read_text()
    example.write_text(example.read_text().replace("scale * (x * x)\n\n\ndef", "scale * (x * x * 1.001)\n\n\ndef"))
    settings.write_text(settings.read_text().replace('["FWD", "VJP"]', '["FWD"]'))
    done = _step(folder)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "gate: FAIL (exit 1), 1 blocking finding\n" in done.stdout


def test_a_kernel_is_judged_and_a_fault_in_it_is_found(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path), "--kernel"]) == 0
    assert not (tmp_path / "pyproject.toml").exists()
    workflow = tmp_path / ".github/workflows/opassay.yml"
    # A part of the questions, or this test would take minutes.
    workflow.write_text(workflow.read_text().replace("--report-dir", "-k FWD:given -k FWD:offset --report-dir"))
    assert (done := _step(tmp_path)).returncode == 0, done.stdout + done.stderr
    assert "accepted" in done.stdout
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    assert subprocess.run(words, cwd=tmp_path, capture_output=True, timeout=120, check=False).returncode == 0
    example = tmp_path / "opassay_example.py"
    example.write_text(example.read_text().replace("exp(x - x.amax(-1, keepdim=True))", "exp(x)"))
    assert (done := _step(tmp_path)).returncode == 1, done.stdout + done.stderr
    assert "FWD:offset[float32-cpu-candidate] fail" in done.stdout


def test_nothing_is_overwritten_and_settings_are_added(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = '[project]\nname = "mine"\n\n[tool.other]\na = 1\n'
    (tmp_path / "pyproject.toml").write_text(before)
    (tmp_path / "assay.py").write_text("mine = 1\n")
    assert main(["init", str(tmp_path), "--module", "assay", "--no-ci"]) == 0
    output = capsys.readouterr().out
    assert re.search(r"added .*pyproject\.toml", output)
    assert re.search(r"left .*assay\.py", output)
    assert (tmp_path / "assay.py").read_text() == "mine = 1\n"
    assert not (tmp_path / ".github").exists()
    after = (tmp_path / "pyproject.toml").read_text()
    assert after.startswith(before.rstrip())
    assert tomllib.loads(after)["tool"] == {
        "other": {"a": 1},
        "opassay": {"run": {"op": ["assay:OP"], "profile": "commit", "report-dir": "opassay-report"}},
    }
    assert main(["init", str(tmp_path), "--module", "assay", "--no-ci"]) == 0
    assert (tmp_path / "pyproject.toml").read_text() == after
    assert "added" not in capsys.readouterr().out


def test_the_skill_is_written_alone_and_its_example_is_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path), "--skill"]) == 0
    (file,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert file == tmp_path / "skills/opassay/SKILL.md"
    text = file.read_text()
    assert text.startswith("---\nname: opassay\ndescription: ")
    assert len(text.splitlines()) <= 120
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "mine.py").write_text(textwrap.dedent(f"   {example.lstrip()}"))
    capsys.readouterr()
    assert main(["judge", str(tmp_path / "mine.py"), "--json"]) == 0
    line = json.loads(capsys.readouterr().out)
    # Every code that the page names is one, and every field.
    assert set(re.findall(r"\b[A-Z]+:[a-z]+\b", text)) <= {*TABLE}
    assert {*re.findall(r"^- `(\w+)`: ", text, re.MULTILINE)} <= {*line}


def test_the_workflow_names_the_version_of_torch_that_is_here(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path)]) == 0
    text = (tmp_path / ".github/workflows/opassay.yml").read_text()
    assert re.search(r'TORCH: "torch==\d+\.\d+\.\d+"\n', text)
    assert "REQUIREMENT" not in text
    assert "\t" not in text
    assert {len(line) - len(line.lstrip()) for line in text.splitlines()} <= {0, 2, 4, 6, 8, 10}


@pytest.mark.parametrize(
    ("words", "content", "message"),
    [
        ((), b"[tool", "need a pyproject.toml that can be read"),
        ((), b"\xff\xfe", "need a pyproject.toml that can be read"),
        (("--module", "my-ops"), b"", "--module: got 'my-ops', need a name that Python can import"),
    ],
)
def test_what_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], content: bytes, message: str
) -> None:
    (tmp_path / "pyproject.toml").write_bytes(content)
    assert main(["init", str(tmp_path), *words]) == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["pyproject.toml"]
    assert (tmp_path / "pyproject.toml").read_bytes() == content
