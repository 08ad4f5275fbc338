"""What ranks, and a candidate and its judge, say to each other, as bytes: MessagePack, and behind it tensors' bytes.

A message is data. Nothing in it is run when it is read, whatever sent it, and every bit of a tensor survives: NaNs with
their payloads and the sign of zero, too. The bytes of tensors stand behind the rest, so that neither who writes a large
one nor who reads it has to copy it first: `pieces` has views of their memory, and `decode` gives tensors in the memory
that was read.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
import torch

#: The code by which MessagePack marks a tensor.
_TENSOR = 1
#: Bytes that say how long the part in MessagePack is; and that every tensor begins at a multiple of, for any dtype.
_LENGTH, _STEP = 8, 64
#: What a reader is given: bytes, or memory that can be written and becomes that of the tensors.
Content = bytes | bytearray | memoryview
_Kind = TypeVar("_Kind")


class Said(enum.StrEnum):
    """What a message says.

    Rank 0 says CASE, END and, as every rank does in a case, RUN and RAN. The others say FREE where they have no case.
    """

    CASE = "case"  # judge this case file
    END = "end"  # there are no more cases
    FREE = "free"  # I have no case, or have left it: the text says why
    RUN = "run"  # I have come to the next program of the case; of rank 0, the text says where the new board is
    RAN = "ran"  # this is what the program gave me, or the error that it ended with


class Message(msgspec.Struct, frozen=True):
    """What one rank says.

    Attributes:
        text: a case file, a path or a reason, as `Said` has it. failed: whether the text is an error.
        result: of a program: tensors, numbers and texts, in lists.
    """

    said: Said
    text: str = ""
    failed: bool = False
    result: Any = None


class _Tensor(msgspec.Struct, frozen=True):
    """Where a tensor stands: `start` counts bytes from the end of the part in MessagePack, rounded up to `_STEP`."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    size: int


def pack(said: Said, text: str = "", *, failed: bool = False, result: Any = None) -> bytes:
    """A message as bytes; arguments are the attributes of `Message`.

    Raises:
        TypeError: the result holds something else than tensors, numbers and texts.
    """
    return encode(Message(said, text, failed, result))


def unpack(content: bytes) -> Message:
    """The message that bytes are; sequences in its result are lists.

    Raises:
        ValueError: they are none.
    """
    return decode(content, Message)


def encode(value: Any) -> bytes:
    """A struct of tensors, numbers, texts, lists and dictionaries as bytes.

    Raises:
        TypeError: it holds something else.
    """
    return b"".join(pieces(value))


def pieces(value: Any) -> Sequence[bytes | memoryview]:
    """The bytes of `encode` in pieces, which show the memory of the tensors and hold as long as nobody writes that.

    Raises:
        TypeError: it holds something else.
    """
    behind = _Behind()
    head = msgspec.msgpack.encode(value, enc_hook=behind.put)
    return [len(head).to_bytes(_LENGTH, "little"), head, bytes(_up(_LENGTH + len(head))), *behind.pieces]


def decode(content: Content, kind: type[_Kind]) -> _Kind:
    """The struct that bytes are.

    Args:
        content: the bytes. Of what can be written the tensors keep the memory; of `bytes` a copy is made.
        kind: of the struct.

    Raises:
        ValueError: they are none.
    """
    held = memoryview(bytearray(content) if isinstance(content, bytes) else content)
    end = _LENGTH + int.from_bytes(held[:_LENGTH], "little")
    tensors = held[end + _up(end) :]

    def taken(code: int, said: memoryview) -> torch.Tensor:
        if code != _TENSOR:
            raise ValueError(f"no message of a rank: got code={code}, need {_TENSOR}")
        return _tensor_of(msgspec.msgpack.decode(said, type=_Tensor), tensors)

    try:
        return msgspec.msgpack.decode(held[_LENGTH:end], type=kind, ext_hook=taken)
    except msgspec.MsgspecError as err:
        raise ValueError(f"no {kind.__name__}: {err}") from err


def _up(size: int) -> int:
    """How many bytes are left to the next multiple of `_STEP`."""
    return -size % _STEP


class _Behind:
    """The tensors of a message, in the order in which they stand behind its part in MessagePack."""

    def __init__(self) -> None:
        self.pieces: list[bytes | memoryview] = []
        self._size = 0

    def put(self, value: Any) -> msgspec.msgpack.Ext:
        if not isinstance(value, torch.Tensor):
            kind = type(value).__name__
            raise TypeError(f"result of a program: got a {kind}, need tensors, numbers and texts in lists")
        # A conjugate or a negative may be no more than a mark on a tensor, and the bytes would not tell of it.
        found = value.detach().cpu().resolve_conj().resolve_neg()
        flat = found.contiguous().reshape(-1)
        if flat.stride() != (1,):  # An expanded element counts as contiguous with a stride of 0.
            flat = flat.clone(memory_format=torch.contiguous_format)
        dtype, size = str(found.dtype).removeprefix("torch."), flat.numel() * flat.itemsize
        told = _Tensor(dtype, tuple(found.shape), self._size, size)
        if size:
            self.pieces += [flat.view(torch.uint8).numpy().data, bytes(_up(size))]
            self._size += size + _up(size)
        return msgspec.msgpack.Ext(_TENSOR, msgspec.msgpack.encode(told))


def _tensor_of(said: _Tensor, content: memoryview) -> torch.Tensor:
    """The tensor that a message tells of, in the memory of its content.

    Raises:
        ValueError: there is none.
    """
    dtype = getattr(torch, said.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"no message of a rank: got dtype={said.dtype!r}, need the name of a torch dtype")
    # Two negative extents have a positive product, so the signs are looked at before the sizes are compared.
    count = math.prod(said.shape)
    fits = min(said.shape, default=0) >= 0 and count * dtype.itemsize == said.size
    if not fits or said.start < 0 or said.start % _STEP or said.start + said.size > len(content):
        place = f"{said.size} bytes from {said.start} of {len(content)}"
        raise ValueError(f"no message of a rank: got shape={said.shape} of {said.dtype} in {place}")
    # `torch.frombuffer` refuses a buffer of no bytes.
    if not count:
        return torch.empty(said.shape, dtype=dtype)
    return torch.frombuffer(content, dtype=dtype, count=count, offset=said.start).reshape(said.shape)
