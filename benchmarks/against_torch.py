"""Every op against torch's own on the CPU, at sizes where memory decides: medians of ratios of runs that take turns.

`python benchmarks/against_torch.py [OP ...]`. A row has the quartiles beside the median, and what it is held against;
the first line says on which processor, and what else that had to do.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from measurement import Row, at_most, compare, line, surroundings
from torch import Tensor

from opassay import impl

ROUNDS = 31
LIMIT = 1.1
aten = torch.ops.aten


@dataclass(frozen=True)
class Case:
    """One comparison: both functions get the same operands; `limits` for forward, and forward with backward."""

    op: str
    label: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    operands: Callable[[], tuple[Tensor, ...]]
    limits: tuple[float, float | None] = (LIMIT, LIMIT)


def keep_large_blocks() -> None:
    """Tells glibc to serve blocks up to 32 MB, its maximum, from the heap and not to give them back.

    By default it maps and unmaps them, and the page faults of that take longer than the kernels.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mmap_threshold, trim_threshold = -3, -1
        mallopt(mmap_threshold, 1 << 25)
        mallopt(trim_threshold, (1 << 31) - 1)


def _normal(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: tuple(torch.randn(shape).to(dtype) for shape in shapes)


def _norms() -> Iterator[Case]:
    for rows, length in ((512, 768), (4096, 1024)):
        for dtype in (torch.float32, torch.bfloat16):
            shape = (length,)
            yield Case(
                "layer_norm", f"{rows}x{length} {_short(dtype)}", lambda x, w, b, s=shape: impl.layer_norm(x, s, w, b),
                lambda x, w, b, s=shape: F.layer_norm(x, s, w, b), _normal((rows, length), shape, shape, dtype=dtype),
            )  # fmt: skip
    for size, groups in (((8, 256, 32, 32), 32), ((32, 64, 56, 56), 8)):
        affine = (size[1],)
        yield Case(
            "group_norm", f"{_by(size)} G{groups}", lambda x, w, b, g=groups: impl.group_norm(x, g, w, b),
            lambda x, w, b, g=groups: F.group_norm(x, g, w, b), _normal(size, affine, affine),
        )  # fmt: skip
        for mode, limits in (("training", (0.5, LIMIT)), ("eval", (LIMIT, LIMIT))):
            ours, theirs = (_batch_norm(f, mode == "training") for f in (impl.batch_norm, F.batch_norm))
            yield Case(
                "batch_norm", f"{_by(size)} {mode}", ours, theirs, _normal(size, affine, affine), limits,
            )  # fmt: skip
        yield Case(
            "batch_norm", f"{_by(size)} training bf16", _batch_norm(impl.batch_norm, True),
            _batch_norm(F.batch_norm, True), _normal(size, affine, affine, dtype=torch.bfloat16),
        )  # fmt: skip


def _batch_norm(function: Callable[..., Tensor], training: bool) -> Callable[..., Tensor]:
    running: list[Tensor] = []

    def call(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        if not running:
            running[:] = [torch.zeros(x.shape[1], dtype=w.dtype), torch.ones(x.shape[1], dtype=w.dtype)]
        return function(x, *running, w, b, training)

    return call


def _rest() -> Iterator[Case]:
    for name in ("softmax", "log_softmax"):
        ours, theirs = getattr(impl, name), getattr(F, name)
        for size, dim in (((4096, 1000), -1), ((512, 32000), -1), ((64, 1000, 64), 1)):
            yield Case(
                name, f"{_by(size)} dim {dim}", lambda x, f=ours, d=dim: f(x, d),
                lambda x, f=theirs, d=dim: f(x, d), _normal(size),
            )  # fmt: skip
    yield Case("log_sigmoid", "2^20", impl.log_sigmoid, F.logsigmoid, _normal((1 << 20,)))
    yield Case("log_sigmoid", "2^24", impl.log_sigmoid, F.logsigmoid, _normal((1 << 24,)))
    yield Case("trace", "4096x4096", impl.trace, torch.trace, _normal((4096, 4096)))
    target = torch.randint(0, 1000, (4096,))
    for name in ("nll_loss", "cross_entropy"):
        ours, theirs = getattr(impl, name), getattr(F, name)
        yield Case(
            name, "4096x1000 mean", lambda x, f=ours: f(x, target), lambda x, f=theirs: f(x, target),
            _normal((4096, 1000)),
        )  # fmt: skip
    spatial = torch.randint(0, 21, (8, 256, 256))
    for name in ("nll_loss", "cross_entropy"):
        ours, theirs = getattr(impl, name), getattr(F, name)
        yield Case(
            name, "8x21x256x256 mean", lambda x, f=ours: f(x, spatial), lambda x, f=theirs: f(x, spatial),
            _normal((8, 21, 256, 256)), (1.0, LIMIT),
        )  # fmt: skip


def _response_norm() -> Iterator[Case]:
    """Against the module (2x forward, 8x backward are asked), and against the function with the same window."""
    for size in ((8, 96, 27, 27), (16, 256, 27, 27)):
        ours = impl.CrossMapLRN2d(5)
        limits = (0.5, None) if size[0] == 8 else (LIMIT, LIMIT)
        yield Case("cross_map_lrn2d", f"{_by(size)} module", ours, torch.nn.CrossMapLRN2d(5), _normal(size), limits)
        yield Case(
            "cross_map_lrn2d", f"{_by(size)} function", ours, lambda x: F.local_response_norm(x, 5), _normal(size)
        )


def _by(size: tuple[int, ...]) -> str:
    return "x".join(map(str, size))


def _short(dtype: torch.dtype) -> str:
    return {torch.float32: "f32", torch.bfloat16: "bf16"}[dtype]


def _forward(function: Callable[..., Any], operands: tuple[Tensor, ...]) -> Callable[[], object]:
    return lambda: function(*operands)


def _backward(function: Callable[..., Any], operands: tuple[Tensor, ...]) -> Callable[[], object]:
    leaves, out, cotangent = _graph(function, operands)
    del out
    return lambda: torch.autograd.grad(function(*leaves), leaves, cotangent)


def _backward_alone(function: Callable[..., Any], operands: tuple[Tensor, ...]) -> Callable[[], object]:
    leaves, out, cotangent = _graph(function, operands)
    return lambda: torch.autograd.grad(out, leaves, cotangent, retain_graph=True)


def _graph(function: Callable[..., Any], operands: tuple[Tensor, ...]) -> tuple[list[Tensor], Tensor, Tensor]:
    leaves = [t.clone().requires_grad_() for t in operands]
    out = function(*leaves)
    return leaves, out, torch.randn(out.shape).to(out.dtype)


def rows(wanted: tuple[str, ...] = ()) -> Iterator[Row]:
    keep_large_blocks()
    for case in (*_norms(), *_rest(), *_response_norm()):
        if wanted and case.op not in wanted:
            continue
        operands = case.operands()
        passes = [("forward", _forward, case.limits[0]), ("forward + backward", _backward, case.limits[1])]
        if case.limits[1] is None:  # the backward alone is what is asked
            passes[1] = ("backward", _backward_alone, 1 / 8)
        for name, make, limit in passes:
            ratio = compare(make(case.ours, operands), make(case.theirs, operands), ROUNDS)
            label = f"{case.op} {case.label} {name}, {ratio.seconds * 1e3:.3g} ms"
            assert limit is not None
            yield at_most("torch", label, ratio.median, f"x torch [{ratio.low:.2f}, {ratio.high:.2f}]", limit)


if __name__ == "__main__":
    print(", ".join(f"{name} {value}" for name, value in surroundings().items()))
    for row in rows(tuple(sys.argv[1:])):
        print(line(row), flush=True)
