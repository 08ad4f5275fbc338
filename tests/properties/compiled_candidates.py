"""Triton kernels judged in the caller's process as compiled PTX; not a test itself.

`python -m tests.properties.compiled_candidates` prints, as JSON, what `judge` and `verify_kernel` say of each, and
whether Triton has its own launches and its own driver afterwards.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

import torch
import triton
import triton.language as tl
from triton.runtime import driver
from triton.runtime.jit import JITFunction

import opassay


@triton.jit  # type: ignore[untyped-decorator]
def _double(X, Y, n, MORE: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + k, 2 * tl.load(X + k, mask=k < n + MORE), mask=k < n + MORE)


def _of(more: int) -> Any:
    def double(x: torch.Tensor) -> torch.Tensor:
        x, y = x.contiguous(), torch.empty(x.shape, dtype=x.dtype)
        with contextlib.suppress(Exception):  # whoever catches a fault of a launch has had one all the same
            _double[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), MORE=more, BLOCK=64)
        return y

    return double


def _reference(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


def answers() -> dict[str, Any]:
    """By kernel what each function says; and whether Triton is as it was."""
    before, results = (JITFunction.run, driver._active), {}
    for name, more in (("right", 0), ("beyond its operands", 1)):
        judgement = opassay.judge(
            _of(more), _reference, (torch.randn(5, 7),), questions=("FWD:given", "SPECIAL:zeros"), compiled="sm_80"
        )
        verdicts = opassay.verify_kernel(
            _of(more), _reference, {"x": ("N", "n")}, properties=("FWD", "DET"), compiled="sm_80"
        )
        causes = [str(cause.wrong.code) for cause in judgement.causes if cause.wrong is not None]
        results[name] = [str(judgement.verdict), causes, [str(each.code) for each in verdicts], [*judgement.execution]]
    return {**results, "restored": (JITFunction.run, driver._active) == before}


if __name__ == "__main__":
    print(json.dumps(answers()))
