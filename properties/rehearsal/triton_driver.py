"""Triton's driver on the rehearsal device, as host code asks it: devices, properties, and no times."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import triton.testing
from triton import knobs
from triton.backends.driver import GPUDriver
from triton.backends.nvidia.driver import CudaDriver
from triton.compiler import CompiledKernel

from .torch_cuda import PROPERTIES

#: What a launcher is told before the arguments: three sizes of the grid, the stream, the function, two records of it,
#: and two hooks.
_TOLD = 9


class DeviceUtilities:
    """`driver.active.utils`."""

    def get_device_properties(self, device: int) -> dict[str, int]:
        """What Triton's own gives of a GPU; the clocks are an H100's."""
        return {
            "max_shared_mem": PROPERTIES.shared_memory_per_block_optin,
            "max_num_regs": PROPERTIES.regs_per_multiprocessor,
            "multiprocessor_count": PROPERTIES.multi_processor_count,
            "warpSize": PROPERTIES.warp_size,
            "sm_clock_rate": 1980000,
            "mem_clock_rate": 2619000,
            "mem_bus_width": 5120,
        }

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[str, str, int, int, int]:
        """Nothing is loaded; the registers of a thread are those that ptxas gave it."""
        return name, name, *registers_of(binary), PROPERTIES.max_threads_per_block


class RehearsalDriver(CudaDriver):  # type: ignore[misc]
    """`triton.runtime.driver.active`."""

    def __init__(self) -> None:
        self.utils, self.launcher_cls = DeviceUtilities(), lambda source, metadata: None
        GPUDriver.__init__(self)  # that of CUDA builds a library for the driver of a GPU
        self.get_current_stream = lambda device=None: torch.cuda.current_stream(device).cuda_stream

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """No buffer of so many megabytes: there is no cache to be cleared."""
        return torch.empty(1, dtype=torch.int32, device="cuda")


def registers_of(binary: bytes) -> tuple[int, int]:
    """The registers of a thread, and those that did not fit, as NVIDIA's program reads them that comes with Triton."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    counts = dict(re.findall(r"\b(REG|STACK|LOCAL):(\d+)", lines))
    return int(counts["REG"]), (int(counts["STACK"]) + int(counts["LOCAL"])) // 4


def launch_binaries(execute: Callable[[Any, tuple[int, ...], Mapping[str, Any]], None]) -> None:
    """Have kernels that were compiled be executed where they are launched by themselves, `binary[grid](...)`.

    Args:
        execute: (binary, sizes of the grid, arguments by name), which executes it.
    """
    original = CompiledKernel._init_handles

    @functools.wraps(original)
    def init_handles(binary: Any) -> None:
        if binary.module is not None:
            return
        original(binary)
        binary._run = lambda *words: execute(binary, words[:3], _named(binary, words[_TOLD:]))

    CompiledKernel._init_handles = init_handles
    for name in ("n_regs", "n_spills", "n_max_threads"):
        setattr(CompiledKernel, name, _Loaded(name))


def _named(binary: Any, values: Sequence[object]) -> dict[str, object]:
    """The arguments of a launch by name; constants behind the last one need not be given, as Triton's launcher has it.

    Raises:
        TypeError: there are too few.
    """
    kinds = binary.src.signature
    if any(kind != "constexpr" for kind in [*kinds.values()][len(values) :]):
        raise TypeError(f"{binary.name}: got {len(values)} arguments, need {len(kinds)}, constants among them")
    return dict(zip(kinds, values, strict=False))


class _Loaded:
    """What Triton reads of a kernel when it loads it for its launch, read when host code asks for it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, binary: Any, _: object) -> Any:
        binary._init_handles()  # which sets an attribute of the binary, and that hides this one
        return vars(binary)[self._name]


def take_no_times() -> None:
    """Have Triton's functions that take times call what they are given once, and say that each takes a millisecond.

    So of many configurations the first one that does not raise is the fastest one.
    """

    def call_once(
        fn: Callable[[], object], *_: Any, quantiles: Sequence[float] | None = None, return_mode: str = "mean",
        **__: Any,
    ) -> Any:  # fmt: skip
        fn()
        return triton.testing._summarize_statistics([1.0], quantiles, return_mode)

    for name in ("do_bench", "do_bench_cudagraph"):
        before = getattr(triton.testing, name, None)
        for module in [*sys.modules.values()]:
            if before is not None and getattr(module, name, None) is before:
                setattr(module, name, call_once)


def take_no_times_of_inductor() -> None:
    """Have inductor call its kernels once, too, where it would take their times."""
    benchmarking = sys.modules["torch._inductor.runtime.benchmarking"]

    def call_once(_: object, call: Callable[[], object], *__: Any, **___: Any) -> float:
        call()
        return 1.0

    for kind in vars(benchmarking).values():
        if isinstance(kind, type) and "benchmark_gpu" in vars(kind):
            kind.benchmark_gpu = call_once  # type: ignore[attr-defined]
