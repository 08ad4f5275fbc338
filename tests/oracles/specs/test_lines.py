"""The line that an error names is one of the user's, wherever a spec was written."""

from __future__ import annotations

import linecache
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import opassay
from opassay.properties.candidates import judging

SOURCE = """
import dataclasses
import torch

@dataclasses.dataclass
class Scale:
    factor: float

def helper(y):
    return torch.special.erfcx(y)

def calls_helper(x):
    return helper(x * Scale(2.0).factor)

def branches(x):
    return x if x.sum() > 0 else -x

def goes_through_numpy(x):
    return torch.from_numpy(x.numpy() * 2)

class Layer(torch.nn.Module):
    def forward(self, x):
        return torch.special.erfcx(x)

layer = Layer()
nameless = lambda x: x * float(x[0, 0])
"""
#: The name of a spec -> its function as Python calls it, and its line.
LINES = {
    "calls_helper": ("helper", 10),
    "branches": ("branches", 16),
    "goes_through_numpy": ("goes_through_numpy", 19),
    "layer": ("Layer.forward", 23),
    "nameless": ("<lambda>", 26),
}
FILE = "file"


def _spec(name: str, where: str) -> Any:
    module: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(SOURCE, where, "exec"), module)
    return module[name]


@pytest.mark.parametrize("where", ["<string>", "<stdin>", "<ipython-input-3-0a1b>", "/tmp/ipykernel_7/123.py", FILE])
@pytest.mark.parametrize("name", LINES)
def test_an_error_names_a_line_of_the_spec(
    name: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    function, line = LINES[name]
    of, text = function, ""
    if where.startswith("/"):  # a notebook has no file, and tells its source
        monkeypatch.setitem(linecache.cache, where, (len(SOURCE), None, SOURCE.splitlines(keepends=True), where))
        text = f" ({SOURCE.splitlines()[line - 1].strip()})"
    elif where == FILE:
        path = tmp_path / "mine.py"
        path.write_text(SOURCE)
        where, of, text = str(path), "mine.py", f" ({SOURCE.splitlines()[line - 1].strip()})"
    spec, x, place = _spec(name, where), torch.ones(2, 2), re.escape(f"line {line} of {of}{text}") + r"[:, ]"
    for ask in (lambda: opassay.bound(spec, x), lambda: opassay.assert_conforms(x, spec, x)):
        with pytest.raises(opassay.SpecError, match=place):
            ask()
    assert re.search(place, judging.judge(spec, spec, (x,), seed=0).error)


def test_where_the_spec_has_no_line_of_its_own_the_error_names_none() -> None:
    with pytest.raises(opassay.SpecError, match=r"erfcx.default, which") as error:
        opassay.bound(torch.special.erfcx, torch.ones(2))
    assert "line" not in str(error.value)
