"""The rehearsal device: tensors, refusals, guards, streams and graphs are as torch has them on CUDA."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from opassay import impl
from opassay.properties.checks.calls import memory
from workshop.kernels.classes import CLASSES, ShapeClass
from workshop.kernels.source import Source, gradients, outputs_of

pytestmark = [
    pytest.mark.rehearsal,
    pytest.mark.skipif("OPASSAY_REHEARSAL" not in os.environ, reason="tests of python -m tests.rehearsal -m pytest"),
]
OTHER = torch.device("cuda", 1)


@pytest.fixture(autouse=True)
def _settle() -> Iterator[None]:
    """A test begins when the device has done all work, with no complaint of the test before."""
    yield
    for stream in (0, 1):
        torch.cuda.synchronize(stream)


def test_it_never_says_that_it_is_cuda() -> None:
    assert torch.cuda.get_device_name(0) == "rehearsal device (host memory)"
    assert torch.version.cuda == "rehearsed"


def test_generators_are_seeded_and_set_back() -> None:
    before = torch.cuda.get_rng_state_all()
    torch.cuda.seed_all()
    assert not torch.equal(torch.cuda.get_rng_state(OTHER), before[1])
    torch.cuda.set_rng_state_all(before)
    assert torch.equal(torch.cuda.get_rng_state(OTHER), before[1])


def test_tensors_are_plain_ones_of_two_devices() -> None:
    x = torch.arange(6.0).reshape(2, 3).to(OTHER)
    assert (type(x), x.is_cuda, x.device, x.t().is_contiguous()) == (Tensor, True, OTHER, False)
    x[0].add_(1)  # a view of the same memory
    assert x.cpu().tolist() == [[1, 2, 3], [3, 4, 5]]
    assert torch.empty(4, device="cuda").isnan().all().item()
    with pytest.raises(TypeError, match="convert cuda:1 device type tensor to numpy"):
        x.numpy()


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_operands_of_two_devices_are_refused(device: str) -> None:
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.ones(3, device=OTHER) + torch.ones(3, device=device)


def test_memory_is_counted_until_it_is_free() -> None:
    before = torch.cuda.memory_allocated(OTHER)
    x = torch.empty(256, device=OTHER)
    y = x[3:]
    del x
    assert torch.cuda.memory_allocated(OTHER) == before + 1024
    del y
    assert torch.cuda.memory_allocated(OTHER) == before


def test_an_output_that_is_resized_has_new_memory_of_its_device() -> None:
    out = torch.empty(0, device=OTHER)
    torch.add(torch.ones(5, device=OTHER), 1, out=out)
    assert (out.device, out.tolist()) == (OTHER, [2] * 5)


@pytest.mark.parametrize("groups", [1, 6])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_convolutions_have_the_values_and_gradients_of_the_host(dims: int, groups: int) -> None:
    convolve: Any = (torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d)[dims - 1]
    operands = torch.randn(2, 6, *[5] * dims), torch.randn(6, 6 // groups, *[3] * dims), torch.randn(6)
    results = []
    for device in ("cpu", "cuda"):
        leaves = [x.to(device).requires_grad_() for x in operands]
        y = convolve(*leaves, padding=1, groups=groups)
        results.append([t.detach().cpu() for t in (y, *torch.autograd.grad(y.square().sum(), leaves))])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_a_view_in_inference_mode_is_as_normal_as_its_base() -> None:
    x = torch.ones(4, 4, device="cuda")
    with torch.inference_mode():
        y = x[:, :2]
        assert (y.is_inference(), x.clone().is_inference()) == (False, True)


def test_a_copy_of_the_process_can_use_no_gpu() -> None:
    torch.ones(1, device="cuda")
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            torch.ones(1, device="cuda")
        except RuntimeError as err:
            os.write(write, str(err).encode()[:100])
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as output:
        assert output.read().startswith("Cannot re-initialize CUDA in forked subprocess")


def test_pinned_memory_is_known() -> None:
    x = torch.ones(3).pin_memory()
    assert (x.is_pinned(), x[1:].is_pinned(), torch.ones(3).is_pinned()) == (True, True, False)


def test_what_cuda_has_kernels_for_autocasts_as_there() -> None:
    x = torch.ones(4, 4, device="cuda", dtype=torch.bfloat16)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert torch.trace(x).dtype == torch.float32
        assert torch.native_group_norm(x, None, None, 4, 4, 1, 2, 1e-5)[0].dtype == torch.bfloat16
        assert torch.native_layer_norm(x, [4], None, None, 1e-5)[0].dtype == torch.float32


def test_autocast_is_that_of_cuda() -> None:
    x = torch.ones(3, 3, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert (x @ x).dtype is torch.bfloat16
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x @ x).dtype is torch.float32


# ------------------------------------------------------------------------------------------------------------- guards


def _first_of_each_op() -> list[ShapeClass]:
    return list({kind.op: kind for kind in reversed(CLASSES)}.values())


def _operands(kind: ShapeClass, device: torch.device) -> list[Any]:
    source = Source(torch.float32, torch.device("cpu"), torch.Generator().manual_seed(1))
    return [
        a.detach().to(device).requires_grad_(a.requires_grad) if isinstance(a, Tensor) else a
        for a in kind.arguments(source, kind.few)
    ]


@pytest.mark.parametrize("kind", _first_of_each_op(), ids=lambda kind: kind.op)
def test_kernels_run_where_their_operands_are(kind: ShapeClass) -> None:
    """Values and derivatives on the second GPU while the first is the current one: the bits of the first."""
    outputs_of_devices = []
    for device in (OTHER, torch.device("cuda", 0)):
        operands = _operands(kind, device)
        places = [i for i, a in enumerate(operands) if isinstance(a, Tensor) and a.requires_grad]

        def call(*moving: Tensor, operands: list[Any] = operands, places: list[int] = places) -> tuple[Tensor, ...]:
            arguments = list(operands)
            for i, x in zip(places, moving, strict=True):
                arguments[i] = x
            return outputs_of(getattr(impl, kind.op)(*arguments, **kind.keywords))

        outputs = outputs_of(getattr(impl, kind.op)(*operands, **kind.keywords))
        primals = tuple(operands[i].detach() for i in places)
        _, tangents, *_ = torch.func.jvp(call, primals, tuple(map(torch.ones_like, primals)))
        every = (*outputs, *gradients(outputs, operands), *tangents)
        assert {t.device for t in every} == {device}
        assert torch.cuda.current_device() == 0
        outputs_of_devices.append([t.detach().cpu() for t in every])
    assert all(torch.equal(a, b) for a, b in zip(*outputs_of_devices, strict=True))


def _launch(x: Tensor, grid: tuple[int, ...] = (1,)) -> None:
    from tests.properties.rehearsal.said_cuda import double_each

    double_each[grid](x, x, x.numel(), BLOCK=16)


def test_launches_are_refused_as_cuda_refuses_them() -> None:
    with pytest.raises(ValueError, match="cpu tensor"):
        _launch(torch.ones(3))
    with pytest.raises(RuntimeError, match="illegal memory access"):
        _launch(torch.ones(3, device=OTHER))
    for grid in ((1, 65536), (1, 1, 65536), (2**31,)):
        with pytest.raises(RuntimeError, match="invalid argument"):
            _launch(torch.ones(3, device="cuda"), grid)
    x = torch.ones(3, device="cuda")
    _launch(x, (0,))  # no blocks are no mistake: Triton launches nothing then
    assert x.tolist() == [1, 1, 1]
    _launch(x, (1,))
    assert x.tolist() == [2, 2, 2]


# ------------------------------------------------------------------------------------------------------------ streams


def _on(stream: Any, work: Callable[[], Any]) -> Any:
    with torch.cuda.stream(stream):
        return work()


def test_what_nothing_orders_is_a_race() -> None:
    side, main, x = torch.cuda.Stream(), torch.cuda.current_stream(), torch.ones(4, device="cuda")
    with pytest.raises(RuntimeError, match=r"add on stream .* reads what .*fill_ on stream 0 .* wrote, and nothing"):
        _on(side, lambda: x + 1)
    side.wait_stream(main)
    _on(side, lambda: x + 1)
    x + 1  # two that read are no race
    with pytest.raises(RuntimeError, match=r"mul on stream 0 .* writes what .*add on stream .* read, and nothing"):
        x.mul_(2)
    main.wait_event(side.record_event())
    x.mul_(2)
    side.wait_stream(main)
    _on(side, lambda: x.add_(1))
    torch.cuda.synchronize()
    x.add_(1)


def test_kernels_of_triton_race_with_ops() -> None:
    side, x = torch.cuda.Stream(), torch.ones(4, 8, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    x.mul_(2)
    with pytest.raises(RuntimeError, match=r"softmax_forward on stream .* reads what aten::mul on stream 0"):
        _on(side, lambda: impl.softmax(x, -1))
    side.wait_stream(torch.cuda.current_stream())
    y = _on(side, lambda: impl.softmax(x, -1))
    with pytest.raises(RuntimeError, match=r"aten::add on stream 0 .* reads what softmax_forward on stream .* wrote"):
        y + 1
    torch.cuda.synchronize()


@pytest.mark.parametrize("way", ["too early", "recorded", "waited for"])
def test_memory_is_not_free_before_the_last_use(way: str) -> None:
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    x = _on(side, lambda: torch.ones(4, device="cuda"))
    main.wait_stream(side)
    y = x * 2
    if way == "recorded":
        x.record_stream(main)
    if way == "waited for":
        side.wait_stream(main)
    del x
    if way == "too early":
        with pytest.raises(RuntimeError, match=r"was freed, and aten::mul on stream 0 .* may still use it"):
            y + 1
    y + 1


# ------------------------------------------------------------------------------------------------------------- graphs


def _capture(work: Callable[[], Any]) -> tuple[Any, Any]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = work()
    return graph, results


def test_a_graph_does_its_work_again() -> None:
    x, target = torch.randn(5, 7).cuda().requires_grad_(), torch.tensor([0, 6, 2, 3, 1]).cuda()

    def step() -> tuple[Tensor, ...]:
        loss = impl.cross_entropy(2 * x, target)
        return loss.detach(), *torch.autograd.grad(loss, x)

    graph, results = _capture(step)
    x.detach().copy_(torch.randn(5, 7))
    graph.replay()
    assert all(torch.equal(a, b) for a, b in zip(results, step(), strict=True))


@pytest.mark.parametrize(
    "work",
    [lambda x: x.sum().item(), lambda x: x.cpu(), lambda x: x.nonzero(), lambda x: torch.cuda.synchronize()],
    ids=["item", "cpu", "nonzero", "synchronize"],
)
def test_what_waits_is_refused_in_a_capture(work: Callable[[Tensor], object]) -> None:
    x = torch.ones(3, device="cuda")
    with pytest.raises(RuntimeError, match="operation not permitted when stream is capturing"):
        _capture(lambda: work(x))
    assert not torch.cuda.is_current_stream_capturing()


def test_the_work_of_a_capture_begins_and_ends_on_its_stream() -> None:
    x, side = torch.ones(3, device="cuda"), torch.cuda.Stream()
    with pytest.raises(RuntimeError, match="has not waited for the capture"):
        _capture(lambda: _on(side, lambda: x + 1))

    def forked(joins: bool) -> Tensor:
        side.wait_stream(torch.cuda.current_stream())
        y: Tensor = _on(side, lambda: x + 1)
        if joins:
            torch.cuda.current_stream().wait_stream(side)
        return y

    with pytest.raises(RuntimeError, match="unjoined work"):
        _capture(lambda: forked(joins=False))
    graph, y = _capture(lambda: forked(joins=True))
    graph.replay()
    assert y.tolist() == [2, 2, 2]


def test_to_read_the_same_with_gaps_again_and_again_takes_no_memory() -> None:
    x, calls = torch.ones(64, 64, device="cuda"), 2000

    def read() -> int:
        for _ in range(calls):
            x[:, 0].sum()
        return memory._in_use()[1]

    before = read()
    assert read() - before < 8 * calls
