"""Which faults the tests of installed libraries let pass: `opassay audit-tests` on their checkouts, a line each.

    python -m benchmarks.audited_tests CHECKOUTS [--seconds 240] [--only NAME ...] [--json FILE]

CHECKOUTS is a folder with a library's repository under each name of the table, at the version that is installed; numpy
and scipy bring their tests with them, and fla-core's row needs no checkout. A library that is not there is told.
A suite that takes longer than `--seconds` is interrupted, which its row says. One thread, no seed of its own: inputs
are those of the tests.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Any

#: fla-core's own comparison, of right outputs of its l2_norm at two shapes of its tests.
_FLA = """
import pytest
import torch
import torch.nn.functional as F
from fla.utils import _testing


@pytest.mark.parametrize("shape", [(2, 500, 4, 64), (4, 1024, 5, 1024)])
def test_l2_norm(shape):
    torch.manual_seed(42)
    dtype = torch.bfloat16 if shape[-1] > 512 else torch.float32
    x = torch.randn(shape, dtype=dtype) * 0.5 + 0.3
    _testing.assert_close("y", F.normalize(x, dim=-1), F.normalize(x, dim=-1), 0.005)
"""


@dataclass(frozen=True)
class Suite:
    """Tests of a distribution: a folder below CHECKOUTS, or a module that brings them; and words for the command."""

    name: str
    distribution: str
    folder: str
    words: tuple[str, ...]
    needs: str = ""


SUITES = (
    Suite("liger", "liger-kernel", "liger",
          ("--comparison", "test.utils:assert_verbose_allclose", "test/chunked_loss")),
    Suite("kornia", "kornia", "kornia", ("tests/color",)),
    Suite("linear_operator", "linear-operator", "linop", ("test/functions", "test/utils")),
    Suite("entmax", "entmax", "entmax", ("entmax",)),
    Suite("torchao", "torchao", "ao", ("test/test_low_bit_optim.py", "test/test_utils.py")),
    Suite("numpy", "numpy", "", ("--pyargs", "numpy.linalg.tests.test_linalg"), needs="hypothesis"),
    Suite("scipy", "scipy", "", ("--pyargs", "scipy.special"), needs="hypothesis"),
    Suite("fla", "fla-core", "", ("--comparison", "fla.utils._testing:assert_close:2", "test_fla.py"), needs="fla"),
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """What a suite's comparisons let pass; `most`: the faults that pass most often, with how many were tried."""

    library: str
    tests: str
    comparisons: int
    miss: int
    misses: int
    faults: int
    untried: int
    most: str
    end: str

    @classmethod
    def of(cls, suite: Suite, rows: Sequence[dict[str, Any]], end: str) -> Row:
        misses = Counter(name for row in rows for name in row["misses"])
        faults = Counter(name for row in rows for name in [*row["sees"], *row["misses"]])
        most = ", ".join(f"{name} {count} of {faults[name]}" for name, count in misses.most_common(3))
        untried = sum(len(row["untried"]) for row in rows)
        tests = " ".join(word for word in suite.words if not word.startswith("--") and ":" not in word)
        library = f"{suite.distribution} {metadata.version(suite.distribution)}"
        miss = sum(bool(row["misses"]) for row in rows)
        return cls(library, tests, len(rows), miss, misses.total(), faults.total(), untried, most, end)

    def line(self) -> str:
        share = f"{self.misses:,} of {self.faults:,}"
        return f"| {self.library}, {self.tests} | {self.comparisons:,} | {self.miss:,} | {share} | {self.most} |"


def absence_of(suite: Suite, checkouts: Path) -> str:
    """Why a suite cannot be run here; empty where it can."""
    try:
        metadata.version(suite.distribution)
    except metadata.PackageNotFoundError:
        return f"{suite.distribution} is not installed"
    if suite.needs and util.find_spec(suite.needs) is None:
        return f"{suite.needs} is not installed"
    folder = checkouts / suite.folder
    return "" if not suite.folder or folder.is_dir() else f"{folder}: no such folder"


def audit(suite: Suite, checkouts: Path, seconds: float) -> Row:
    """Run a suite for so many seconds at most."""
    with tempfile.TemporaryDirectory() as own:
        file = Path(own) / "rows.json"
        (Path(own) / "test_fla.py").write_text(_FLA, encoding="utf-8")
        command = [sys.executable, "-m", "opassay", "audit-tests", "--json", str(file), *suite.words]
        process = subprocess.Popen(
            command, cwd=checkouts / suite.folder if suite.folder else own, start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "FLA_CI_ENV": "1"}, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        end = "ended by itself"
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            end = f"interrupted after {seconds:g} s"
            os.killpg(process.pid, signal.SIGINT)
            process.wait()
        if not file.is_file():
            return Row.of(suite, [], f"ended with {process.returncode} and no record")
        return Row.of(suite, json.loads(file.read_text(encoding="utf-8")), end)


def main(words: Sequence[str] | None = None) -> int:
    """Print the rows of all suites, and write them as a JSON array where a file is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--only", nargs="+", choices=[suite.name for suite in SUITES])
    parser.add_argument("--json", type=Path, dest="file")
    options = parser.parse_args(words)
    if not options.checkouts.is_dir():
        parser.error(f"CHECKOUTS: got {str(options.checkouts)!r}, need a folder")
    rows = []
    print("| library, tests | comparisons | that miss a fault | faults that pass | most of them |")
    print("|---|---|---|---|---|")
    for suite in [suite for suite in SUITES if not options.only or suite.name in options.only]:
        absence = absence_of(suite, options.checkouts)
        if absence:
            print(f"{suite.name}: not run, {absence}", file=sys.stderr)
            continue
        rows.append(audit(suite, options.checkouts.resolve(), options.seconds))
        print(rows[-1].line(), flush=True)
        print(f"{suite.name}: {rows[-1].end}; {rows[-1].untried} faults could not be tried", file=sys.stderr)
    if options.file:
        options.file.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    return 0 if rows else 2


if __name__ == "__main__":
    sys.exit(main())
