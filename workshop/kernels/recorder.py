"""A launcher that records launches of kernels and launches nothing.

What this is for: the kernels that are compiled and judged must be those that the production ops launch. So their
launches are recorded while the ops are called, and there is no second table of configurations, which could differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from opassay.oracles.op.declaration import Tensor, dtype_name

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
    """The record of one launch.

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
        return ",".join(dict.fromkeys(dtype_name(pointer.dtype) for pointer in self.pointers))

    def configuration(self) -> str:
        """The constants and warps in one line, for a table."""
        lines = [f"{name}={_abbreviate(value)}" for name, value in self.constants.items()]
        return " ".join([*lines, f"warps={self.warps}"])

    def key(self) -> str:
        """The key of the machine code: launches with equal keys have the same code."""
        kinds = [_kind(operand) for operand in self.operands]
        where = f"{self.kernel.__module__}.{self.name}"
        return " ".join([where, *kinds, *(f"{n}={v}" for n, v in sorted(self.constants.items())), str(self.warps)])


def _abbreviate(value: object) -> object:
    return int(value) if isinstance(value, bool) else value


def _kind(operand: Operand) -> str:
    """The kind of an operand. Triton compiles anew for another kind: None, 1, multiples of 16, 64 bits, alignment."""
    if isinstance(operand, Pointer):
        return f"*{operand.dtype}" + ("/16" if operand.offset % 16 == 0 else "")
    if isinstance(operand, int):
        width = "i32" if -_INT32 - 1 <= operand <= _INT32 else "i64"
        return "1" if operand == 1 else width + ("/16" if operand % 16 == 0 else "")
    return type(operand).__name__


class Recorder:
    """A launcher (`impl.gpu.launching.Launcher`) that records.

    Attributes:
        launches: the records, in order.
    """

    def __init__(self) -> None:
        self.launches: list[Launch] = []
        # The tensors themselves are recorded, because a deleted tensor's storage may become that of another tensor.
        self._fresh: list[tuple[Tensor, int]] = []
        self._operands: list[list[Tensor]] = []

    def empty(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        """A new tensor, recorded as one for kernels to write; no kernel touches its memory."""
        return self.record_tensor(torch.empty(tuple(shape), dtype=dtype, device=device))

    def record_tensor(self, tensor: Tensor) -> Tensor:
        """Record a tensor that was made for kernels to write; returns it."""
        self._fresh.append((tensor, len(self.launches)))
        return tensor

    def workspace(self, first: int, end: int | None = None) -> int:
        """Bytes of the tensors by which launches pass values on: made for them, and an operand of two or more.

        Args:
            first, end: numbers of launches, from the first to the one before the end.
        """
        takers = Counter(key for operands in self._operands[first:end] for key in set(map(_storage, operands)))
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
        """Record a launch.

        Args:
            kernel, grid, operands, constants, warps: as `impl.gpu.launching.Launcher` has them.
        """
        name = getattr(kernel, "__name__", None) or kernel.fn.__name__
        self._operands.append([operand for operand in operands if isinstance(operand, Tensor)])
        self.launches.append(Launch(kernel, name, tuple(grid), tuple(map(_operand, operands)), dict(constants), warps))


def _storage(tensor: Tensor) -> int:
    """The identity of a tensor's storage, also of a meta tensor's, whose memory has no address."""
    return int(tensor.untyped_storage()._cdata)


def _operand(operand: object) -> Operand:
    if isinstance(operand, Tensor):
        shape, strides = tuple(operand.shape), tuple(operand.stride())
        # The storage of a meta tensor is at address 0, and an offset of a view counts from there.
        address = operand.untyped_storage().data_ptr() + int(operand.storage_offset()) * operand.element_size()
        return Pointer(operand.dtype, address % 16, operand.numel(), shape, strides)
    if operand is None or isinstance(operand, int | float):
        return operand
    raise TypeError(
        f"recorder: got an operand of type {type(operand).__name__}, need a tensor, None, an int or a float"
    )
