"""Logical devices: tensors on them are what they look like, and what nothing orders is a race."""

from __future__ import annotations

import copy
import gc
from typing import Any

import pytest
import torch
from torch import Tensor

from opassay.impl.comm import Copy, HostFabric, RaceError, broadcast_coalesced, gather, reduce_add, scatter


def on(fabric: HostFabric, place: int, x: Tensor) -> Any:
    return fabric.copy(x, fabric.devices[place])


def home(x: Tensor) -> Tensor:
    return x.to("cpu")


def test_tensors_of_two_devices_do_not_mix() -> None:
    fabric = HostFabric(2)
    with pytest.raises(RuntimeError, match=r"same device.*cpu:0 and cpu:1"):
        on(fabric, 0, torch.ones(2)) + on(fabric, 1, torch.ones(2))
    with pytest.raises(RuntimeError, match="same device"):
        on(fabric, 0, torch.ones(2)) + torch.ones(2)
    assert home(on(fabric, 0, torch.ones(2)) + 1.0).tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError, match="another fabric"), HostFabric(2).active():
        Copy.apply(on(fabric, 0, torch.ones(2)), "cpu:1")


def test_a_copy_in_the_background_is_waited_for() -> None:
    fabric = HostFabric(2)
    side = fabric.side_stream(fabric.devices[0])
    x = fabric.copy(torch.ones(3), fabric.devices[0], side)
    with pytest.raises(RaceError, match=r"reads a buffer that is written by copy cpu to cpu:0.*no wait"):
        x + 1
    fabric.wait(fabric.stream(fabric.devices[0]), side)
    assert home(x + 1).tolist() == [2.0, 2.0, 2.0]


def test_a_buffer_that_is_read_is_not_written() -> None:
    fabric = HostFabric(1)
    main, side = fabric.stream(fabric.devices[0]), fabric.side_stream(fabric.devices[0])
    x = on(fabric, 0, torch.ones(3))
    fabric.wait(side, main)
    assert side is not None
    with fabric.on(side):
        y = x * 2
    with pytest.raises(RaceError, match="writes a buffer that is read"):
        x.zero_()
    fabric.wait(main, side)
    assert home(x.zero_() + y).tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("reused", [False, True])
def test_memory_is_not_used_again_while_another_stream_may_use_it(reused: bool) -> None:
    fabric = HostFabric(1)
    main, side = fabric.stream(fabric.devices[0]), fabric.side_stream(fabric.devices[0])
    x = fabric.copy(torch.ones(3), fabric.devices[0], side)
    fabric.wait(main, side)
    y = x + 1
    if reused:
        fabric.keep(x, main)
    del x
    gc.collect()
    assert home(y).tolist() == [2.0, 2.0, 2.0]
    if reused:
        fabric.check()
    else:
        with pytest.raises(RaceError, match="not kept"):
            fabric.check()


def test_one_clock_per_stream_orders_what_is_waited_for_in_turn() -> None:
    fabric = HostFabric(3)
    x = on(fabric, 0, torch.ones(2))
    y = x.to(fabric.devices[1]) + 1
    z = y.to(fabric.devices[2]) + 1
    assert z.device == fabric.devices[2]
    assert home(z).tolist() == [3.0, 3.0]
    x.zero_()  # after the copy that read it, for copies order both ends
    fabric.check()


def test_conjugates_and_complex_gradients_on_a_logical_device() -> None:
    fabric = HostFabric(2)
    z = torch.tensor([1 + 2j, 3 - 1j])
    there: Any = on(fabric, 0, z)
    assert torch.equal(home(there.conj() * 2), z.conj() * 2)
    assert torch.equal(home(there.conj().imag), z.conj().imag)
    leaf, leaf_there = z.clone().requires_grad_(), there.clone().requires_grad_()
    (leaf * leaf * (1 + 1j)).abs().sum().backward()
    (leaf_there * leaf_there * (1 + 1j)).abs().sum().backward()
    assert torch.equal(home(leaf_there.grad), leaf.grad)  # type: ignore[arg-type]
    with fabric.active():
        total = reduce_add([there.conj(), on(fabric, 1, z).conj()], 0)
    assert torch.equal(home(total), 2 * z.conj().resolve_conj())


def test_memory_is_made_where_it_is_asked_for() -> None:
    fabric = HostFabric(2)
    x: Any = on(fabric, 0, torch.ones(3))
    assert torch.zeros_like(x, device="cpu:1").device == fabric.devices[1]
    assert x.new_zeros(3, device="cpu:1").device == fabric.devices[1]
    assert type(torch.empty_like(x, device="cpu")) is Tensor
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.zeros_like(x, device="cpu:1")


def test_a_copy_on_a_side_stream_of_one_device_waits_for_nothing() -> None:
    fabric = HostFabric(1)
    (device,) = fabric.devices
    x = on(fabric, 0, torch.ones(3))
    x.add_(1)
    with pytest.raises(RaceError, match=r"reads a buffer that is written by aten\.add_"):
        fabric.copy(x, device, fabric.side_stream(device))


def test_what_is_read_for_ever_takes_no_more_memory() -> None:
    fabric = HostFabric(1)
    x: Any = on(fabric, 0, torch.ones(3))
    for _ in range(100):
        x * 2
    assert len(x.buffer.reads) == 1


def test_deep_copies_stay_on_their_device_and_data_is_not_assigned() -> None:
    fabric = HostFabric(2)
    x: Any = on(fabric, 1, torch.ones(3)).requires_grad_()
    twin = copy.deepcopy(x)
    assert (twin.device, twin.requires_grad, twin.fabric is fabric) == (fabric.devices[1], True, True)
    assert home((twin + x).detach()).tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(RuntimeError, match=r"\.data"):
        x.data = torch.zeros(3)


def test_training_on_two_logical_devices_equals_training_on_one() -> None:
    # Integers, and steps of a power of two: every sum is exact, so its order does not matter.
    data, target = (torch.arange(48) % 7 - 3).reshape(12, 4).double(), (torch.arange(24) % 5).reshape(12, 2).double()
    weights = [torch.ones(4, 2).double().requires_grad_(), torch.zeros(2).double().requires_grad_()]
    alone = [w.detach().clone().requires_grad_() for w in weights]
    fabric = HostFabric(2)
    for _ in range(3):
        with fabric.active():
            replicas = broadcast_coalesced(weights, [0, 1])
            parts = zip(scatter(data, [0, 1]), scatter(target, [0, 1]), replicas, strict=True)
            losses = [((x @ w + b - t) ** 2).sum() for x, t, (w, b) in parts]
            grads = torch.autograd.grad(gather([y.reshape(1) for y in losses], 0, -1).sum(), weights)
        whole = torch.autograd.grad(((data @ alone[0] + alone[1] - target) ** 2).sum(), alone)
        with torch.no_grad():
            for w, g in (*zip(weights, grads, strict=True), *zip(alone, whole, strict=True)):
                w -= 2.0**-6 * g
    assert all(torch.equal(w, v) for w, v in zip(weights, alone, strict=True))
    assert weights[0].abs().max() < 2.0**20
    fabric.check()
