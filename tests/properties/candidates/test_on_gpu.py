"""Candidates whose inputs are on a GPU, by a stand-in for one: they get their inputs there, and must answer there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from opassay.oracles.op.bits import different, same_bits, same_results
from opassay.oracles.verdicts.verdict import Cell
from opassay.properties.candidates import failing_call
from opassay.properties.candidates.cases import JudgedCase
from opassay.properties.candidates.host import module_files
from opassay.properties.candidates.host.module_files import GivenError, SpecFile, cast_problem, instance_of
from opassay.properties.candidates.results import elsewhere
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


def test_an_output_on_another_device_than_the_specs_is_wrong() -> None:
    run: Any = SimpleNamespace(names=("out",), outputs=(DeviceTensor(HOST),))
    assert elsewhere(run, [HOST]) == "out is on cpu, need cuda:0"
    assert elsewhere(run, [DeviceTensor(HOST)]) == ""


def _problem() -> SpecFile:
    def draw(seed: int) -> list[Any]:
        return [torch.ones(2, 3, requires_grad=True), torch.arange(3), 0.5]

    return SpecFile(torch.nn.BatchNorm1d(3), draw, [], Path("spec.py"))


@pytest.mark.parametrize(("dtype", "device"), [("", "meta"), ("float64", "meta"), ("float64", ""), ("", "")])
def test_inputs_and_parameters_are_cast_and_moved(dtype: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_files, "place", lambda values, strides: values)  # a meta tensor has no elements to place
    problem = cast_problem(_problem(), dtype, device)
    arguments: Any = problem.draw(0)
    x, index, number = arguments
    assert isinstance(problem.spec, torch.nn.Module)
    moved = [x, index, *problem.spec.parameters(), *problem.spec.buffers()]
    assert {t.device.type for t in moved} == {device or "cpu"}
    assert {t.dtype for t in moved if t.is_floating_point()} == {getattr(torch, dtype or "float32")}
    assert (index.dtype, number, x.requires_grad) == (torch.int64, 0.5, True)


def test_a_candidate_is_where_its_inputs_are() -> None:
    module = instance_of(torch.nn.Linear, [3, 2], 0, "float64", "meta")
    assert isinstance(module, torch.nn.Linear)
    assert (module.weight.device.type, module.weight.dtype) == ("meta", torch.float64)
    in_program = failing_call.instance_of(torch.nn.Linear, [3, 2], 0, torch.float64, "meta", {})
    assert isinstance(in_program, torch.nn.Linear)
    assert (in_program.weight.device.type, in_program.weight.dtype) == ("meta", torch.float64)


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(GivenError, match="got cuda, and there is no GPU here"):
        cast_problem(_problem(), "", "cuda")


def test_a_case_of_a_gpu_is_asked_there_again() -> None:
    cells = [Cell("mine", "FWD:given", "float32", device, "candidate") for device in ("cpu", "cuda")]
    words = [JudgedCase("mine.py", "spec.py", 0, "torch").of(cell, {}).words for cell in cells]
    assert ["--device=cuda" in each for each in words] == [False, True]
