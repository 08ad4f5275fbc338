"""Who serves a call on CUDA: host code of kernels, or without Triton a composition that is counted."""

from __future__ import annotations

import pytest

from opassay.impl.gpu import launching


def _composed(x: int) -> str:
    return f"composed {x}"


def _host_code(x: int) -> str:
    return f"launched {x}"


@pytest.mark.parametrize(("present", "expected"), [(True, "launched 3"), (False, "composed 3")])
def test_triton_decides_once_who_serves(monkeypatch: pytest.MonkeyPatch, present: bool, expected: str) -> None:
    monkeypatch.setattr(launching, "_has_triton", lambda: present)
    monkeypatch.setattr(launching, "compositions", {})
    monkeypatch.setattr(launching, "fallbacks", type(launching.fallbacks)())
    serving = launching.by_triton("probe", _composed)(_host_code)
    assert serving(3) == expected
    assert (serving is _host_code) is present
    assert launching.fallbacks.total() == (0 if present else 1)
    # The composition can be asked for where Triton is installed, too, and is counted.
    assert launching.compositions["probe"](3) == "composed 3"
    assert launching.fallbacks["probe", "triton is not installed"] == (1 if present else 2)
