"""`opassay audit-tests`: which faults the comparisons of somebody's tests would let pass."""

from __future__ import annotations

import json
import os
import re
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
@click.option("--comparison", "comparers", multiple=True, metavar="MODULE:FUNCTION[:N]",
              help="A function of theirs that compares; its argument N (from 0) is judged. Repeatable.")  # fmt: skip
@click.option("--json", "file_of_rows", type=click.Path(path_type=Path), help="Write what came of each comparison.")
@click.argument("words", nargs=-1, required=True, metavar="PATH [PYTEST OPTIONS]", type=click.UNPROCESSED)
def audit_tests_command(comparers: tuple[str, ...], file_of_rows: Path | None, words: tuple[str, ...]) -> int:
    """Run tests with pytest, and say which faults their comparisons would let pass.

    Wherever a test calls assert_close, allclose, assert_allclose or assert_array_almost_equal, or asserts by approx,
    equal or array_equal, the same comparison is tried with an output that is zero, constant, of the other sign, times
    1.05, without a tile or a row, rounded to bfloat16, or with a NaN. Tests run as ever; nothing of theirs is written.
    Exit codes: 0 no fault passes, 1 some do, 2 the tests cannot be run, 5 nothing is compared, 130 interrupted.
    \f

    Args:
        comparers: beside those that are known. file_of_rows: a JSON array. words: for pytest.
    """
    require("torch", "pytest")
    for each in comparers:
        if not re.fullmatch(r"[\w.]+:\w+(:\d+)?", each):
            raise Stop(exit_codes.USAGE, f"--comparison: got {each!r}, need MODULE:FUNCTION, or MODULE:FUNCTION:N")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "comparisons.ndjson"
        file.touch()
        settings = {"OPASSAY_COMPARISONS": str(file), "OPASSAY_COMPARERS": " ".join(comparers)}
        settings["PYTHONDONTWRITEBYTECODE"] = "1"
        command = [sys.executable, "-m", "pytest", "-q", "-p", _PLUGIN, "-p", "no:cacheprovider", *words]
        code = _run(command, settings)
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    if code not in (0, 1, 2, 5) or (code == 2 and not rows):
        raise Stop(exit_codes.USAGE, f"pytest ended with {code}; its output stands above")
    if file_of_rows is not None:
        file_of_rows.write_text(json.dumps(rows), encoding="utf-8")
    for line in dict.fromkeys(map(_line, rows)):
        click.echo(line)
    faults = Counter(name for row in rows for name in [*row["sees"], *row["misses"]])
    misses = Counter(name for row in rows for name in row["misses"])
    tests, share = len({row["test"] for row in rows}), misses.total() / max(faults.total(), 1)
    counts = f"{misses.total()} of {faults.total()} faults pass ({share:.0%})"
    click.echo(f"{len(rows)} comparisons in {tests} tests let {counts}")
    for name, count in misses.most_common():
        click.echo(f"  {name}: {count} of {faults[name]}")
    untried = Counter(why for row in rows for why in row["untried"].values())
    for why, count in untried.most_common(3):
        click.echo(f"  not tried, {count} times: {one_line(why, 200)}")
    if code == 2:
        click.echo("opassay: interrupted; this is of the comparisons until then", err=True)
        return exit_codes.INTERRUPT
    if not rows:
        return exit_codes.NOTHING
    return exit_codes.FAILED if misses else exit_codes.OK


def _run(command: list[str], settings: dict[str, str]) -> int:
    """The exit code of pytest, which is 2 where it was interrupted."""
    with subprocess.Popen(command, env={**os.environ, **settings}, stdout=sys.stderr) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:  # pytest has it as well, and ends with what it has
                continue


def _line(row: dict[str, Any]) -> str:
    """A comparison in a line, and what would see more in another."""
    where = os.path.relpath(row["line"])
    misses = ", ".join(row["misses"]) or "nothing"
    text = f"{where} {row['test'].rpartition('::')[2]}: {row['by']} misses {misses}; sees {len(row['sees'])}"
    instead = row["instead"] if row["misses"] else ""
    return "\n    instead: ".join(one_line(part, 400) for part in (text, instead) if part)
