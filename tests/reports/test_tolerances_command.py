"""`opassay tolerances`: the forms in which tolerances are printed, and how it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from opassay.properties.candidates.tolerances import AtolRtol, Faults, Tolerance
from opassay.reports.cli.judge.tolerances import _FORMS

ROWS = [
    Tolerance(
        "float32",
        case,
        "out",
        AtolRtol(1e-6, rtol),
        AtolRtol(5e-7, 1e-6),
        3.0,
        1e-6,
        64,
        0,
        Faults(misses, 9, len(misses)),
    )
    for case, rtol, misses in (("n=4", 2e-6, ()), ("n=8", 3e-6, ("gelu with approximate=tanh",)))
]


def test_the_table_says_what_is_not_seen() -> None:
    head, *rows, first, second = _FORMS["table"](ROWS)
    assert head.split()[:5] == ["dtype", "inputs", "output", "atol", "rtol"]
    assert [row.split()[:5] for row in rows] == [
        ["float32", "n=4", "out", "1e-06", "2e-06"], ["float32", "n=8", "out", "1e-06", "3e-06"],
    ]  # fmt: skip
    assert first == "float32 n=4 out: does not see no fault that was tried; sees 9; accept sets see all 9"
    assert "does not see gelu with approximate=tanh; sees 9; accept sets see all 10; 1 could not be tried" in second


def test_the_other_forms_are_read_by_what_they_are_for() -> None:
    names: dict[str, object] = {}
    exec("\n".join(_FORMS["python"](ROWS)), names)
    assert names["TOLERANCES"] == {(row.dtype, row.case, row.output): dict(row.pair._asdict()) for row in ROWS}
    # In a process of its own: these parts of torch forbid to change its flags from where they are imported on.
    text = "\n".join(["import torch", *_FORMS["torch"](ROWS)])
    ends = "print(type(TOLERANCES).__name__, *TOLERANCES.d[torch.float32])"
    done = subprocess.run([sys.executable, "-c", f"{text}\n{ends}"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["toleranceOverride", "1e-06", "3e-06"]
    first, second = yaml.safe_load("\n".join(_FORMS["yaml"](ROWS)))
    assert (first["dtype"], first["inputs"], float(first["rtol"])) == ("float32", "n=4", 2e-6)
    assert second["does_not_see"] == ["gelu with approximate=tanh"]


@pytest.mark.slow
def test_the_command_prints_what_it_derived_and_refuses_what_it_cannot(tmp_path: Path) -> None:
    text = "import torch\ndef f(x):\n    return x.exp()\ndef inputs(n=3):\n    return (torch.randn(n) * 40,)\n"
    (tmp_path / "mine.py").write_text(text)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "opassay", "tolerances", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)

    done = run("mine.py:f", "--dtype", "float32", "--input", "n=2", "--input", "n=5", "--draws", "40")
    assert "float32  n=2" in done.stdout
    assert "float32  n=5" in done.stdout
    assert done.returncode == 4
    assert "elements have no bound, and no tolerance" in done.stderr
    done = run("mine.py:g")
    assert done.returncode == 2
    done = run("mine.py:f", "--contract", "tight")
    assert (done.returncode, done.stdout) == (2, "")
    assert "contract" in done.stderr
