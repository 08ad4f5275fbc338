"""Messages between ranks, and between a candidate and its judge, as bytes: MessagePack, and the tensors' bytes behind.

A message is data. Nothing in it is run when it is read, whoever sent it, and every bit of a tensor survives: NaNs with
their payloads and the sign of zero, too. The bytes of tensors stand behind the rest, so that neither the writer of a
large tensor nor its reader has to copy it first: `pieces` has views of the tensors' memory, and `decode` gives tensors
in the memory that was read.
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
#: How many bytes hold the length of the part in MessagePack; and the bytes of which every tensor begins at a multiple,
#: which suits any dtype.
_LENGTH, _STEP = 8, 64
#: The bytes of a message. Memory that can be written becomes that of the tensors.
Content = bytes | bytearray | memoryview
_Kind = TypeVar("_Kind")
#: Dtypes of numbers, by the names that a message has for them.
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex128, torch.complex64),
        *(torch.complex32, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
        torch.float8_e8m0fnu,
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.bool),
        *(torch.uint64, torch.uint32, torch.uint16, torch.uint8),
    )
}
#: Those of the tensors in a message. A quantized tensor has more than its bytes: one made of them ends the process.
_SENT = DTYPES | {"float4_e2m1fn_x2": torch.float4_e2m1fn_x2}


class MessageKind(enum.StrEnum):
    """What a message means.

    Rank 0 sends CASE, END and, as every rank does in a case, RUN and RAN. The others send FREE where they have no case.
    """

    CASE = "case"  # judge this case file
    END = "end"  # there are no more cases
    FREE = "free"  # I have no case, or have left it: the text says why
    RUN = "run"  # I have come to the next program of the case; of rank 0, the text says where the new board is
    RAN = "ran"  # this is what the program gave me, or the error that it ended with


class Message(msgspec.Struct, frozen=True):
    """What one rank sends.

    Attributes:
        kind: the kind of the message. text: a case file, a path or a reason, by the kind.
        failed: whether the text is an error. result: of a program: tensors, numbers and texts, in lists.
    """

    kind: MessageKind
    text: str = ""
    failed: bool = False
    result: Any = None


class _Tensor(msgspec.Struct, frozen=True):
    """Where a tensor stands: `start` counts bytes from the end of the part in MessagePack, rounded up to `_STEP`."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    size: int
    device: str = "cpu"


def pack(kind: MessageKind, text: str = "", *, failed: bool = False, result: Any = None) -> bytes:
    """A message as bytes; the arguments are the attributes of `Message`.

    Raises:
        TypeError: the result holds something else than tensors, numbers and texts.
    """
    return encode(Message(kind, text, failed, result))


def unpack(content: bytes) -> Message:
    """The message of some bytes; sequences in its result are lists.

    Raises:
        ValueError: the bytes are no message.
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


def decode(content: Content, kind: type[_Kind], *, placed: bool = False) -> _Kind:
    """The struct of some bytes.

    Args:
        content: the bytes. Memory that can be written becomes that of the tensors; `bytes` are copied.
        kind: the type of the struct. placed: whether tensors of a GPU come to that GPU of this process; else all are on
            the host.

    Raises:
        ValueError: the bytes are no such struct.
    """
    memory = memoryview(bytearray(content) if isinstance(content, bytes) else content)
    end = _LENGTH + int.from_bytes(memory[:_LENGTH], "little")
    tensors = memory[end + _up(end) :]

    def decode_tensor(code: int, header: memoryview) -> torch.Tensor:
        if code != _TENSOR:
            raise ValueError(f"no message of a rank: got code={code}, need {_TENSOR}")
        described = msgspec.msgpack.decode(header, type=_Tensor)
        tensor = _tensor_of(described, tensors)
        return tensor.to(_gpu(described.device)) if placed and described.device != "cpu" else tensor

    try:
        return msgspec.msgpack.decode(memory[_LENGTH:end], type=kind, ext_hook=decode_tensor)
    except msgspec.MsgspecError as err:
        raise ValueError(f"no {kind.__name__}: {err}") from err


def _up(size: int) -> int:
    """How many bytes there are to the next multiple of `_STEP`."""
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
        # A conjugate or a negative may be no more than a mark on a tensor, which the bytes do not have.
        tensor = value.detach().cpu().resolve_conj().resolve_neg()
        flat = tensor.contiguous().reshape(-1)
        if flat.stride() != (1,):  # An expanded element counts as contiguous with a stride of 0.
            flat = flat.clone(memory_format=torch.contiguous_format)
        dtype, size = str(tensor.dtype).removeprefix("torch."), flat.numel() * flat.itemsize
        header = _Tensor(dtype, tuple(tensor.shape), self._size, size, str(value.device))
        if size:
            self.pieces += [flat.view(torch.uint8).numpy().data, bytes(_up(size))]
            self._size += size + _up(size)
        return msgspec.msgpack.Ext(_TENSOR, msgspec.msgpack.encode(header))


def _gpu(name: str) -> torch.device:
    """The GPU of a name.

    Raises:
        ValueError: this process has none of that name.
    """
    kind, _, index = name.partition(":")
    if kind != "cuda" or not (index.isascii() and index.isdigit()) or int(index) >= torch.cuda.device_count():
        raise ValueError(f"no message: got device={name!r}, need cpu or a GPU of this process")
    return torch.device("cuda", int(index))


def _tensor_of(header: _Tensor, content: memoryview) -> torch.Tensor:
    """The tensor that a header describes, in the memory of the message.

    Raises:
        ValueError: the message has no such tensor.
    """
    dtype = _SENT.get(header.dtype)
    if dtype is None:
        raise ValueError(f"no message of a rank: got dtype={header.dtype!r}, need one of {', '.join(_SENT)}")
    # Two negative extents have a positive product, so the signs are looked at before the sizes are compared.
    count = math.prod(header.shape)
    fits = min(header.shape, default=0) >= 0 and count * dtype.itemsize == header.size
    if not fits or header.start < 0 or header.start % _STEP or header.start + header.size > len(content):
        place = f"{header.size} bytes from {header.start} of {len(content)}"
        raise ValueError(f"no message of a rank: got shape={header.shape} of {header.dtype} in {place}")
    # `torch.frombuffer` refuses a buffer of no bytes.
    if not count:
        return torch.empty(header.shape, dtype=dtype)
    return torch.frombuffer(content, dtype=dtype, count=count, offset=header.start).reshape(header.shape)
