"""`accuracy_check`: what tuners of kernels ask of a configuration before they take its time."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import opassay


def _sums(x: torch.Tensor) -> torch.Tensor:
    return x.sum(1)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_a_tuner_of_triton_takes_a_right_configuration() -> None:
    command = [sys.executable, "-W", "ignore", "-m", "tests.properties.candidates.tuned_kernel"]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True)
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    right = str({"BLOCK": 16, "WHOLE": 1, "WIDE": 1})
    assert answers["memory that is used again"] == answers["zeros"] == answers["in place"] == right
    assert answers["in place of zeros"] == right
    assert answers["none"].startswith("double, in every configuration: out[")
    first = answers["log"][0]
    assert first.startswith("double with BLOCK=64, WHOLE=0, WIDE=1, num_warps=4")
    assert "is NaN where the exact value is" in first
    assert [line.partition(",")[0].removeprefix("double with ") for line in answers["log"]] == [
        *["BLOCK=64", "BLOCK=32"] * 3, "BLOCK=32",
    ]  # fmt: skip


def test_helion_s_search_takes_a_right_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its search compiles, calls and judges here as on a GPU; the times of those that are right are made up."""
    pytest.importorskip("helion", reason="Helion is not installed")
    from helion.autotuner import EnumFragment, benchmark_provider
    from helion.autotuner.external import autotune

    monkeypatch.setattr(benchmark_provider, "do_bench", lambda launch, **_: launch() is None or 1.0)
    refusals: list[str] = []
    check = opassay.accuracy_check(_sums)

    def hold(actual: Any, expected: Any) -> None:
        try:
            check(actual, expected)
        except AssertionError as err:
            refusals.append(str(err))
            raise

    best = autotune(
        {"block": EnumFragment((64, 25)), "narrow": EnumFragment((True, False))}, _compiled, (torch.rand(4, 100),),
        baseline_fn=check.baseline, autotune_baseline_accuracy_check_fn=hold, algorithm="RandomSearch",
        count=12, device=torch.device("cpu"), autotune_random_seed=1,
    )  # fmt: skip
    assert dict(best) == {"block": 25, "narrow": False}
    assert refusals
    assert all(text.startswith("_sums: out[") for text in refusals)


def _compiled(config: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """A sum of rows in whole blocks, so that 64 forgets the tail of 100; narrow ones add in bfloat16."""

    def add(x: torch.Tensor) -> torch.Tensor:
        x = x[:, : x.shape[1] // config["block"] * config["block"]]
        return (x.bfloat16() if config["narrow"] else x).sum(1).to(x.dtype)

    return add


def test_the_check_holds_what_no_tolerance_does() -> None:
    check, x = opassay.accuracy_check(_sums, contract="torch"), torch.rand(4, 100)
    with pytest.raises(RuntimeError, match=r"autotune_baseline_fn has to be the check's \.baseline"):
        check(x, x)
    expected = check.baseline(x)
    assert torch.equal(expected, _sums(x))
    check(x.flip(1).sum(1), expected)
    x += 1  # What the tuner does with its tensors afterwards is no matter.
    with pytest.raises(AssertionError, match=r"^_sums: out\[\d\] is .* where the exact value is"):
        check(expected + 1e-3, expected)
    with pytest.raises(AssertionError, match="float16"):
        check(expected.half(), expected)


def test_what_a_spec_writes_is_held_among_the_arguments() -> None:
    def scale(x: torch.Tensor, factor: float) -> None:
        x.mul_(factor)

    check, x = opassay.accuracy_check(scale), torch.rand(5)
    before = x.clone()
    assert check.baseline(x, 3.0) is None
    assert torch.equal(x, before * 3)
    check(None, None)
    check((before * 3, 3.0), (x, 3.0))
    with pytest.raises(AssertionError, match="scale: "):
        check((before * 3.001, 3.0), (x, 3.0))
    with pytest.raises(opassay.SpecError, match="gives tensors and writes others"):
        opassay.accuracy_check(lambda x: x.mul_(2) + 1).baseline(x)


def test_nothing_known_is_no_refusal(caplog: pytest.LogCaptureFixture) -> None:
    check = opassay.accuracy_check(_sums)
    expected = check.baseline(torch.full((1, 3), 3e38))
    check(expected, expected)
    assert "_sums: out is not known" in caplog.text


def test_what_is_no_tuner_is_refused() -> None:
    check = opassay.accuracy_check(_sums)
    with pytest.raises(TypeError, match=r"of_triton: got a function, need what triton\.autotune gives"):
        check.of_triton(("X",), ("Y",))(_sums)
    with pytest.raises(ValueError, match="contract: got 'torhc'"):
        opassay.accuracy_check(_sums, contract="torhc")
