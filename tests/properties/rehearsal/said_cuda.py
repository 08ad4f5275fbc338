"""Host code as public wrappers have it: each function asks for a GPU in a way of its own, and doubles its argument."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
import triton.testing
from torch import Tensor
from triton.runtime import driver

NUMBERS = torch.arange(4, device="cuda")  # a device at import


@triton.jit
def double_each(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def triple_each(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 3 * tl.load(x + i, mask=i < n), mask=i < n)


def _launched(x: Tensor, y: Tensor | None = None, block: int = 64, kernel=double_each) -> Tensor:
    x = x.contiguous()
    y = torch.empty_like(x) if y is None else y
    kernel[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), BLOCK=block)
    return y


def of_device(x: Tensor) -> Tensor:
    assert x.is_cuda
    return _launched(x, torch.empty(x.shape, device="cuda", dtype=x.dtype))


def moved(x: Tensor) -> Tensor:
    return _launched(x.cuda())


def guarded(x: Tensor) -> Tensor:
    with torch.cuda.device(x.device), torch.cuda.device(x.device.index), torch.cuda.device(0), torch.cuda.device_of(x):
        return _launched(x)


def by_properties(x: Tensor) -> Tensor:
    properties = torch.cuda.get_device_properties(x.device)
    assert torch.cuda.get_device_capability() == (properties.major, properties.minor)
    assert properties.multi_processor_count > 100
    assert properties.shared_memory_per_block_optin > 100_000
    return _launched(x)


def by_driver(x: Tensor) -> Tensor:
    assert driver.active.get_active_torch_device() == x.device
    facts = driver.active.utils.get_device_properties(x.device.index)
    assert facts["multiprocessor_count"] == torch.cuda.get_device_properties(0).multi_processor_count
    assert facts["max_shared_mem"] > 100_000
    assert facts["warpSize"] == 32
    assert driver.active.get_current_target().backend == "cuda"
    assert driver.active.get_device_interface() is torch.cuda
    driver.active.get_device_interface().synchronize()
    return _launched(x)


def by_fastest(x: Tensor) -> Tensor:
    def take_time(block: int) -> float:
        try:
            time: float = bench(lambda: _launched(x, block=block), quantiles=(0.5, 0.2, 0.8))[0]
        except triton.CompilationError:
            return float("inf")
        return time

    bench = driver.active.get_benchmarker()
    assert triton.testing.do_bench(lambda: _launched(x)) > 0
    return _launched(x, block=min((48, 32, 64), key=take_time))  # 48 is no power of two


def accelerated(x: Tensor) -> Tensor:
    kind = torch.accelerator.current_accelerator()
    assert kind is not None
    torch.accelerator.synchronize()
    assert torch.accelerator.device_count() == torch.cuda.device_count()
    assert torch.accelerator.current_device_index() == x.device.index
    return _launched(x.to(kind.type))


def streamed(x: Tensor) -> Tensor:
    main, side = torch.cuda.current_stream(x.device), torch.cuda.Stream()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        y = _launched(x)
        x.record_stream(side)
    main.wait_stream(side)
    y.record_stream(main)
    torch.cuda.synchronize()
    return y


def racing(x: Tensor) -> Tensor:
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        y = _launched(x)
        x.record_stream(side)
        y.record_stream(main)
    return 1.0 * y


def graphed(x: Tensor) -> Tensor:
    x = x.contiguous().clone()
    graph, y = torch.cuda.CUDAGraph(), torch.empty_like(x)
    _launched(x, y)
    with torch.cuda.graph(graph):
        _launched(x, y)
    y.zero_()
    graph.replay()
    return y


@torch.compile(backend="eager")
def compiled(x: Tensor) -> Tensor:
    return _launched(x)


@torch.compile
def generated(x: Tensor) -> Tensor:
    return 2 * x.exp().log()


def by_fallback(x: Tensor) -> Tensor:
    if not x.is_cuda:
        return x + x
    return _launched(x)


def by_branch(x: Tensor) -> Tensor:
    if x.device.type == "cuda":
        block = 64
    return _launched(x, block=block)


def with_small_things(x: Tensor) -> Tensor:
    torch.cuda.nvtx.range_push("double")
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    assert isinstance(event, torch.cuda.Event)
    assert event.elapsed_time(event) == 0
    assert torch.cuda.memory_stats()["allocated_bytes.all.current"] == torch.cuda.memory_allocated()
    torch.cuda.nvtx.range_pop()
    return _launched(x)


def tripled_on_gpu(x: Tensor) -> Tensor:
    return _launched(x, kernel=triple_each) if x.is_cuda else x + x


def through_binary(x: Tensor) -> Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    binary = double_each.warmup(x, y, x.numel(), BLOCK=64, grid=(1,))
    binary._init_handles()
    assert binary.n_regs > 0
    assert binary.n_spills == 0
    binary[(triton.cdiv(x.numel(), 64), 1, 1)](x, y, x.numel(), 64)
    return y


class Buffer:
    """Elements of a tensor from one on, as libraries have them without a view: Triton asks for a pointer alone."""

    def __init__(self, memory: Tensor, first: int) -> None:
        self.memory, self.first, self.dtype = memory, first, memory.dtype

    def data_ptr(self) -> int:
        return self.memory.data_ptr() + self.first * self.memory.element_size()


def _halves(x: Tensor, more: int = 0) -> Tensor:
    x, n = x.contiguous(), x.numel() // 2
    y = torch.empty_like(x)
    double_each[(triton.cdiv(n, 64),)](x, y, n, BLOCK=64)
    double_each[(triton.cdiv(x.numel() - n, 64),)](Buffer(x, n), Buffer(y, n), x.numel() - n + more, BLOCK=64)
    return y


def by_pointer(x: Tensor) -> Tensor:
    return _halves(x)


def by_pointer_too_far(x: Tensor) -> Tensor:
    return _halves(x, more=1)


def told_of_a_launch(x: Tensor, count: int = 3) -> Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 64), 1, 1)
    binary = double_each[grid](x, y, x.numel(), BLOCK=64)
    assert (binary.n_regs > 0, binary.n_spills, binary.n_max_threads) == (True, 0, 1024)
    binary[grid](*(x, y.zero_(), x.numel())[:count])  # a constant behind the last argument need not be given
    return y


def told_too_little(x: Tensor) -> Tensor:
    return told_of_a_launch(x, 2)


def tripled(x: Tensor) -> Tensor:
    with torch.cuda.device(x.device):
        return _launched(x, kernel=triple_each)


def tripled_in_graph(x: Tensor) -> Tensor:
    y = graphed(x)
    return y if x.numel() == 1 else 1.5 * y


def on_host(x: Tensor) -> Tensor:
    return _launched(x).cpu()


RIGHT = (
    of_device, moved, guarded, by_properties, by_driver, by_fastest, accelerated, streamed, graphed, compiled,
    through_binary, by_fallback, by_branch, with_small_things, by_pointer, told_of_a_launch,
)  # fmt: skip
WRONG = (tripled, tripled_in_graph, on_host, racing, tripled_on_gpu, by_pointer_too_far, told_too_little)
