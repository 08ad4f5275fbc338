"""Kernels of CuTe DSL and their host code, right and wrong, for tests; what stands here asks for a GPU and for CuTe."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

_THREADS = 64


@cute.kernel
def _scale(x: cute.Tensor, y: cute.Tensor, by: cutlass.Float32, wrong: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    place = block * _THREADS + thread
    if place < x.shape[0] + wrong:
        y[place] = x[place] * by


@cute.jit
def _launch(x: cute.Tensor, y: cute.Tensor, by: cutlass.Float32, wrong: cutlass.Constexpr):
    blocks = cute.ceil_div(x.shape[0] + wrong, _THREADS)
    _scale(x, y, by, wrong).launch(grid=[blocks, 1, 1], block=[_THREADS, 1, 1])


def _scaled(x: torch.Tensor, by: float, wrong: int) -> torch.Tensor:
    y = torch.empty_like(x)
    operands = [from_dlpack(each).mark_layout_dynamic() for each in (x, y)]
    _launch(*operands, cutlass.Float32(by), wrong)
    return y


def right(x: torch.Tensor) -> torch.Tensor:
    return _scaled(x.contiguous(), 2.5, 0)


def beyond(x: torch.Tensor) -> torch.Tensor:
    return _scaled(x.contiguous(), 2.5, 1)


def unscaled(x: torch.Tensor) -> torch.Tensor:
    return _scaled(x.contiguous(), 1.0, 0)


COMPILED = {}


def compiled(x: torch.Tensor, wrong: int = 0) -> torch.Tensor:
    y = torch.empty_like(x)
    key = (x.dtype, wrong)
    if key not in COMPILED:
        n, dtype = cute.sym_int(), {torch.float32: cutlass.Float32, torch.bfloat16: cutlass.BFloat16}[x.dtype]
        shapes = [cute.runtime.make_fake_compact_tensor(dtype, (n,)) for _ in range(2)]
        COMPILED[key] = cute.compile(_launch, *shapes, cutlass.Float32(1.0), wrong, options="--enable-tvm-ffi")
    COMPILED[key](x.contiguous(), y, 2.5)
    return y


def reference(x: torch.Tensor) -> torch.Tensor:
    return x * 2.5


def inputs() -> tuple[torch.Tensor]:
    return (torch.randn(100, device="cuda"),)
