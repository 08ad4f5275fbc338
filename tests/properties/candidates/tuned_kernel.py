"""A Triton kernel whose tuner holds each configuration by a spec, in Triton's interpreter: a program of its own.

It prints, as JSON, which configuration was taken, what the log said of the others, and the card where none is right.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl

import opassay


def _tuner(check: Any, *configurations: dict[str, int], **options: Any) -> Any:
    def bench(launch: Callable[[], Any], quantiles: Sequence[float]) -> list[float]:
        launch()
        return [1.0] * len(quantiles)

    @check.of_triton(inputs=("X",), outputs=("Y",))
    @triton.autotune([triton.Config(each) for each in configurations], key=["n"], do_bench=bench, **options)
    @triton.jit
    def double(X, Y, n, BLOCK: tl.constexpr, WHOLE: tl.constexpr, WIDE: tl.constexpr):
        k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        end = n if WHOLE else n // BLOCK * BLOCK
        x = tl.load(X + k, mask=k < end)
        x = x if WIDE else x.to(tl.bfloat16).to(tl.float32)
        tl.store(Y + k, x + x, mask=k < end)

    return double


def launched(kernel: Any, x: Any, y: Any) -> str:
    """The configuration that is taken, or the first line of the error."""
    try:
        kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    except AssertionError as err:
        return str(err).splitlines()[0]
    return str(kernel.best_config.kwargs)


def main() -> None:
    """Print what the tuners do."""
    log: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: log.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("opassay").addHandler(handler)
    check = opassay.accuracy_check(lambda x: 2 * x)
    tail, narrow = {"BLOCK": 64, "WHOLE": 0, "WIDE": 1}, {"BLOCK": 32, "WHOLE": 1, "WIDE": 0}
    right = {"BLOCK": 16, "WHOLE": 1, "WIDE": 1}
    x = torch.linspace(-1, 1, 100)
    answers = {
        # The memory of the output has the right result from before, so that a forgotten tail leaves it there.
        "memory that is used again": launched(_tuner(check, tail, narrow, right), x, 2 * x),
        "zeros": launched(_tuner(check, tail, narrow, right), x, torch.zeros_like(x)),
        "none": launched(_tuner(check, tail, narrow), x, torch.zeros_like(x)),
        "in place": launched(_tuner(check, narrow, right, restore_value=["Y"]), *[x.clone()] * 2),
        "in place of zeros": launched(_tuner(check, right, narrow), *[torch.zeros(100)] * 2),
    }
    print(json.dumps({**answers, "log": log}))


if __name__ == "__main__":
    main()
