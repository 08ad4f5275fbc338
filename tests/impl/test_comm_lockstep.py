"""Ranks in lockstep: what collectives mean, how a world fails, and synchronised batch norm beyond first derivatives."""

from __future__ import annotations

import copy
import math
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import Tensor

from opassay.impl import batch_norm
from opassay.impl.comm import (
    Comm,
    CommError,
    DryComm,
    LockstepWorld,
    Network,
    SoloComm,
    SyncBatchNorm,
    TorchComm,
    collective,
    convert_sync_batchnorm,
    sync_batch_norm,
)

SIZES = (1, 2, 3, 5, 8)


def encoded(rank: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """A 2 x 3 tensor of columns in memory whose values tell rank and index."""
    return (torch.arange(6).reshape(3, 2).t() + 10 * rank).to(dtype)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int32, torch.complex64])
def test_collectives_move_what_they_say(size: int, dtype: torch.dtype) -> None:
    def program(comm: Comm) -> None:
        x = encoded(comm.rank, dtype)
        every = [encoded(r, dtype) for r in range(size)]
        assert torch.equal(comm.all_reduce(x), sum(every[1:], start=every[0]))
        assert torch.equal(comm.reduce(x, size - 1), sum(every[1:], every[0]) if comm.rank == size - 1 else x)
        assert torch.equal(comm.broadcast(x, size - 1), every[-1])
        rows = comm.all_gather(x[: comm.rank % 3])
        assert all(torch.equal(a, b[: r % 3]) for r, (a, b) in enumerate(zip(rows, every, strict=True)))
        result = comm.gather(x, 0)
        assert len(result) == (size if comm.rank == 0 else 0)
        assert all(torch.equal(a, b) for a, b in zip(result, every, strict=False))
        assert torch.equal(comm.scatter(x[0].expand(size, 3) + comm.rank, 0), every[0][0])
        mine = comm.all_to_all(torch.arange(size).to(dtype) + 10 * comm.rank)
        assert torch.equal(mine, torch.tensor([10 * r + comm.rank for r in range(size)]).to(dtype))
        comm.barrier()

    LockstepWorld(size, order="random", seed=size).run(program)
    if size == 1:
        program(SoloComm())


def test_a_backward_pass_runs_in_the_thread_of_its_rank() -> None:
    """A GPU's passes would all run in one thread, in which a rank would wait for another one forever."""

    def program(comm: Comm) -> list[bool]:
        x = torch.ones(1, requires_grad=True)
        allowed = [torch._C._is_multithreading_enabled()]
        y = x * 2.0
        y.register_hook(lambda g: allowed.append(torch._C._is_multithreading_enabled()))
        torch.autograd.grad(collective.all_reduce(y, comm).sum(), x)
        return allowed

    assert LockstepWorld(2).run(program) == [[False, False]] * 2


@pytest.mark.parametrize("size", SIZES)
def test_a_dry_rank_gives_what_ranks_of_equal_data_give(size: int) -> None:
    x = encoded(3)

    def program(comm: Comm) -> list[Any]:
        square = torch.arange(2.0 * size).reshape(size, 2)
        results = [comm.all_reduce(x), comm.all_reduce(x, "max"), comm.reduce(x, 0), comm.broadcast(x, 0)]
        results += [*comm.all_gather(x), *comm.gather(x, 0), comm.scatter(square, 0), comm.all_to_all(square)]
        comm.barrier()
        return results

    for rank, wet in enumerate(LockstepWorld(size).run(program)):
        dry = DryComm(rank, size)
        assert all(torch.equal(a, b) for a, b in zip(program(dry), wet, strict=True))
        assert len(dry.ledger) == 9
        assert all((e.sent_bytes > 0 and e.seconds > 0) or size == 1 or e.call.op == "barrier" for e in dry.ledger)
    with pytest.raises(ValueError, match="got rank=2, size=2"):
        DryComm(2, 2)


def test_a_network_that_is_slower_takes_longer() -> None:
    times = []
    for network in (Network(), Network(latency=1e-3), Network(bandwidth=1e6)):
        comm = DryComm(0, 16, network)
        comm.all_reduce(torch.zeros(1000))
        times.append(comm.ledger[0].seconds)
    assert times[0] < min(times[1:])


def _program(comm: Comm) -> float:
    total = comm.all_reduce(torch.ones(4) * (comm.rank + 1), tag="statistics")
    comm.all_reduce(total, tag="gradients")
    return float(comm.broadcast(total, 1, tag="weights")[0])


WAITS = "rank 0 waits in call 2, all_reduce[gradients](float32[4], sum)"


def test_a_world_runs_again_and_leaves_the_process_as_it_was() -> None:
    world, threads = LockstepWorld(3), torch.get_num_threads()
    assert [world.run(_program), world.run(_program)] == [[6.0] * 3] * 2
    with pytest.raises(CommError):
        world.run(lambda comm: None if comm.rank else comm.barrier())
    assert world.run(_program) == [6.0] * 3
    assert torch.get_num_threads() == threads


def _one_differs(**changes: Any) -> Any:
    def program(comm: Comm) -> Any:
        usual: dict[str, Any] = {"dtype": torch.float32, "length": 3, "reduction": "sum", "tag": "a"}
        options = usual | (changes if comm.rank == 1 else {})
        return comm.all_reduce(
            torch.ones(options["length"], dtype=options["dtype"]), options["reduction"], options["tag"]
        )

    return program


class Slipping(Comm):
    """Leaves out one of a rank's calls, as a program with a wrong branch would, or raises in place of it."""

    def __init__(self, comm: Comm, number: int, error: Exception | None) -> None:
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self.left, self.error = number, error

    def _run(self, call: Any, x: Tensor) -> list[Tensor]:
        self.left -= 1
        if self.left == 0 and self.error is not None:
            raise self.error
        return [x] if self.left == 0 else self.comm._run(call, x)


def _slips(rank: int, number: int, error: Exception | None = None) -> Any:
    return lambda comm: _program(Slipping(comm, number, error) if comm.rank == rank else comm)


FAILURES = [
    ("a rank skips a call", _slips(2, 2), [WAITS, "rank 2 waits in call 2, broadcast[weights]"]),
    ("a rank skips the last call", _slips(2, 3), ["rank 2 has returned after call 2, all_reduce[gradients]"]),
    ("a rank raises", _slips(1, 2, KeyError("x")), [WAITS, "rank 1 raised KeyError: 'x' after call 1, all_reduce"]),
    ("a rank returns early", lambda c: None if c.rank == 1 else _program(c), ["rank 1 has returned after call 0"]),
    (
        "another reduction",
        _one_differs(reduction="max"),
        ["rank 1 waits in call 1, all_reduce[a](float32[3], max)"],
    ),
    ("another dtype", _one_differs(dtype=torch.int32), ["all_reduce[a](int32[3], sum)"]),
    ("another shape", _one_differs(length=4), ["all_reduce[a](float32[4], sum)"]),
    ("another tag", _one_differs(tag="b"), ["rank 1 waits in call 1, all_reduce[b](float32[3], sum)"]),
    ("another root", lambda c: c.broadcast(torch.ones(3), int(c.rank == 1)), ["root=0", "root=1"]),
    (
        "another call",
        lambda c: c.barrier() if c.rank else c.all_reduce(torch.ones(())),
        ["rank 1 waits in call 1, barrier"],
    ),
]


@pytest.mark.parametrize(("name", "program", "words"), FAILURES, ids=[f[0] for f in FAILURES])
def test_a_failure_names_ranks_calls_and_numbers(name: str, program: Any, words: list[str]) -> None:
    for order in ("rank", "random"):
        with pytest.raises(CommError) as info:
            LockstepWorld(4, order=order).run(program)
        assert all(part in str(info.value) for part in words), str(info.value)
    print(f"\n{name:28s} {str(info.value)[:150]}")
    assert LockstepWorld(4).run(_program) == [10.0] * 4


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda c: c.all_reduce(1.0), TypeError, "got x of type float"),
        (lambda c: c.all_reduce(torch.ones(1), "mean"), ValueError, "got reduction='mean', need one of sum, max, min"),
        (lambda c: c.broadcast(torch.ones(1), 2), ValueError, "got root=2, need a rank of 2"),
        (lambda c: c.all_gather(torch.ones(())), ValueError, "need at least one dim"),
        (lambda c: c.scatter(torch.ones(3), 0), ValueError, r"need one slice per rank, shape\[0\]=2"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_sent(call: Any, error: type[Exception], message: str) -> None:
    def program(comm: Comm) -> None:
        with pytest.raises(error, match=message):
            call(comm)

    LockstepWorld(2).run(program)
    with pytest.raises(ValueError, match="need at least 1 rank"):
        LockstepWorld(0)
    with pytest.raises(RuntimeError, match=r"torch\.distributed is not initialised"):
        TorchComm()


# ------------------------------------------------------------------------------------------------------ batch norm


def _sample(dtype: torch.dtype = torch.float64) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(5)
    x, w, b = (torch.randn(*s, generator=generator).to(dtype) for s in ((12, 3, 4), (3,), (3,)))
    return x, None, None, w, b, True, 0.1, 1e-5


def test_no_element_on_any_rank_updates_nothing() -> None:
    def program(comm: Comm) -> list[Tensor]:
        running = [torch.full((2,), 3.0), torch.full((2,), 4.0)]
        out = sync_batch_norm(torch.ones(0, 2), running[0], running[1], None, None, True, comm=comm)
        return [out, *running]

    for out, mean, var in LockstepWorld(3).run(program):
        assert (tuple(out.shape), mean.tolist(), var.tolist()) == ((0, 2), [3.0, 3.0], [4.0, 4.0])


def test_of_no_channels_there_is_a_gradient_too() -> None:
    def program(comm: Comm) -> list[int]:
        x = torch.ones(2, 0, 3, requires_grad=True)
        y = sync_batch_norm(x, None, None, None, None, True, comm=comm)
        (g,) = torch.autograd.grad(y, x, torch.ones_like(y))
        return list(g.shape)

    assert LockstepWorld(2).run(program) == [[2, 0, 3]] * 2


def test_a_rank_that_needs_no_gradient_takes_part_all_the_same() -> None:
    def program(comm: Comm) -> Tensor:
        x = torch.randn(3, 2, generator=torch.Generator().manual_seed(comm.rank)).requires_grad_(comm.rank != 1)
        y = sync_batch_norm(x, None, None, None, None, True, comm=comm)
        torch.autograd.backward(y.square().sum() * (comm.rank + 1.0))
        return torch.zeros(0) if x.grad is None else x.grad

    assert [len(g) for g in LockstepWorld(3).run(program)] == [3, 0, 3]


@pytest.mark.parametrize(("mean", "spread"), [(0, 1), (10, 1), (1e3, 1), (0, 1e-4), (1e4, 1)])
def test_running_var_is_right_to_a_rounding(mean: float, spread: float) -> None:
    generator = torch.Generator().manual_seed(1)
    parts = [(torch.randn(64, 1, generator=generator) * spread + mean) for _ in range(4)]

    def program(comm: Comm) -> Tensor:
        running = torch.zeros(1), torch.ones(1)
        sync_batch_norm(parts[comm.rank], *running, None, None, True, 1.0, comm=comm)
        return running[1]

    values = [Fraction(v) for part in parts for v in part.double().flatten().tolist()]
    zero = Fraction(0)
    centre = sum(values, zero) / len(values)
    exact = sum(((v - centre) * (v - centre) for v in values), zero) / (len(values) - 1)
    result = LockstepWorld(4).run(program)
    assert all(torch.equal(v, result[0]) for v in result)
    lost = 2 * max(0.0, math.log2(abs(mean) / spread)) if mean else 0.0
    error = float(abs(Fraction(float(result[0])) - exact) / exact)
    assert error <= 2.0**-24 + 2.0 ** (-53 + lost + 10), error  # one rounding, and what the sums lost
    assert error <= 1e-7


class Counting(Comm):
    """Counts calls and elements of a rank of a world."""

    def __init__(self, comm: Comm) -> None:
        self.comm, self.rank, self.size, self.sent = comm, comm.rank, comm.size, []

    def _run(self, call: Any, x: Tensor) -> list[Tensor]:
        self.sent.append(x.numel())
        return self.comm._run(call, x)

    sent: list[int]


@pytest.mark.parametrize("size", [2, 4, 8])
def test_the_payload_does_not_grow_with_the_ranks(size: int) -> None:
    def program(comm: Comm) -> list[int]:
        counting = Counting(comm)
        x = torch.randn(3, 5, generator=torch.Generator().manual_seed(comm.rank)).requires_grad_()
        y = sync_batch_norm(x, None, None, None, None, True, comm=counting)
        torch.autograd.backward(y, torch.ones_like(y))
        sync_batch_norm(x, torch.zeros(5), torch.ones(5), None, None, False, comm=counting)
        return counting.sent

    assert LockstepWorld(size).run(program) == [[2 * 5 + 1, 2 * 5]] * size


def test_one_element_on_all_ranks_is_refused_on_every_rank() -> None:
    def program(comm: Comm) -> str:
        with pytest.raises(ValueError, match="got one element per channel on all ranks") as info:
            sync_batch_norm(torch.ones(int(comm.rank == 1), 2), None, None, None, None, True, comm=comm)
        return str(info.value)

    assert len(set(LockstepWorld(3).run(program))) == 1


def test_under_vmap_and_forward_mode_it_is_batch_norm_of_the_whole() -> None:
    x, _, _, w, b, *_ = _sample()
    batch = torch.stack([x, 2 * x.flip(0)])

    def program(comm: Comm) -> Any:
        rows = slice(6 * comm.rank, 6 * comm.rank + 6)

        def f(t: Tensor) -> Tensor:
            return sync_batch_norm(t, None, None, w, b, True, comm=comm)

        moved = torch.func.jvp(torch.vmap(f), (batch[:, rows],), (batch[:, rows].cos(),))[1]
        each = [torch.func.jvp(f, (t[rows],), (t[rows].cos(),))[1] for t in batch]
        return torch.vmap(f)(batch[:, rows]), torch.stack([f(t[rows]) for t in batch]), moved, torch.stack(each)

    for values, loop, moved, moved_loop in LockstepWorld(2, forward_mode=True).run(program):
        assert torch.equal(values, loop)
        assert torch.equal(moved, moved_loop)


def test_the_module_is_torch_s_for_state_dicts_and_one_rank() -> None:
    theirs: Any = torch.nn.SyncBatchNorm(3)
    theirs.running_mean.copy_(torch.tensor([1.0, 2.0, 3.0]))
    ours = SyncBatchNorm(3)
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(4, 3, 2, generator=torch.Generator().manual_seed(0))
    alone = batch_norm(x, ours.running_mean.clone(), ours.running_var.clone(), ours.weight, ours.bias, True)  # type: ignore[union-attr]
    assert torch.equal(ours(x), alone)
    assert int(ours.num_batches_tracked) == 1  # type: ignore[arg-type]
    assert torch.equal(copy.deepcopy(ours).eval()(x), ours.eval()(x))
    with pytest.raises(ValueError, match="need at least 2 dims"):
        ours(torch.ones(3))


def test_conversion_keeps_the_tensors_and_finds_every_layer() -> None:
    inner = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 1), torch.nn.BatchNorm2d(2, momentum=None))
    network = torch.nn.Sequential(inner, torch.nn.BatchNorm1d(4, affine=False)).eval()
    converted: Any = convert_sync_batchnorm(network, comm=SoloComm())
    assert isinstance(converted[0][1], SyncBatchNorm)
    assert isinstance(converted[1], SyncBatchNorm)
    assert converted[0][1].weight is inner[1].weight
    assert (converted[0][1].momentum, converted[0][1].training, converted[1].affine) == (None, False, False)
