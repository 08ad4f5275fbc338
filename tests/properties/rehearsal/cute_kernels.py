"""Kernels of CuTe DSL and their host code, right and wrong, for tests; what stands here asks for a GPU and for CuTe."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import from_dlpack

_THREADS = 64
_BOX = (8, 32)


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


@cute.kernel
def _carry(atom: cute.CopyAtom, x: cute.Tensor, y: cute.Tensor, waits: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    memory = cutlass.memory.SmemAllocator()
    gate = memory.allocate_array(cutlass.Int64)
    layout = cute.make_ordered_layout(_BOX, order=(1, 0))
    tile = memory.allocate_tensor(cutlass.Float32, layout, byte_alignment=128)
    if thread == 0:
        cute.arch.mbarrier_init(gate, 1)
        cute.arch.mbarrier_init_fence()
    cute.arch.barrier()
    boxes = cute.group_modes(cute.local_tile(x, _BOX, (None, 0)), 0, 2)
    near, far = cpasync.tma_partition(atom, 0, cute.make_layout(1), cute.group_modes(tile, 0, 2), boxes)
    if thread == 0:
        cute.arch.mbarrier_arrive_and_expect_tx(gate, 1024)
    cute.copy(atom, far[None, block], near, tma_bar_ptr=gate)
    if cutlass.const_expr(waits):
        cute.arch.mbarrier_wait(gate, 0)
    for row in cutlass.range_constexpr(_BOX[0]):
        if 8 * block + row < y.shape[0]:
            y[8 * block + row, thread] = tile[row, thread] * 2.5


@cute.jit
def _launch_carry(x: cute.Tensor, y: cute.Tensor, waits: cutlass.Constexpr):
    layout = cute.make_ordered_layout(_BOX, order=(1, 0))
    atom, mapped = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), x, layout, _BOX)
    _carry(atom, mapped, y, waits).launch(grid=[cute.ceil_div(x.shape[0], _BOX[0]), 1, 1], block=[32, 1, 1])


def carried(x: torch.Tensor, waits: bool = True) -> torch.Tensor:
    """Rows of 32 columns, by a map of the tensor that host code makes without the driver."""
    y = torch.empty_like(x)
    operands = [from_dlpack(each, assumed_align=16).mark_layout_dynamic(leading_dim=1) for each in (x, y)]
    _launch_carry(*operands, waits)
    return y


def reference(x: torch.Tensor) -> torch.Tensor:
    return x * 2.5


def inputs() -> tuple[torch.Tensor]:
    return (torch.randn(100, device="cuda"),)
