"""Messages of ranks: every bit of a tensor survives, and what is no message is refused."""

from __future__ import annotations

import math
import pickle
from typing import Any

import msgspec
import pytest
import torch

from opassay.properties.places import wire
from opassay.properties.places.wire import Message, MessageKind, pack, unpack

TENSORS = {
    "NaNs with payloads": torch.tensor([0x7FC00001, -1, 0x7F800001], dtype=torch.int32).view(torch.float32),
    "zeros of both signs and subnormals": torch.tensor([0.0, -0.0, 5e-324, -math.inf], dtype=torch.float64),
    "bfloat16": torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).t(),
    "float16, every other one": torch.arange(9, dtype=torch.float16)[::2],
    "no dims": torch.tensor(1.5),
    "one element, expanded": torch.tensor([1.5]).expand(1, 1),
    "expanded": torch.tensor([1.5, 2.0]).expand(3, 2),
    "no elements": torch.empty(0, 3, dtype=torch.float64),
    "integers": torch.tensor([[2**62, -1]]),
    "truths": torch.tensor([True, False]),
    "complex and conjugate": torch.tensor([1 + 2j]).conj(),
    "of a graph": torch.ones(2, requires_grad=True) * 2,
}


@pytest.mark.parametrize("name", TENSORS)
def test_every_bit_of_a_tensor_survives(name: str) -> None:
    sent = TENSORS[name]
    (result,) = unpack(pack(MessageKind.RAN, result=[sent])).result
    assert (result.dtype, result.shape, result.requires_grad) == (sent.dtype, sent.shape, False)
    plain = sent.detach().resolve_conj().clone(memory_format=torch.contiguous_format)
    assert result.reshape(-1).view(torch.uint8).tolist() == plain.reshape(-1).view(torch.uint8).tolist()


def test_a_message_comes_as_it_was_sent() -> None:
    assert unpack(pack(MessageKind.FREE, "why")) == Message(MessageKind.FREE, "why")
    result = unpack(pack(MessageKind.RAN, "broke", failed=True, result=([1, 2.5], "text", None)))
    assert (result.failed, result.result) == (True, [[1, 2.5], "text", None])


@pytest.mark.parametrize("result", [object(), {1, 2j}, print])
def test_what_is_no_data_is_not_sent(result: Any) -> None:
    with pytest.raises(TypeError, match="need tensors, numbers and texts in lists"):
        pack(MessageKind.RAN, result=result)


def _framed(message: Any) -> bytes:
    head = msgspec.msgpack.encode(message)
    return len(head).to_bytes(8, "little") + head


def _telling(**changes: Any) -> bytes:
    """A message with a tensor of two float32 that is told otherwise than it is."""
    body = msgspec.msgpack.encode({"dtype": "float32", "shape": [2], "start": 0, "size": 8, **changes})
    head = _framed({"kind": "ran", "result": msgspec.msgpack.Ext(1, body)})
    return head + bytes(-len(head) % 64 + 8)


def test_a_message_can_be_told_by_hand() -> None:
    assert unpack(_telling()).result.tolist() == [0.0, 0.0]


def test_tensors_have_the_memory_that_was_read_and_are_not_copied() -> None:
    buffer = bytearray(wire.encode(Message(MessageKind.RAN, result=[torch.ones(2), torch.zeros(3)])))
    one, zero = wire.decode(buffer, Message).result
    buffer[-64:-52] = torch.full((3,), 2.0).numpy().tobytes()
    assert (one.tolist(), zero.tolist()) == ([1.0, 1.0], [2.0, 2.0, 2.0])
    assert one.data_ptr() % 4 == 0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        pickle.dumps(("run", "")),
        _framed({"kind": "shout"}),
        _framed({"kind": "ran", "result": msgspec.msgpack.Ext(7, b"")}),
        _telling(start=64),
        _telling(start=-64),
        _telling(start=4),
        _telling(shape=[3]),
        _telling(size=4),
        _telling(shape=[30], size=120),
        _telling(shape=[-1, -2]),
        _telling(shape=[2**62, 2]),
        pack(MessageKind.RAN, result=torch.ones(2)).replace(b"float32", b"Storage"),
        pack(MessageKind.RAN, result=torch.ones(2)).replace(b"float32", b"float64"),
    ],
)
def test_what_is_no_message_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"no (message of a rank|Message)"):
        unpack(content)


@pytest.mark.parametrize("name", sorted(name for name in dir(torch) if isinstance(getattr(torch, name), torch.dtype)))
def test_a_tensor_of_every_dtype_of_torch_is_read_or_refused(name: str) -> None:
    dtype = getattr(torch, name)
    size = 16 * dtype.itemsize
    content = _telling(dtype=name, shape=[16], size=size) + bytes(size)
    # A name that torch has twice, as float and float32, is sent by one of them.
    if str(dtype) != f"torch.{name}" or dtype not in wire._SENT.values():
        with pytest.raises(ValueError, match=f"got dtype='{name}'"):
            unpack(content)
        return
    tensor = unpack(content).result
    assert (tensor.dtype, tensor.shape) == (dtype, (16,))
