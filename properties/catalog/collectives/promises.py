"""The promises of logical devices besides values: which calls are refused, which uses race, and with which message.

The values of an op on logical devices are right however the devices order their work, because the host copies at once.
So each of these questions makes a mistake that the devices exist to report: operands of two devices or of two fabrics,
a use of memory that waits for nothing, memory that is freed too early. And each runs the right program next to it,
which must pass.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ....oracles.op.placement import Promise
from ..mismatch import Mismatches, compare, numbers, refusal_mismatch

#: (number of devices) -> a fabric of that many logical devices.
Fabric = Callable[[int], Any]


def _one_device(fabric: Fabric) -> Mismatches:
    """Operands are of one device; a number of the host, a tensor without dims, may stand beside them."""
    two = fabric(2)
    first, second = two.devices
    x, y, number = two.copy(torch.ones(3), first), two.copy(torch.ones(3), second), two.copy(torch.tensor(3.0), second)
    for other in (y, number):
        yield refusal_mismatch(lambda other=other: x + other, "same device", f"{first} and {second}")  # type: ignore[misc]
    yield refusal_mismatch(lambda: torch.cat([x, y]), "same device")
    yield refusal_mismatch(lambda: x + torch.ones(3), "same device", f"{first} and cpu!")
    yield compare("a sum with a number of the host", numbers(x + torch.tensor(3.0)), [4.0] * 3)
    yield compare("its device", (x + torch.tensor(3.0)).device, first)


def _one_fabric(fabric: Fabric) -> Mismatches:
    """Operands are of one fabric, though devices of two fabrics are equal: each has streams and books of its own.

    Another size of buckets makes no other fabric.
    """
    one, other = fabric(2), fabric(2)
    first, second = one.devices
    x, y = one.copy(torch.ones(3), first), other.copy(torch.ones(3), first)
    yield refusal_mismatch(lambda: x + y, "another fabric", f"{first} and on {first}")
    yield refusal_mismatch(lambda: other.copy(x, second), "another fabric", f"{first}")
    yield refusal_mismatch(lambda: x.copy_(y), "another fabric")
    twin = one.with_bucket(8)
    yield compare("a sum of one fabric", numbers(x + twin.copy(torch.ones(3), first)), [2.0] * 3)
    yield compare("bytes sent by the two of one fabric", twin.count_sent_bytes(), one.count_sent_bytes())


def _names(fabric: Fabric) -> Mismatches:
    """A device is named by its index, −1 for the host, by torch's name or by itself; other names are refused."""
    three = fabric(3)
    first, second, third = three.devices
    host = torch.device("cpu")
    for name, need in ((0, first), (2, third), (-1, host), ("cpu", host), ("cpu:1", second), (third, third)):
        yield compare(f"device({name!r})", three.device(name), need)
    for name in (3, -2, "cpu:3", "meta"):
        yield refusal_mismatch(lambda name=name: three.device(name), f"device={name}", "need")  # type: ignore[misc]
    for size in (0, -1):
        yield refusal_mismatch(lambda size=size: fabric(size), f"size={size}", "at least 1")  # type: ignore[misc]
    yield refusal_mismatch(lambda: three.with_bucket(0), "size=0", "at least 1")
    yield compare("a stream of the host", (three.stream(host), three.side_stream(host)), (None, None))


def _waits(fabric: Fabric) -> Mismatches:
    """Memory that a stream has written is read or written by another only after a wait; making a view is neither."""
    two = fabric(2)
    device, other = two.devices
    main, side, lane = two.stream(device), two.side_stream(device), two.side_stream(device, 1)
    x = two.copy(torch.ones(3), device, side)
    reads = "reads a buffer that is written by copy cpu to cpu:0 on cpu:0/copies 0: no wait in between"
    yield refusal_mismatch(lambda: x + 1, f"aten.add.Tensor on cpu:0/main {reads}")
    yield refusal_mismatch(lambda: x[1:] + 1, reads)
    yield refusal_mismatch(lambda: two.copy(x, other), f"copy cpu:0 to cpu:1 on cpu:1/main {reads}")
    yield refusal_mismatch(lambda: x.mul_(2), f"aten.mul_.Tensor on cpu:0/main {reads.replace('reads', 'writes')}")
    yield refusal_mismatch(lambda: torch.add(_there(two, 0), 1, out=x), reads.replace("reads", "writes"))
    yield compare("shapes of views and of memory like it", [x[1:].shape, torch.empty_like(x).shape], [(2,), (3,)])
    two.wait(lane, side)
    two.wait(main, lane)  # `lane` has waited for `side`, so that `main` has now, too
    yield compare("a sum after a wait", numbers(x + 1), [2.0] * 3)
    for waiting, awaited in ((None, main), (main, None)):  # None is the stream of the host, which has none
        two.wait(waiting, awaited)
    for tensor, stream in ((torch.ones(3), main), (x, None)):
        two.keep(tensor, stream)


def _there(fabric: Any, place: int) -> Any:
    """Three ones on the device of that index."""
    return fabric.copy(torch.ones(3), fabric.devices[place])


def _writes(fabric: Fabric) -> Mismatches:
    """Memory that a stream has read is written by another only after a wait; two streams may read it."""
    one = fabric(1)
    (device,) = one.devices
    main, side, lane = one.stream(device), one.side_stream(device), one.side_stream(device, 1)
    x = _there(one, 0)
    one.wait(side, main)
    one.wait(lane, main)
    with one.on(side):
        with one.on(lane):
            z = x * 3
        y = x[:2] * 2
    yield refusal_mismatch(lambda: x.zero_(), "writes a buffer that is read by aten.mul.Tensor on cpu:0/copies")
    one.wait(main, side)
    yield refusal_mismatch(lambda: x[1:].zero_(), "read by aten.mul.Tensor on cpu:0/copies 1: no wait in between")
    one.wait(main, lane)
    yield compare("what was read before", [numbers(y), numbers(z)], [[2.0] * 2, [3.0] * 3])
    x[1:].zero_()
    yield compare("what is written through a view", numbers(x), [1.0, 0.0, 0.0])
    with one.on(side):
        yield refusal_mismatch(lambda: x * 2, "reads a buffer that is written by aten.zero_.default on cpu:0/main")


def _copies(fabric: Fabric) -> Mismatches:
    """A copy between devices is ordered at both ends; on a stream of the same device it waits for nothing."""
    two = fabric(2)
    first, second = two.devices
    x = _there(two, 0)
    y = x.to(second) + 1
    x.zero_()
    y.copy_(two.copy(x, second) + y)
    yield compare("what went and was written after it", [numbers(x), numbers(y)], [[0.0] * 3, [2.0] * 3])
    z = two.copy(y, first, two.side_stream(first))
    y.zero_()
    yield refusal_mismatch(lambda: z + 1, "reads a buffer that is written by copy cpu:1 to cpu:0 on cpu:0/copies 0")
    x.zero_()
    yield refusal_mismatch(
        lambda: two.copy(x, first, two.side_stream(first)), "copy cpu:0 to cpu:0", "written by aten.zero_.default"
    )


def _freed(fabric: Fabric) -> Mismatches:
    """Memory is used again as soon as its tensor is gone, so it must be kept for a read on another stream."""
    for how in ("read", "kept", "waited for", "not read"):
        one = fabric(1)
        (device,) = one.devices
        main, side = one.stream(device), one.side_stream(device)
        x = one.copy(torch.ones(3), device, side)
        one.wait(main, side)
        y = x if how == "not read" else x + 1
        if how == "kept":
            one.keep(x, main)
        if how == "waited for":
            one.wait(side, main)
        del x
        y = y * 2 if how != "not read" else None
        words = ("buffer of cpu:0/copies 0", "aten.add.Tensor on cpu:0/main may use it", "not kept")
        if how == "read":
            yield refusal_mismatch(one.check, *words)
        else:
            yield compare(f"races of a buffer that is {how}", (one.races, one.check()), ([], None))


def _books(fabric: Fabric) -> Mismatches:
    """`bytes_between` and `count_sent_bytes` count the bytes that are copied to another device, and no others."""
    two = fabric(2)
    first, second = two.devices
    x = two.copy(torch.ones(3).double(), first)
    two.copy(x, first)
    two.copy(x[:0], second)
    x.to("cpu")
    x[:1].to(second)
    ways = [two.bytes_between(a, b) for a, b in (("cpu", first), (first, "cpu"), (first, second), (second, first))]
    yield compare("bytes", [*ways, two.count_sent_bytes()], [24, 24, 8, 0, 56])


def _memory(fabric: Fabric) -> Mismatches:
    """A copy has contiguous memory of its own, on the device that was asked for, with the numbers of its source."""
    two = fabric(2)
    first, second = two.devices
    host = torch.arange(6.0).reshape(2, 3)
    x = two.copy(host.t(), first)
    yield compare("a copy of columns", (numbers(x), x.is_contiguous()), (host.t().tolist(), True))
    same = two.copy(x, first)
    same.zero_()
    yield compare("what was copied", numbers(x), host.t().tolist())
    back = torch.zeros(3, 2)
    back.copy_(x)
    x.copy_(torch.ones(3, 2))
    yield compare("tensors that were copied into", [back.tolist(), numbers(x)], [host.t().tolist(), [[1.0] * 2] * 3])
    z = two.copy(torch.tensor([1 + 2j, 3 - 1j]).conj(), first)
    yield compare("a conjugate", numbers(z.conj().to(second) * 2), [2 + 4j, 6 - 2j])
    yield compare("the negative of an imaginary part", numbers(z.conj().imag), [2.0, -1.0])
    moved = x.to(second, torch.float64)
    yield compare("device and dtype", (moved.device, moved.dtype), (second, torch.float64))
    same = torch.ops.aten._to_copy.default(x, device=second)
    yield compare("device and dtype of a copy", (same.device, same.dtype), (second, x.dtype))
    yield compare("strides", x.t().to(first, torch.float64).stride(), (1, 2))
    like = [torch.zeros_like(x, device=second), x.new_zeros(3), torch.empty_like(x, device="cpu")]
    yield compare("devices of memory", [str(t.device) for t in like], ["cpu:1", "cpu:0", "cpu"])
    shapes = [x.to("meta"), torch.zeros_like(x, device="meta")]
    yield compare("tensors without data", [(t.is_meta, tuple(t.shape)) for t in shapes], [(True, (3, 2))] * 2)
    memory = two.empty(host.half(), (2, 1), second)
    yield compare("memory", (memory.shape, memory.dtype, memory.device), (torch.Size([2, 1]), torch.float16, second))


def _copied_deeply(fabric: Fabric) -> Mismatches:
    """`copy.deepcopy` gives memory of its own on the same device, once for one tensor, and a parameter for one."""
    two = fabric(2)
    x = two.copy(torch.ones(3), two.devices[1]).requires_grad_()
    weight = torch.nn.Parameter(two.copy(torch.ones(3), two.devices[1]), requires_grad=False)
    (a, b), twin = copy.deepcopy((x, x)), copy.deepcopy(weight)
    yield compare(
        "one tensor twice, copied", (a is b, a is x, a.requires_grad, a.device), (True, False, True, x.device)
    )
    kinds = (type(twin) is type(weight), isinstance(twin, torch.nn.Parameter), twin.requires_grad, twin.device)
    yield compare("a parameter, copied", kinds, (True, True, False, weight.device))
    with torch.no_grad():
        a.zero_()
    yield compare("what was copied", numbers(x), [1.0] * 3)
    yield compare("data", (x.data.requires_grad, x.data.device), (False, x.device))
    yield refusal_mismatch(lambda: setattr(x, "data", torch.ones(3)), "got an assignment to .data, need a new tensor")
    yield compare("its text", f"{x!r}".startswith("LogicalTensor(") and f"{x!r}".endswith("device=cpu:1)"), True)


_QUESTIONS: dict[str, Callable[[Fabric], Mismatches]] = {
    "operands are of one device": _one_device,
    "operands are of one fabric": _one_fabric,
    "names of devices": _names,
    "a stream waits for what another has written": _waits,
    "a stream waits for what another reads": _writes,
    "copies are ordered": _copies,
    "memory is kept": _freed,
    "bytes are counted": _books,
    "memory is where it was asked for": _memory,
    "deep copies": _copied_deeply,
}


def of_logical_devices(fabric: Fabric) -> tuple[Promise, ...]:
    """The promises of a fabric of logical devices."""
    return tuple(Promise(name, partial(question, fabric)) for name, question in _QUESTIONS.items())
