"""What ranks, and a candidate and its judge, say to each other, as bytes: MessagePack, with tensors' bytes in it.

A message is data. Nothing in it is run when it is read, whatever sent it, and every bit of a tensor survives: NaNs with
their payloads and the sign of zero, too.
"""

from __future__ import annotations

import enum
import math
from typing import Any, TypeVar

import msgspec
import torch

#: The code by which MessagePack marks the bytes of a tensor.
_TENSOR = 1
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
    dtype: str
    shape: tuple[int, ...]
    content: bytes


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
    return msgspec.msgpack.encode(value, enc_hook=_packed)


def decode(content: bytes, kind: type[_Kind]) -> _Kind:
    """The struct that bytes are.

    Raises:
        ValueError: they are none.
    """
    try:
        return msgspec.msgpack.decode(content, type=kind, ext_hook=_unpacked)
    except msgspec.MsgspecError as err:
        raise ValueError(f"no {kind.__name__}: {err}") from err


def _packed(value: Any) -> msgspec.msgpack.Ext:
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"result of a program: got a {type(value).__name__}, need tensors, numbers and texts in lists")
    # A conjugate or a negative may be no more than a mark on a tensor, and the bytes would not tell of it.
    found = value.detach().cpu().resolve_conj().resolve_neg()
    # A copy, because only its strides can be relied on: an expanded element counts as contiguous with a stride of 0.
    content = found.clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8).numpy().tobytes()
    dtype = str(found.dtype).removeprefix("torch.")
    return msgspec.msgpack.Ext(_TENSOR, msgspec.msgpack.encode(_Tensor(dtype, tuple(found.shape), content)))


def _unpacked(code: int, content: memoryview) -> torch.Tensor:
    if code != _TENSOR:
        raise ValueError(f"no message of a rank: got code={code}, need {_TENSOR}")
    found = msgspec.msgpack.decode(content, type=_Tensor)
    dtype = getattr(torch, found.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"no message of a rank: got dtype={found.dtype!r}, need the name of a torch dtype")
    # Two negative extents have a positive product, so the signs are looked at before the sizes are compared.
    if min(found.shape, default=0) < 0 or math.prod(found.shape) * dtype.itemsize != len(found.content):
        size = len(found.content)
        raise ValueError(f"no message of a rank: got shape={found.shape} of {found.dtype} in {size} bytes")
    # `torch.frombuffer` refuses a buffer of no bytes.
    if not found.content:
        return torch.empty(found.shape, dtype=dtype)
    return torch.frombuffer(bytearray(found.content), dtype=dtype).reshape(found.shape)
