"""Kernels of CUDA C++ as functions of tensors on the CPU: compiled by NVRTC, their PTX executed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from ...verdicts.violation import Unsupported, Violation
from ..compiling import SHARED_MEMORY, architecture
from .account import ACCOUNT
from .chunk import Extents
from .executable import Kernel
from .executor import MOST_BLOCKS, Geometry, PlacedLaunch, three_extents
from .nvrtc import compile_source
from .parameters import lay_out, loads_of, tensors_of

Sizes: TypeAlias = int | Sequence[int]
#: Sizes, or a function of the arguments of a launch that gives them.
SizesOfLaunch: TypeAlias = Sizes | Callable[..., Sizes]

#: The largest numbers of threads of a block along x, y and z, and of threads in all (CUDA C++ Programming Guide,
#: technical specifications).
_MOST_THREADS, _MOST = (1024, 1024, 64), 1024
#: The most blocks of a cluster; above 8 a GPU wants an attribute (CUDA C++ Programming Guide, "Thread Block Clusters").
_MOST_JOINED = 16


def cuda_kernel(
    source: str, name: str, grid: SizesOfLaunch, block: SizesOfLaunch, *, shared: int | Callable[..., int] = 0,
    options: Sequence[str] = (), cluster: Sizes = 1,
) -> CudaKernel:  # fmt: skip
    """A kernel of CUDA C++ as a function of tensors on the CPU and numbers, which needs no GPU.

    NVRTC compiles it for the architecture that the variable OPASSAY_PTX_ARCHITECTURE names, sm_90 by default, and each
    call executes its PTX with NumPy, thread by thread and access by access.

    Args:
        source: of a file with one or more `__global__` functions. name: of that which is launched, an instance of a
            template such as `scale<float>`, too.
        grid, block: numbers of blocks, and of threads of a block, along one to three axes; or functions of the
            arguments of a call that give them.
        shared: bytes of dynamic shared memory, or a function of the arguments. options: further ones of NVRTC.
        cluster: numbers of blocks of a cluster along one to three axes, where the kernel does not say them itself.

    Returns:
        A function of the kernel's arguments: a tensor on the CPU for each pointer, an int or a float for each number,
        for each structure a tuple of its members or all of its bytes. In a tuple a number of Python is as wide as the
        kernel loads it there, one of NumPy as wide as it is. The function returns None; what the kernel writes stands
        in the tensors.

    Raises:
        ImportError: NVRTC is not installed. RuntimeError: the source does not compile.
        Unsupported: its PTX has an instruction that no meaning is built for.
    """
    text, lowered = compile_source(source, name, architecture(), options)
    return CudaKernel(name, Kernel(text, lowered), grid, block, shared, cluster)


def ptx_kernel(
    text: str, entry: str = "", *, grid: SizesOfLaunch, block: SizesOfLaunch, shared: int | Callable[..., int] = 0,
    cluster: Sizes = 1,
) -> CudaKernel:  # fmt: skip
    """A kernel of PTX, whatever compiler made it, as a function of tensors on the CPU and numbers, which needs no GPU.

    Args:
        text: of the module, for any architecture. entry: the name of the kernel in it; by default the first one.
        grid, block, shared, cluster: as for `cuda_kernel`.

    Returns:
        As `cuda_kernel`.

    Raises:
        ValueError: the module has no such kernel.
        Unsupported: it has an instruction that no meaning is built for.
    """
    kernel = Kernel(text, entry)
    return CudaKernel(kernel.entry.name, kernel, grid, block, shared, cluster)


class CudaKernel:
    """See `cuda_kernel`."""

    def __init__(
        self, name: str, kernel: Kernel, grid: SizesOfLaunch, block: SizesOfLaunch, shared: int | Callable[..., int],
        cluster: Sizes = 1,
    ) -> None:  # fmt: skip
        self.__name__, self._cluster = name, cluster
        self._kernel, self._grid, self._block, self._shared = kernel, grid, block, shared

    @property
    def kinds(self) -> list[str]:
        """The type of each parameter, as PTX names it; empty for a structure."""
        return list(self._kernel.entry.kinds.values())

    def __call__(self, *arguments: Any) -> None:
        """Launch the kernel.

        Raises:
            TypeError: an argument is none for its parameter, or there are more or fewer than parameters.
            ValueError: a tensor is not on the CPU, or a size is none that a GPU launches.
            Violation: what a GPU traps on, or what the language leaves undefined.
            Unsupported: what no meaning is built for.
        """
        entry = self._kernel.entry
        if len(arguments) != len(entry.parameters):
            raise TypeError(f"{self.__name__}: got {len(arguments)} arguments, need {len(entry.parameters)}")
        rows = [
            self._row(number, parameter, value)
            for number, (parameter, value) in enumerate(zip(entry.parameters, arguments, strict=True))
        ]
        grid, block = (_sizes(each, arguments) for each in (self._grid, self._block))
        _require_sizes(self.__name__, "grid", grid, MOST_BLOCKS)
        _require_sizes(self.__name__, "block", block, _MOST_THREADS)
        if math.prod(block) > _MOST:
            raise ValueError(f"{self.__name__}: block={block}: got {math.prod(block)} threads, need at most {_MOST}")
        shared = self._shared(*arguments) if callable(self._shared) else self._shared
        if shared + entry.sizes["shared"] > SHARED_MEMORY[architecture()]:
            limit = SHARED_MEMORY[architecture()] - entry.sizes["shared"]
            raise ValueError(f"{self.__name__}: shared={shared}: need at most {limit} bytes")
        if 0 in grid:
            return
        extents = three_extents(grid), three_extents(block), shared, self._clusters(three_extents(grid))
        geometry = Geometry(self.__name__, *extents)
        try:
            PlacedLaunch(geometry, self._kernel, rows).run()
        except (Violation, Unsupported) as fault:
            ACCOUNT.enter(self.__name__, fault)
            raise
        ACCOUNT.enter(self.__name__)

    def _clusters(self, grid: Extents) -> Extents:
        """The blocks of a cluster along each axis, of the kernel itself or of the launch.

        Raises:
            ValueError: no GPU launches such clusters.
        """
        sizes = three_extents(_sizes(self._cluster, ()))
        cluster = three_extents(self._kernel.entry.cluster) if self._kernel.entry.cluster else sizes
        if sizes not in (cluster, (1, 1, 1)):
            raise ValueError(f"{self.__name__}: cluster={sizes}: the kernel needs {cluster}")
        if min(cluster) < 1 or math.prod(cluster) > _MOST_JOINED:
            raise ValueError(f"{self.__name__}: cluster={cluster}: need from 1 to {_MOST_JOINED} blocks")
        if any(n % m for n, m in zip(grid, cluster, strict=True)):
            raise ValueError(f"{self.__name__}: grid={grid}: need multiples of the cluster's {cluster}")
        return cluster

    def _row(self, number: int, parameter: str, value: Any) -> tuple[str, object, str]:
        """The type of an argument, as Triton names types, its value, and its name."""
        name, entry = f"argument {number}", self._kernel.entry
        if entry.kinds[parameter] or not isinstance(value, bytes | tuple):
            return self._kind(number, parameter, value), value, name
        try:
            structure = lay_out(value, entry.parameters[parameter], loads_of(entry, parameter))
        except (TypeError, ValueError) as err:
            raise type(err)(f"{self.__name__}: {name}: {err}") from None
        for label, tensor in tensors_of(structure, name):
            self._require_on_cpu(tensor, label)
        return "struct", structure, name

    def _require_on_cpu(self, tensor: torch.Tensor, name: str) -> None:
        if tensor.device.type != "cpu":
            raise ValueError(f"{self.__name__}: {name}: got a tensor on {tensor.device}, need one on the CPU")

    def _kind(self, number: int, parameter: str, value: Any) -> str:
        """The type of an argument, as Triton names types."""
        kind, where = self._kernel.entry.kinds[parameter], f"{self.__name__}: argument {number}"
        if isinstance(value, torch.Tensor):
            if kind not in ("u64", "b64", "s64"):
                raise TypeError(f"{where}: got a tensor, need a number for a parameter of type {kind}")
            self._require_on_cpu(value, f"argument {number}")
            return "*"
        if kind in ("f32", "f64") and isinstance(value, int | float):
            return f"fp{kind[1:]}"
        if kind and kind[0] in "bsu" and isinstance(value, int):
            return kind
        raise TypeError(
            f"{where}: got a {type(value).__name__}, need one for a parameter of type {kind or 'struct'}"
            + ": a tuple of its members, or bytes" * (not kind)
        )


ACCOUNT.launchers.add((CudaKernel, "__call__"))


def _sizes(sizes: SizesOfLaunch, arguments: tuple[Any, ...]) -> tuple[int, ...]:
    grid = sizes(*arguments) if callable(sizes) else sizes
    return (grid,) if isinstance(grid, int) else tuple(map(int, grid))


def _require_sizes(name: str, what: str, sizes: tuple[int, ...], most: tuple[int, ...]) -> None:
    """Require one to three sizes that a GPU launches; a grid may be empty."""
    least = 0 if what == "grid" else 1
    if not 1 <= len(sizes) <= 3 or any(not least <= n <= top for n, top in zip(sizes, most, strict=False)):
        raise ValueError(f"{name}: {what}={sizes}: need one to three numbers from {least} on, at most {most}")
