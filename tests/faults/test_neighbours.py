"""Ops that harm their process are named, and their neighbours' verdicts are what they are without them, bit for bit."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from opassay import Cell, Settings, run_cell
from opassay.oracles.verdicts.data import as_data
from opassay.oracles.verdicts.verdict import Code, Outcome, Verdict
from tests.faults.runs import HERE, command, environment, load

pytestmark = pytest.mark.slow

#: The ops of `contaminating.py`, and what must be said of each.
HARMS = {
    "dtype": "default dtype",
    "once": "default dtype",
    "flush": "flush-to-zero",
    "threads": "threads",
    "torch_seed": "torch",
    "handler": "SIGTERM",
    "patched": "torch.add",
    "directory": "directory",
    "thread": "left a thread",
}
NEIGHBOURS = ("trace", "log_sigmoid", "contaminating:good")
#: Samples of a cell: enough that an op which fires once has fired before the cell of PURE.
SAMPLES = 4


def _run(folder: Path, *ops: str) -> tuple[Verdict, ...]:
    """The verdicts of a run in worker processes."""
    words = ["--property=FWD", "--property=SPECIAL", "--property=PURE", "--dtype=float32", "-n", "2"]
    done = subprocess.run(
        command("run", *ops, *words, "--profile=brief", f"--max-examples={SAMPLES}", "--timeout=120", stub=False),
        cwd=folder, env=environment(PYTHONPATH=str(HERE)), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return load(folder).verdicts


def _as_data(verdicts: Iterable[Verdict]) -> dict[str, object]:
    """The verdicts of the neighbours, without what a clock says; floats are hexadecimal text, so NaNs are compared."""
    neighbours = (verdict for verdict in verdicts if verdict.cell.op in NEIGHBOURS)
    return {verdict.cell.key: as_data(replace(verdict, seconds=0.0, timing=())) for verdict in neighbours}


def test_neighbours_are_unharmed_and_who_harms_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Foreign ops stand before and after those of the catalog.
    names = [f"contaminating:{name}" for name in HARMS]
    among = _run(tmp_path, *names[:5], *NEIGHBOURS, *names[5:])
    monkeypatch.syspath_prepend(str(HERE))
    cells = [Cell(op, code, "float32", "cpu", "opassay") for op in NEIGHBOURS for code in ("FWD", "SPECIAL", "PURE")]
    alone = [run_cell(cell, Settings("brief", max_examples=SAMPLES)) for cell in cells]
    assert _as_data(among) == _as_data(alone)
    assert {v.outcome for v in alone} == {Outcome.VERIFIED}
    for name, message in HARMS.items():
        own = {v.cell.property: v for v in among if v.cell.op == f"contaminating:{name}"}
        assert own["PURE"].outcome is Outcome.FAIL, name
        assert own["PURE"].code is Code.MUTATED, name
        assert own["PURE"].failure is not None
        assert message in own["PURE"].failure.message, (name, own["PURE"].failure.message)
        assert own["FWD"].outcome is Outcome.VERIFIED, (name, own["FWD"])
