"""Wrong declarations, one of each kind: the author is told what, where and what to write instead; the code is 2."""

from __future__ import annotations

import dataclasses
import inspect
import math
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from opassay import Cell, Code, Law, Op, Outcome, Promises, Settings, Verdict, run_cell
from opassay.properties.declaring import strategies
from opassay.reports.exit_codes import NOTHING, USAGE, run_reasons

FEW = Settings("commit", max_examples=3)


def double(x: Any) -> Any:
    return 2 * x


def with_bessel(x: Any) -> Any:
    return np.i0(x) * x


def with_spacing(x: Any) -> Any:
    return np.spacing(x)


def with_a_start_of_a_sum(x: Any) -> Any:
    return np.sum(x, axis=0, initial=1.0)


def with_a_method(x: Any) -> Any:
    return x.summ()


def with_a_function_of_no_such_name(x: Any) -> Any:
    return np.expp(x)  # type: ignore[attr-defined]


def with_math(x: Any) -> Any:
    return _helper(x)


def _helper(x: Any) -> Any:
    return math.exp(x)


def that_writes(x: Any) -> Any:
    x[0] = 0.0
    return x


def of_two(x: Any, y: Any) -> Any:
    return x + y


def calls_nothing(args: Any, rng: Any) -> Any:
    raise LookupError("no such call")


def same_dtype(args: Any) -> Any:
    return (args[0].dtype,)


OP = Op("double", double, {"opassay": lambda x: 2 * x}, strategies.same_shape(1), ("x",), Promises(same_dtype))


def _verdict(op: Op, code: str = "FWD") -> Verdict:
    return run_cell(Cell("double", code, "float32", "cpu", "opassay"), FEW, op)


def _line(function: Any, text: str) -> str:
    """FILE:LINE of the line of a function that holds a text."""
    lines, first = inspect.getsourcelines(function)
    return f"{__file__}:{first + next(i for i, line in enumerate(lines) if text in line)}"


def _require_declaration(verdict: Verdict, *says: str) -> None:
    assert (verdict.outcome, verdict.code) == (Outcome.ERROR, Code.DECLARATION), verdict.reason
    for text in says:
        assert text in verdict.reason
    assert [code for code, _ in run_reasons([verdict])] == [USAGE, NOTHING]


def test_the_declaration_that_the_others_change_is_right() -> None:
    assert _verdict(OP).outcome is Outcome.VERIFIED
    assert _verdict(OP, "VJP").outcome is Outcome.VERIFIED


@pytest.mark.parametrize(
    ("formula", "line", "says", "instead"),
    [
        (with_bessel, "np.i0", "numpy.i0 has no reading", "write it with functions that have one: absolute, add"),
        (with_spacing, "np.spacing", "numpy.spacing has no reading", "write the constant that it has"),
        (with_a_start_of_a_sum, "np.sum", "numpy.sum has no reading with these arguments", "write it as sum(a"),
        (with_a_method, "x.summ()", "no attribute 'summ'", "(did you mean 'sum'?); known are T, "),
        (with_a_function_of_no_such_name, "np.expp", "no attribute 'expp'", "docs/words.md lists"),
        (with_math, "", "float(x), or a function of math", "numpy.exp and not math.exp"),
        (that_writes, "x[0] =", "writes into no array", "write numpy.where"),
    ],
)
@pytest.mark.parametrize("code", ["FWD", "VJP"])
def test_a_formula_without_a_reading(formula: Any, line: str, says: str, instead: str, code: str) -> None:
    op = dataclasses.replace(OP, reference=formula)
    where = _line(formula, line) if line else _line(_helper, "math.exp")
    if code == "VJP" and formula in (with_a_start_of_a_sum,):
        op = dataclasses.replace(op, subjects={"opassay": lambda x: x.sum(0)})
    _require_declaration(_verdict(op, code), "reference: ", says, where, instead)


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        ({"reference": of_two}, "FWD", "reference: of_two(x: 'Any', y: 'Any') -> 'Any' does not take the 1 arguments"),
        ({"differentiable": ("z",)}, "FWD", "got 'z', need arguments of reference: x"),
        ({"promises": Promises(dtypes=cast(Any, lambda: (torch.float32,)))}, "FWD", "promises.dtypes: "),
        (
            {"laws": (Law("none", calls_nothing, cast(Any, lambda *args: None), exact=True),)},
            "LAW",
            "laws[0].calls: raised LookupError",
        ),
        (
            {"samples": lambda dtype: None},
            "FWD",
            "<lambda>() takes 1 positional argument but 2 were given",
        ),
        ({"samples": lambda dtype, kind: 1 / 0}, "FWD", "raised ZeroDivisionError"),
    ],
)
def test_a_declaration_that_does_not_fit(change: dict[str, Any], code: str, says: str) -> None:
    verdict = _verdict(dataclasses.replace(OP, **change), code)
    _require_declaration(verdict, says, f"{__file__}:")


def test_an_error_of_a_reading_is_no_fault_of_the_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opassay.reference.array.elementwise.bind", len)  # which takes no three arguments
    verdict = _verdict(OP)
    assert (verdict.outcome, verdict.code) == (Outcome.ERROR, Code.HARNESS)


@pytest.mark.slow
def test_the_command_line_ends_with_2_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text(
        "import numpy as np\n"
        "from opassay import Op, Promises\n"
        "from opassay.properties.declaring import strategies\n"
        "def formula(x):\n"
        "    return x.minn()\n"
        "OP = Op('theirs', formula, {'opassay': lambda x: x.sign()}, strategies.same_shape(1), (),\n"
        "        Promises(lambda args: (args[0].dtype,)))\n"
    )
    words = ["--op", "theirs:OP", "--property", "FWD", "--dtype", "float32", "--profile", "brief", "-n", "1"]
    command = [sys.executable, "-m", "opassay", "run", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == USAGE, done.stdout + done.stderr
    output = " ".join(done.stdout.split())
    assert "arrays have no attribute 'minn' (did you mean 'min'?); known are T, argmax" in output
    assert "theirs.py:5" in output.replace(" ", "")
