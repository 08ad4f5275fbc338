"""What a launch passes to a kernel's parameters: bytes of numbers, pointers to tensors, and structures of them.

A structure is laid out as the platform's C does it, each member at a multiple of its own size (System V ABI for AMD64,
3.1.2, which NVIDIA's compilers follow). How wide a member is that came as a number of Python, the kernel's own loads
say.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...op.declaration import Tensor
from .formats import WIDTHS
from .listing import Listing
from .operands import offset

#: Bytes of a pointer.
_POINTER = 8


@dataclass(frozen=True)
class Structure:
    """A value of a parameter that is a structure.

    Attributes:
        content: its bytes, in the place of a pointer how far it is from the first element of its tensor.
        pointers: tensors by the byte where theirs begin.
    """

    content: bytes
    pointers: Mapping[int, Tensor]

    def packed(self, address: Callable[[Tensor], int]) -> bytes:
        """Its bytes; `address` gives where a tensor begins in memory."""
        content = bytearray(self.content)
        for at, tensor in self.pointers.items():
            (away,) = struct.unpack_from("<q", content, at)
            struct.pack_into("<Q", content, at, address(tensor) + away)
        return bytes(content)


def tensors_of(value: object, name: str) -> Iterator[tuple[str, Tensor]]:
    """The tensors that an argument has, with names for messages."""
    if isinstance(value, Structure):
        for at, tensor in value.pointers.items():
            yield f"{name}, byte {at}", tensor
    elif isinstance(value, Tensor):
        yield name, value


def lay_out(members: bytes | Sequence[Any], size: int, loads: Mapping[int, int]) -> Structure:
    """A structure of its members.

    Args:
        members: tensors and numbers, a number of NumPy as wide as it is; or all bytes. size: bytes of the structure.
        loads: how many bytes the kernel loads, by the byte of the structure where they begin.

    Raises:
        TypeError: a member is neither tensor nor number.
        ValueError: there are more bytes than the structure has, or given bytes are fewer.
    """
    if isinstance(members, bytes):
        if len(members) != size:
            raise ValueError(f"got {len(members)} bytes, need {size}")
        return Structure(members, {})
    content, pointers, at = b"", dict[int, Tensor](), 0
    for member in members:
        raw = _raw(member, at, loads)
        at = -(-at // len(raw)) * len(raw)
        if isinstance(member, Tensor):
            pointers[at] = member
        content = content.ljust(at, b"\0") + raw
        at = len(content)
    if len(content) > size:
        raise ValueError(f"got members of {len(content)} bytes, need at most {size}")
    return Structure(content.ljust(size, b"\0"), pointers)


def _raw(member: object, at: int, loads: Mapping[int, int]) -> bytes:
    """The bytes of a member that comes behind byte `at`, zeros for a pointer."""
    if isinstance(member, Tensor):
        return bytes(_POINTER)
    if isinstance(member, np.generic):
        return member.tobytes()
    if not isinstance(member, int | float):
        raise TypeError(f"got a {type(member).__name__}, need a tensor or a number")
    width = next((n for n in (1, 2, 4, 8) if loads.get(-(-at // n) * n) == n), 4)
    if isinstance(member, float):
        return struct.pack("<d" if width == _POINTER else "<f", member)
    return (member & ((1 << 8 * width) - 1)).to_bytes(width, "little")


def loads_of(entry: Listing, parameter: str) -> dict[int, int]:
    """How many bytes a kernel loads of a parameter, by the byte where they begin."""
    loads: dict[int, int] = {}
    for block in entry.blocks:
        for each in block:
            if each.name != "ld" or each.modifiers[0] != "param":
                continue
            name, start = offset(each, each.operands[1])
            count = len(each.operands[0]) if isinstance(each.operands[0], tuple) else 1
            if name == parameter:
                loads |= {start + i * WIDTHS[each.kind]: WIDTHS[each.kind] for i in range(count)}
    return loads
