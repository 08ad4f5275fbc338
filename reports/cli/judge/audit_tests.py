"""`opassay audit-tests`: which faults the comparisons of somebody's tests would let pass."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from ... import exit_codes
from ...text import one_line
from ..host import Stop, require

_PLUGIN = "opassay.properties.candidates.suites.comparisons"


@click.command("audit-tests", context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, required=True, metavar="PATH [PYTEST OPTIONS]", type=click.UNPROCESSED)
def audit_tests_command(words: tuple[str, ...]) -> int:
    """Run tests with pytest, and say which faults their comparisons would let pass.

    Wherever a test calls assert_close, allclose, assert_allclose or assert_array_almost_equal, the same comparison is
    tried with an output that is zero, constant, of the other sign, times 1.05, without a tile or a row, rounded to
    bfloat16, or with a NaN. Tests run as ever, and nothing of theirs is written.
    Exit codes: 0 no fault passes, 1 some do, 2 the tests cannot be run, 5 nothing is compared.
    \f

    Args:
        words: for pytest.
    """
    require("torch", "pytest")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "comparisons.ndjson"
        file.touch()
        settings = {"OPASSAY_COMPARISONS": str(file), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-p", _PLUGIN, "-p", "no:cacheprovider", *words]
        done = subprocess.run(command, env={**os.environ, **settings}, stdout=sys.stderr, check=False)
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    if done.returncode not in (0, 1, 5):
        raise Stop(exit_codes.USAGE, f"pytest ended with {done.returncode}; its output stands above")
    for line in dict.fromkeys(map(_line, rows)):
        click.echo(line)
    faults = Counter(name for row in rows for name in [*row["sees"], *row["misses"]])
    misses = Counter(name for row in rows for name in row["misses"])
    tests, share = len({row["test"] for row in rows}), misses.total() / max(faults.total(), 1)
    counts = f"{misses.total()} of {faults.total()} faults pass ({share:.0%})"
    click.echo(f"{len(rows)} comparisons in {tests} tests let {counts}")
    for name, count in misses.most_common():
        click.echo(f"  {name}: {count} of {faults[name]}")
    if not rows:
        return exit_codes.NOTHING
    return exit_codes.FAILED if misses else exit_codes.OK


def _line(row: dict[str, Any]) -> str:
    """A comparison in a line, and what would see more in another."""
    where = os.path.relpath(row["line"])
    misses = ", ".join(row["misses"]) or "nothing"
    text = f"{where} {row['test'].rpartition('::')[2]}: {row['by']} misses {misses}; sees {len(row['sees'])}"
    instead = row["instead"] if row["misses"] else ""
    return "\n    instead: ".join(one_line(part, 400) for part in (text, instead) if part)
