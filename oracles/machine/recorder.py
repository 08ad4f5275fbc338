"""A launcher that launches nothing and takes down what would have been launched.

What this is for: what is compiled and judged is what the production ops launch, taken down while they are called. So
there is no second table of configurations, which could differ from the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..op.declaration import Tensor

#: Ints up to this pass as 32 bits.
_INT32 = (1 << 31) - 1


@dataclass(frozen=True)
class Pointer:
    """A tensor as a kernel sees it.

    Attributes:
        dtype: of its elements. offset: its address modulo 16, on which the width of loads depends.
        elements: how many it has. shape, strides: of the tensor.
    """

    dtype: torch.dtype
    offset: int
    elements: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def data_ptr(self) -> int:
        """An address that is aligned as the tensor's is; Triton asks for no more than that."""
        return self.offset


Operand = Pointer | int | float | None


@dataclass(frozen=True)
class Launch:
    """What was taken down of one launch.

    Attributes:
        kernel: of `triton.jit`. name: of its function. grid, operands, constants, warps: as it was launched.
    """

    kernel: Any
    name: str
    grid: tuple[int, ...]
    operands: tuple[Operand, ...]
    constants: Mapping[str, object]
    warps: int

    @property
    def pointers(self) -> tuple[Pointer, ...]:
        """The operands that are tensors."""
        return tuple(operand for operand in self.operands if isinstance(operand, Pointer))

    @property
    def largest(self) -> int:
        """Bytes of the largest operand."""
        return max((pointer.elements * pointer.dtype.itemsize for pointer in self.pointers), default=0)

    @property
    def double(self) -> bool:
        """Whether an operand is in double precision, so that the kernel may compute in it."""
        return any(pointer.dtype is torch.float64 for pointer in self.pointers)

    def dtypes(self) -> str:
        """The dtypes of the tensors, in order, each once."""
        return ",".join(dict.fromkeys(str(pointer.dtype).removeprefix("torch.") for pointer in self.pointers))

    def configuration(self) -> str:
        """The constants and warps, as a reader of a table takes them in."""
        shown = [f"{name}={_shown(value)}" for name, value in self.constants.items()]
        return " ".join([*shown, f"warps={self.warps}"])

    def key(self) -> str:
        """What the machine code depends on: launches with one key have the same code."""
        kinds = [_kind(operand) for operand in self.operands]
        where = f"{self.kernel.__module__}.{self.name}"
        return " ".join([where, *kinds, *(f"{n}={v}" for n, v in sorted(self.constants.items())), str(self.warps)])


def _shown(value: object) -> object:
    return int(value) if isinstance(value, bool) else value


def _kind(operand: Operand) -> str:
    """What Triton compiles anew for: None, 1, multiples of 16, numbers of more than 32 bits, alignment."""
    if isinstance(operand, Pointer):
        return f"*{operand.dtype}" + ("/16" if operand.offset % 16 == 0 else "")
    if isinstance(operand, int):
        width = "i32" if -_INT32 - 1 <= operand <= _INT32 else "i64"
        return "1" if operand == 1 else width + ("/16" if operand % 16 == 0 else "")
    return type(operand).__name__


class Recorder:
    """A launcher (`impl.gpu.launching.Launcher`) that takes down.

    Attributes:
        launches: what was launched, in order.
    """

    def __init__(self) -> None:
        self.launches: list[Launch] = []
        # Tensors are kept, because the storage of one that is gone may become that of another.
        self._fresh: list[tuple[Tensor, int]] = []
        self._taken: list[list[Tensor]] = []

    def empty(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        """A tensor whose memory nobody touches."""
        return self.made(torch.empty(tuple(shape), dtype=dtype, device=device))

    def made(self, tensor: Tensor) -> Tensor:
        """Take down that a tensor was made for kernels to write; the tensor."""
        self._fresh.append((tensor, len(self.launches)))
        return tensor

    def workspace(self, first: int, end: int | None = None) -> int:
        """Bytes of what some launches tell each other: made for them, and taken by two or more.

        Args:
            first, end: numbers of launches, from the first to the one before the end.
        """
        takers = Counter(key for operands in self._taken[first:end] for key in set(map(_storage, operands)))
        tensors = [tensor for tensor, begun in self._fresh if begun >= first and takers[_storage(tensor)] > 1]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def launch(
        self,
        kernel: Any,
        grid: tuple[int, ...],
        operands: tuple[object, ...],
        constants: Mapping[str, object],
        warps: int,
    ) -> None:
        """Take a launch down.

        Args:
            kernel, grid, operands, constants, warps: as `impl.gpu.launching.Launcher` has them.
        """
        name = getattr(kernel, "__name__", None) or kernel.fn.__name__
        self._taken.append([operand for operand in operands if isinstance(operand, Tensor)])
        self.launches.append(Launch(kernel, name, tuple(grid), tuple(map(_operand, operands)), dict(constants), warps))


def _storage(tensor: Tensor) -> int:
    """Which storage it is; the memory of meta tensors has no address."""
    return int(tensor.untyped_storage()._cdata)


def _operand(operand: object) -> Operand:
    if isinstance(operand, Tensor):
        shape, strides = tuple(operand.shape), tuple(operand.stride())
        # That of a meta tensor is at address 0, and its views are where their elements would be.
        address = operand.untyped_storage().data_ptr() + int(operand.storage_offset()) * operand.element_size()
        return Pointer(operand.dtype, address % 16, operand.numel(), shape, strides)
    if operand is None or isinstance(operand, int | float):
        return operand
    raise TypeError(
        f"recorder: got an operand of type {type(operand).__name__}, need a tensor, None, an int or a float"
    )
