"""How a Triton kernel is launched, where its results are put, and the count of calls that no kernel serves.

What this is for: a kernel's host code says which kernel to launch, and never on which device. So it runs on a GPU, in
an interpreter that judges every address, and on a recorder that only notes the launches.

What is hard here: below some forty megabytes the call costs more than the kernel does. So nothing here computes what a
caller can look up, and the way from `launch` to Triton is one call. A caller keeps everything that the shapes of a call
decide as `Prepared` launches, in a cache by these shapes.
"""

from __future__ import annotations

import functools
import importlib.util
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar

import torch
from torch import Tensor

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

Grid = tuple[int, ...]
Constants = Mapping[str, object]


class Launcher(Protocol):
    """A device, an interpreter or a recorder that kernels run on."""

    def launch(self, kernel: Any, grid: Grid, operands: tuple[object, ...], constants: Constants, warps: int) -> None:
        """Run a kernel.

        Args:
            kernel: of `triton.jit`.
            grid: how many programs there are, in one to three dims. At least one in each.
            operands: the kernel's first arguments in order: tensors, None, ints, floats.
            constants: its other arguments, those of type `tl.constexpr`, by name.
            warps: how many warps of 32 threads a program has.
        """

    def empty(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        """A contiguous tensor whose every element some kernel will write."""


class Device:
    """The GPU on which the operands are."""

    def launch(self, kernel: Any, grid: Grid, operands: tuple[object, ...], constants: Constants, warps: int) -> None:
        # Triton launches on the current device, whatever device the operands are on. The first operand of every
        # kernel here is a tensor.
        first: Any = operands[0]
        if first.device.index == torch.cuda.current_device():
            kernel[grid](*operands, **constants, num_warps=warps, enable_fp_fusion=False)
            return
        with torch.cuda.device(first.device):
            kernel[grid](*operands, **constants, num_warps=warps, enable_fp_fusion=False)

    def empty(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=device)


_on: list[Launcher] = [Device()]
"""The launchers that were put in use; kernels run on the last one."""


def launch(kernel: Any, grid: Grid, operands: tuple[object, ...], constants: Constants, warps: int = 4) -> None:
    """Run a kernel on the launcher in use; arguments as for `Launcher.launch`. An empty grid runs nothing.

    Args:
        kernel, grid, operands, constants, warps: as for `Launcher.launch`.
    """
    if 0 not in grid:
        _on[-1].launch(kernel, grid, operands, constants, warps)


class Prepared(NamedTuple):
    """A launch but for its tensors.

    Attributes:
        kernel, grid, constants, warps: as for `Launcher.launch`.
        numbers: the last operands, which follow those that a call gives.
    """

    kernel: Any
    grid: Grid
    numbers: tuple[int | float, ...]
    constants: Constants
    warps: int = 4

    def run(self, *operands: object) -> None:
        """Run it on the launcher in use, with these operands in front. An empty grid runs nothing."""
        kernel, grid, numbers, constants, warps = self
        if 0 not in grid:
            _on[-1].launch(kernel, grid, operands + numbers, constants, warps)


def empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A contiguous tensor whose every element a kernel is going to write."""
    return _on[-1].empty(shape, dtype, device)


@contextmanager
def on(launcher: Launcher) -> Iterator[None]:
    """Within the block, kernels run on a launcher: of this process, in all its threads."""
    _on.append(launcher)
    try:
        yield
    finally:
        _on.remove(launcher)


def put_on(launcher: Launcher) -> None:
    """Kernels run on a launcher from now on, for good."""
    _on.append(launcher)


def dense(t: Tensor | None, memory: torch.memory_format = torch.contiguous_format) -> Tensor | None:
    """An operand without gaps, in a memory format; None for one that a call does not have."""
    return None if t is None else t.contiguous(memory_format=memory)


def solid(t: Tensor | None) -> Tensor | None:
    """A tangent with memory that a kernel can read, if there is one.

    Where a function does not depend on its argument, torch may pass a tangent of zeros without memory, which is copied
    here into zeros that have memory.
    """
    return t.clone() if t is not None and t._is_zerotensor() else t


fallbacks: Counter[tuple[str, str]] = Counter()
"""How often a call on a CUDA tensor was served by a composition of torch's ops, by (op, reason)."""


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


compositions: dict[str, Callable[..., Any]] = {}
"""For each op the function that serves it without Triton, and counts its calls in `fallbacks`."""


def by_triton(
    op: str, composed: Callable[Parameters, Result]
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Decorates the host code of an op's kernels, of which `composed` takes the place where Triton is not installed.

    Which of both serves the op is decided here, once, so that no call takes time for it.
    """

    @functools.wraps(composed)
    def count_call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        fall_back(op, "triton is not installed")
        return composed(*args, **kwargs)

    def decorated(host_code: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        compositions[op] = count_call
        return host_code if _has_triton() else count_call

    return decorated


def fall_back(op: str, reason: str) -> None:
    """Counts a call that no kernel serves."""
    fallbacks[op, reason] += 1


def as_operand(value: float, dtype: torch.dtype) -> float | int:
    """A Python float as an operand of a kernel whose sums are in `dtype`; `arithmetic.number` reads it there.

    Triton takes a float for float32. So a kernel in float64 gets the bits of the number, as an int64. The parameter
    must stand in the kernel's `do_not_specialize`, because Triton compiles anew for ints that are 1 or multiples of 16.
    """
    return _bits(value) if dtype is torch.float64 else value


@functools.lru_cache(maxsize=256)
def _bits(value: float) -> int:
    return int.from_bytes(struct.pack("<d", value), "little", signed=True)
