"""Judges extensions of `load_inline` in the manner of KernelBench's candidates: of each a right one, and a wrong one.

    python -m opassay.properties.rehearsal benchmarks/strangers/inline_kernels.py [NAME]...

ends with 1 where a right one is not accepted, or a wrong one is. Each is built once, in half a minute of the processor.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from inline_sources import SOURCES, WORDS
from torch import Tensor
from torch.nn import functional as F
from torch.utils.cpp_extension import load_inline

import opassay
from opassay.properties.candidates.judgement import Judgement

QUESTIONS = ("FWD:given", "CALLS:again")


def _layer_norm(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    mean, variance = x.mean(-1), x.var(-1, correction=0)
    return F.layer_norm(x, x.shape[-1:], w, b, 1e-5), mean, torch.rsqrt(variance + 1e-5)


def _count(x: Tensor) -> Tensor:
    return (x[:, None] == torch.arange(10, device=x.device)).sum(0).int()


class Case(NamedTuple):
    """What an extension means, the shapes of its inputs, and numbers behind them."""

    spec: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    more: tuple[float, ...] = ()
    dtype: torch.dtype = torch.float32


CASES = {
    "gelu": Case(F.gelu, ((7, 45),)),
    "softmax": Case(lambda x: F.softmax(x, -1), ((7, 45),)),
    "matmul": Case(lambda a, b: a @ b, ((19, 37), (37, 21))),
    "layer_norm": Case(_layer_norm, ((5, 70), (70,), (70,)), (1e-5,)),
    "transpose": Case(lambda x: x.t(), ((7, 45),)),
    "sum_rows": Case(lambda x: x.sum(1), ((7, 45),)),
    "swish_vectors": Case(F.silu, ((7, 45),)),
    "add_halves": Case(lambda a, b: a + b, ((300,), (300,)), dtype=torch.float16),
    "count": Case(_count, ((200,),), (10,), torch.int64),
    "huber": Case(lambda x, y: F.huber_loss(x, y, reduction="none"), ((3, 41), (3, 41))),
}


def judge_extension(name: str, faulty: bool) -> Judgement:
    """The judgement of an extension, with its fault or without."""
    case, (declaration, source), (word, right, wrong) = CASES[name], SOURCES[name], WORDS[name]
    text = source.replace(word, wrong if faulty else right)
    module = load_inline(name, declaration, text, functions=[name], extra_cuda_cflags=["-O3"])

    def candidate(*operands: Tensor) -> Any:
        return getattr(module, name)(*(x.contiguous() for x in operands), *case.more)

    torch.manual_seed(0)
    draw = torch.randn if case.dtype.is_floating_point else lambda *shape: torch.randint(0, 10, shape)
    inputs = tuple(draw(*shape).to("cuda", case.dtype) for shape in case.shapes)
    return opassay.judge(candidate, case.spec, inputs, questions=QUESTIONS, compiled="sm_90")


def main() -> int:
    failed = 0
    for name in sys.argv[1:] or CASES:
        for faulty in (False, True):
            began = time.process_time()
            judgement = judge_extension(name, faulty)
            wrong = (judgement.verdict == "rejected") != faulty
            failed += wrong
            codes = sorted({str(cause.wrong.code.value) for cause in judgement.causes if cause.wrong is not None})
            what = WORDS[name][1 + faulty] or "nothing"
            print(
                f"{name:16}{what:32}{judgement.verdict:10}{' '.join(codes):16}{time.process_time() - began:6.1f} CPU s"
                + " UNEXPECTED" * wrong, flush=True,
            )  # fmt: skip
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
