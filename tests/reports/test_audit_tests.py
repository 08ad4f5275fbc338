"""`opassay audit-tests`: which faults comparisons let pass, and that tests run as ever."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

THEIRS = """
import numpy as np
import torch
from torch.nn import functional as F
from torch.testing import assert_close

X = torch.arange(1.0, 65.0).reshape(4, 16) / 7


def test_tight():
    assert_close(F.silu(X), F.silu(X))


def test_loose():
    expected = F.gelu(X)
    assert_close(F.gelu(X), expected, atol=1.0, rtol=0.1)


def test_of_methods_and_arrays():
    assert (X * 2).allclose(torch.add(X, X), atol=100.0)
    np.testing.assert_allclose(actual=X.numpy() * 2, desired=np.add(X, X), rtol=0.1)
    assert not torch.allclose(X, X + 1)
    assert_close(X.softmax(-1), X.softmax(-1), atol=1.0, rtol=0.0)


def test_of_zeros():
    assert_close(torch.zeros(4, 8), torch.zeros(4, 8))


def test_of_integers():
    assert_close(torch.arange(3), torch.arange(3))


def test_red():
    assert_close(X, X + 1)
"""


def _audit(folder: Path, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_theirs.py").write_text(text)
    command = [sys.executable, "-m", "opassay", "audit-tests", *words, "test_theirs.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, check=False)


def test_what_comparisons_miss_is_told_with_what_would_see_it(tmp_path: Path) -> None:
    done = _audit(tmp_path, THEIRS)
    lines = done.stdout.splitlines()
    assert done.returncode == 1, done.stderr
    assert "1 failed, 5 passed" in done.stderr
    assert lines[0] == "test_theirs.py:11 test_tight: assert_close misses nothing; sees 8"
    assert lines[1].startswith("test_theirs.py:16 test_loose: assert_close misses all times 1.05, rounded to bfloat16;")
    assert lines[2] == "    instead: assert_conforms(F.gelu(X), F.gelu, X)"
    assert "allclose misses all zeros, a constant: the mean, the other sign," in lines[3]
    assert "assert_allclose misses all times 1.05, rounded to bfloat16; sees 6" in "\n".join(lines)
    assert any(line.startswith("6 comparisons in 4 tests let ") for line in lines)
    assert "X.softmax," not in done.stdout
    assert any("test_of_zeros: assert_close misses nothing; sees 1" in line for line in lines)
    assert [path.name for path in tmp_path.iterdir()] == ["test_theirs.py"]


def test_a_comparison_of_theirs_is_audited_by_the_argument_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "ratios.py").write_text(
        "def assert_ratio(name, expected, actual, ratio):\n"
        "    assert ((actual - expected).norm() <= ratio * expected.norm()).item(), name\n"
    )
    text = "import torch\nfrom ratios import assert_ratio\n\n\ndef test_it():\n"
    text += "    assert_ratio('y', torch.ones(4, 8), torch.ones(4, 8), ratio=0.1)\n"
    done = _audit(tmp_path, text, "--comparison", "ratios:assert_ratio:2", "--json", "rows.json")
    assert "assert_ratio misses all times 1.05" in done.stdout, done.stderr
    (row,) = json.loads((tmp_path / "rows.json").read_text())
    assert {"all zeros", "the other sign"} <= {*row["sees"]}
    done = _audit(tmp_path, text, "--comparison", "ratios")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--comparison: got 'ratios', need MODULE:FUNCTION" in done.stderr


def test_a_comparison_inside_of_one_of_theirs_counts_once(tmp_path: Path) -> None:
    (tmp_path / "near.py").write_text("import torch\ndef near(a, b):\n    assert torch.allclose(a, b, rtol=0.1)\n")
    text = "import torch\nfrom near import near\n\n\ndef test_it():\n    near(torch.ones(8), torch.ones(8))\n"
    done = _audit(tmp_path, text, "--comparison", "near:near")
    assert "near misses all times 1.05" in done.stdout
    assert "1 comparisons in 1 tests" in done.stdout


def test_a_fault_that_a_comparison_cannot_take_is_counted(tmp_path: Path) -> None:
    (tmp_path / "picky.py").write_text("def check(a, b):\n    if a[0] == 0:\n        raise TypeError('no zeros')\n")
    text = "import torch\nimport picky\n\n\ndef test_it():\n    picky.check(torch.ones(8), torch.ones(8))\n"
    done = _audit(tmp_path, text, "--comparison", "picky:check")
    assert "not tried, " in done.stdout
    assert "TypeError: no zeros" in done.stdout


def test_approximate_and_exact_comparisons_are_tried_where_a_test_asserts_them(tmp_path: Path) -> None:
    text = """
import numpy as np
import pytest
import torch

X = torch.arange(1.0, 33.0).reshape(4, 8)
def scripted(x, y): return torch.allclose(x, y) and torch.equal(x, y)


def test_numbers():
    assert float(X.mean()) == pytest.approx(16.5, rel=0.1)
    assert {"a": 16.5} == pytest.approx({"a": 16.0}, rel=0.1)
    assert X.double().numpy() == pytest.approx(X.numpy(), rel=0.1)
    assert 1.0 != pytest.approx(2.0)


def test_exact():
    assert torch.equal(X, X.clone()) and X.equal(X.clone())
    assert np.array_equal(X.numpy(), X.numpy())
    np.testing.assert_array_equal(X.numpy()[::-1], X.numpy()[::-1])
    same = torch.equal(X, X)  # a program's own question
    assert not torch.equal(X, X + 1)
    assert torch.jit.script(scripted)(X, X)
    assert np.array_equal(np.ones(3, np.longdouble), np.ones(3))
"""
    done = _audit(tmp_path, text, "--json", "rows.json")
    assert "2 passed" in done.stderr, done.stdout
    each = json.loads((tmp_path / "rows.json").read_text())
    rows = {(int(row["line"].rpartition(":")[2]), row["by"]): row for row in each}
    approximate = [rows.pop((line, "approx")) for line in (11, 12, 13)]
    for row in approximate:
        assert {"all times 1.05"} <= {*row["misses"]}
        assert {"all zeros", "the other sign", "one NaN"} <= {*row["sees"]}
    assert {*rows} == {(18, "equal"), (19, "array_equal"), (20, "assert_array_equal")}
    assert not any(row["misses"] or row["untried"] for row in rows.values())


def test_an_answer_that_is_a_number_is_judged_by_the_assertion_around_it(tmp_path: Path) -> None:
    (tmp_path / "errors.py").write_text("def ratio(a, b):\n    return float((a - b).norm() / b.norm())\n")
    text = """
import unittest
import torch
from errors import ratio

X = torch.ones(4, 8)


class TestOfTheirs(unittest.TestCase):
    def test_ratio(self):
        limit = 0.1
        self.assertLess(abs(ratio(X, X)), limit)
        assert (
            ratio(X, X) <= limit / 8
        ), "far"


def test_limits():
    limits = iter([0.1])
    assert ratio(X, X) < next(limits)
    error = ratio(X, X)
    assert error < 1
"""
    done = _audit(tmp_path, text, "--comparison", "errors:ratio", "--json", "rows.json")
    assert "2 passed" in done.stderr, done.stdout
    loose, tight, *unknown = json.loads((tmp_path / "rows.json").read_text())
    assert loose["misses"] == ["all times 1.05"]
    assert tight["misses"] == []
    assert {"all zeros", "the other sign", "all times 1.05", "one NaN"} <= {*tight["sees"]}
    assert [row["sees"] + row["misses"] for row in unknown] == [[], []]
    assert "ratio gives no truth value, and no assertion around it without other calls judges it" in done.stdout


def test_the_end_says_whether_anything_was_compared(tmp_path: Path) -> None:
    assert _audit(tmp_path, "def test_nothing(): pass\n").returncode == 5
    done = _audit(tmp_path, "def test_nothing(:\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert "pytest ended with 2" in done.stderr


def test_the_page_shows_what_the_command_prints(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "from_assert_close.md"
    (sample,) = re.findall(r"\$ opassay audit-tests tests/(\S+)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    text = "import torch\nimport torch.nn.functional as F\n\nkernel = F.gelu\n\n\ndef test_gelu():\n"
    text += "    x = torch.randn(64, 64)\n"
    text += "    torch.testing.assert_close(kernel(x), F.gelu(x), rtol=1e-2, atol=1e-2)\n"
    lines = _audit(tmp_path, text).stdout.replace("test_theirs.py", f"tests/{sample[0]}").splitlines()
    assert lines[:2] == sample[1].splitlines()


def test_the_sign_of_a_nan_is_no_fault(tmp_path: Path) -> None:
    text = "import numpy as np\n\n\ndef test_nans():\n"
    text += "    np.testing.assert_allclose(np.full(9, np.nan), np.full(9, np.nan))\n"
    lines = _audit(tmp_path, text).stdout.splitlines()
    assert lines[0].startswith("test_theirs.py:5 test_nans: assert_allclose misses nothing; sees ")
