"""Candidates whose inputs are on a GPU, by a stand-in for one: they get their inputs there, and must answer there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from opassay.oracles.op.bits import different, same_bits, same_results
from opassay.properties.candidates.session import Session
from opassay.properties.places import wire
from tests.oracles import stand_in_device
from tests.oracles.stand_in_device import DEVICE, DeviceTensor

HOST = torch.arange(6.0).reshape(2, 3)


def test_bits_are_compared_wherever_they_are() -> None:
    there = DeviceTensor(HOST.clone())
    assert same_bits(there, HOST)
    assert same_results(HOST, there)
    assert not same_bits(HOST + 1, there)
    assert different(there, HOST + torch.tensor([0.0, 1.0, 0.0])).tolist() == [[False, True, False]] * 2


def test_a_message_gives_a_tensor_on_the_gpu_that_it_was_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with stand_in_device.present():
        message = wire.encode([DeviceTensor(HOST), HOST])
        on_host, placed = wire.decode(message, list), wire.decode(message, list, placed=True)
    assert [tensor.device.type for tensor in on_host] == ["cpu", "cpu"]
    assert [tensor.device for tensor in placed] == [DEVICE, torch.device("cpu")]
    assert all(same_bits(tensor, HOST) for tensor in (*on_host, *placed))


@pytest.mark.parametrize("name", ["cuda:1", "cuda", "cuda:x", "meta", "cuda:٠"])
def test_a_message_cannot_name_a_device_that_is_not_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    message = wire.encode([DeviceTensor(HOST)])
    changed = message.replace(b"\xa6cuda:0", bytes([0xA0 + len(name.encode())]) + name.encode())
    longer = len(changed) - len(message)
    assert changed != message
    # The part in MessagePack has other lengths now: its own, and that of the description of the tensor.
    head = int.from_bytes(changed[: wire._LENGTH], "little") + longer
    place = changed.index(b"\xc7")
    changed = b"".join([head.to_bytes(wire._LENGTH, "little"), changed[wire._LENGTH : place + 1],
                        bytes([changed[place + 1] + longer]), changed[place + 2 :]])  # fmt: skip
    with pytest.raises(ValueError, match="need cpu or a GPU of this process"):
        wire.decode(changed, list, placed=True)


@pytest.mark.parametrize(("numpy", "says"), [(False, "out is on cpu, need cuda:0"), (True, "")])
def test_an_output_on_another_device_than_the_specs_is_wrong(numpy: bool, says: str) -> None:
    session: Any = SimpleNamespace(spec=SimpleNamespace(numpy=numpy))
    run: Any = SimpleNamespace(names=("out",), outputs=(DeviceTensor(HOST),))
    assert Session._elsewhere(session, run, SimpleNamespace(outputs=[HOST])) == says
    assert Session._elsewhere(session, run, SimpleNamespace(outputs=[DeviceTensor(HOST)])) == ""
