"""`explain_bound`: the parts of a radius are those of the operations that round, and together they are the radius."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import opassay
from opassay.properties.candidates.bound_parts import BoundParts

X = torch.randn(6, 200, generator=torch.Generator().manual_seed(0))


def rms(x: Any) -> Any:
    mean = x.square().mean(-1, keepdim=True)
    return x * torch.rsqrt(mean + 1e-6)


def formula(x: Any) -> Any:
    weights = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return weights / np.sum(weights, axis=-1, keepdims=True)


def share(parts: BoundParts, words: str) -> float:
    return sum(part.share for part in parts.parts if words in f"{part.operation} {part.line}")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "spec", [rms, F.silu, lambda x: torch.softmax(x, -1), lambda x: x @ x.T, lambda x: F.layer_norm(x, (200,))]
)
def test_parts_add_up_to_the_radius(spec: Any, dtype: torch.dtype) -> None:
    parts = opassay.explain_bound(spec, X.to(dtype))
    # Products of errors, and rounded constants, are the rest: of bfloat16 some hundredths.
    assert abs(parts.rest) < 0.05
    assert abs(sum(part.share for part in parts.parts) + parts.others + parts.rest - 1.0) < 1e-12
    edges = opassay.bound(spec, X.to(dtype))
    assert isinstance(edges, opassay.Bound)
    assert (parts.radius, parts.half_width) == (float(edges.radius[parts.index]), float(edges.half_width[parts.index]))


def test_a_part_is_named_by_its_line_and_grows_with_what_rounds() -> None:
    assert (
        share(opassay.explain_bound(rms, X), f"sum of mean line {rms.__code__.co_firstlineno + 1} of test_bound") > 0.9
    )
    assert share(opassay.explain_bound(rms, X[:, :2]), "sum of mean") < 0.9
    # An exponential that may be off by 68 ulp in place of one.
    tight, wide = (opassay.explain_bound(lambda x: x.exp2() * x * x, X, contract=c) for c in ("torch", "torch+xla"))
    assert share(wide, "exp2 line") > 0.9 > share(tight, "exp2 line")
    # Of bfloat16 what is stored on the way counts, and not its sums in float32.
    assert share(opassay.explain_bound(rms, X.bfloat16()), "storing") > 0.7


def test_a_formula_in_numpy_has_lines_as_well() -> None:
    parts = opassay.explain_bound(opassay.Formula(formula), X)
    assert share(parts, f"sum line {formula.__code__.co_firstlineno + 2}") > 0.9
    assert parts.dtype == "float32"


def test_what_is_exact_has_no_parts() -> None:
    parts = opassay.explain_bound(lambda x: (x.exp(), x[1:]), X, output=1, index=(-1, 0))
    assert (parts.index, parts.radius, parts.parts, parts.others, parts.rest) == ((4, 0), 0.0, (), 0.0, 0.0)
    assert "<td>" in parts._repr_html_()


@pytest.mark.parametrize(
    ("words", "error", "text"),
    [
        ({"output": 2}, IndexError, "output=2: the floating outputs are 0"),
        ({"index": (6, 0)}, IndexError, r"index=\(6, 0\): out has shape \(6, 200\)"),
        ({"index": (1,)}, IndexError, r"index=\(1,\)"),
        ({"contract": "torhc"}, ValueError, "did you mean 'torch'"),
    ],
)
def test_what_is_not_there_is_told(words: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        opassay.explain_bound(rms, X, **words)


def test_an_element_without_a_bound_is_told() -> None:
    with pytest.raises(opassay.SpecError, match="no element has a bound"):
        opassay.explain_bound(lambda x: x * 3e38 * x, X.abs() + 10)
    with pytest.raises(opassay.SpecError, match=r"out\[0, 0\] has no bound"):
        opassay.explain_bound(lambda x: x * torch.tensor([3e38, 1.0]), X.abs()[:, :2] + 10, index=(0, 0))


def test_the_command_prints_it(tmp_path: Path) -> None:
    text = "import torch\ndef f(x):\n    return x.exp().sum(-1)\ndef inputs(n=3):\n    return (torch.randn(2, n),)\n"
    (tmp_path / "mine.py").write_text(text)

    command = [sys.executable, "-m", "opassay", "bound", "mine.py:f", "--input", "n=300", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=True)
    (first, *_) = json.loads(done.stdout)["parts"]
    assert first[2] == "sum"
    assert first[0] > 0.9
