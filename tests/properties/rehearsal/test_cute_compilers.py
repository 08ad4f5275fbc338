"""CuTe's compiler, whatever version, has PTX put into the module that has the machine code."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from opassay.properties.rehearsal import cute


@pytest.mark.parametrize("returned", [None, "another module"])
def test_ptx_goes_into_the_module_that_comes_or_else_into_that_which_was_changed(
    monkeypatch: pytest.MonkeyPatch, returned: str | None
) -> None:
    class Compiler:
        def compile(self, module: str, pipeline: str) -> str | None:
            path = pipeline.partition("dump-ptx-path=")[2].rstrip("})")
            Path(f"{path}.sm_90.ptx").write_text(f"// {module}")
            return returned

    filled: list[tuple[Any, bytes]] = []
    monkeypatch.setitem(sys.modules, "cutlass.base_dsl.compiler", SimpleNamespace(Compiler=Compiler))
    monkeypatch.setattr(cute, "_replace_images", lambda module, text: filled.append((module, text)))
    cute.keep_ptx()
    assert Compiler().compile("module", "passes{arch=sm_90}") == returned
    assert filled == [(returned or "module", b"// module")]
