"""What the classes that move tensors promise in addition to values: dtypes, layouts, lists, missing tangents.

Samples have only dense tensors that require grad, of the dtypes in which a formula is judged. Programs also move other
tensors, which have to arrive unchanged.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.autograd import forward_ad

from ....oracles.op.placement import Promise
from ... import worlds
from ..mismatch import Mismatches, compare, numbers, refusal_mismatch
from ..over_places import run_on_ranks
from .promises import Fabric, of_logical_devices

_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.complex64, torch.int64, torch.bool)
_HERE = ("cpu", "cpu")


@dataclass(frozen=True)
class Moves:
    """The implementation that moves tensors.

    Attributes:
        devices, collective: the modules with the classes that move tensors between devices, and between ranks.
        fabric: makes logical devices. fabrics: the module of the fabrics of torch's own devices.
    """

    devices: Any
    collective: Any
    fabric: Fabric
    fabrics: Any


def _any_dtype(moves: Moves) -> Mismatches:
    """Autocast changes no tensor that moves, neither in a bucket nor in a batch."""
    for dtype in _DTYPES:
        x, y = torch.tensor([1, 0, 1]).to(dtype), torch.tensor([[0, 1]]).to(dtype)
        two = moves.fabric(2)
        with two.active(), torch.autocast("cpu", torch.bfloat16):
            copies = moves.devices.Broadcast.apply((0, 1), x, y)
            sums = moves.devices.ReduceAddCoalesced.apply(0, 2, *copies) if dtype != torch.bool else ()
            whole = moves.devices.Gather.apply(-1, 0, *copies[::2])
            parts = moves.devices.Scatter.apply((0, 1), (1, 2), 0, x)
            batch = torch.func.vmap(lambda t, u=copies[0]: moves.devices.Gather.apply(0, 0, t, u))(
                copies[2].expand(2, 3)
            )
        got = [*copies, *sums, whole, *parts, batch]
        need = [x, y, x, y, *([x + x, y + y] if sums else []), torch.cat([x, x]), x[:1], x[1:]]
        yield compare("dtypes under autocast", {t.dtype for t in got}, {dtype})
        yield compare("numbers", [numbers(t) for t in got], [*map(numbers, need), [numbers(torch.cat([x, x]))] * 2])
        two.check()


def _sparse(moves: Moves) -> Mismatches:
    """Sparse tensors are not put into buckets; a sum of sparse tensors is sparse, and one with a dense tensor dense."""
    x, dense = torch.tensor([[0.0, 1.0], [2.0, 0.0]]), torch.ones(2, 2)
    sparse = x.to_sparse()
    copies = moves.devices.Broadcast.apply(_HERE, sparse, sparse, dense, dense)
    layouts = [torch.sparse_coo, torch.sparse_coo, torch.strided, torch.strided]
    yield compare("layouts of copies", [t.layout for t in copies], layouts * 2)
    yield compare("copies", [numbers(t.to_dense()) for t in copies[::2]], [numbers(t) for t in (x, dense)] * 2)
    rows = (sparse, sparse, sparse, dense, sparse, dense, sparse, dense)
    sums = moves.devices.ReduceAddCoalesced.apply("cpu", 4, *rows)
    yield compare("layouts of sums", [t.layout for t in sums], [torch.sparse_coo, torch.strided] * 2)
    need = [x + x, x + dense, x + x, dense + dense]
    yield compare("sums", [numbers(t.to_dense()) for t in sums], [numbers(t) for t in need])
    for dim in (0, 1, -1):
        whole = moves.devices.Gather.apply("cpu", dim, sparse, sparse)
        yield compare("sparse tensors together", numbers(whole.to_dense()), numbers(torch.cat([x, x], dim)))


def _elsewhere(moves: Moves) -> Mismatches:
    """Tensors without data stand for those of another device: sparse ones go there one by one, dense ones together."""
    sparse, dense = torch.eye(2).to_sparse(), torch.ones(2)
    with moves.fabrics.TorchFabric(["cpu", "meta"]).active():
        copies = moves.devices.Broadcast.apply((1, 0), sparse, sparse, dense, dense)
        sums = moves.devices.ReduceAddCoalesced.apply(1, 2, dense, dense, *copies[2:4])
    yield compare("sums", [(str(y.device), tuple(y.shape)) for y in sums], [("meta", (2,))] * 2)
    need = [("meta", torch.sparse_coo)] * 2 + [("meta", torch.strided)] * 2
    need += [("cpu", layout) for _, layout in need]
    yield compare("devices and layouts", [(str(y.device), y.layout) for y in copies], need)


def _in_part(moves: Moves) -> Mismatches:
    """Some tensors alone have tangents and gradients; integers have none, and a column may have no tensor at all."""
    x, t, whole = torch.ones(2), torch.tensor([5.0, 7.0]), torch.tensor([1, 2])
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.ones(2) * 3, t)
        copies = moves.devices.Broadcast.apply(_HERE, x, dual, whole)
        yield compare("tangents of copies", _tangents(copies), [[0.0, 0.0], [5.0, 7.0], None] * 2)
        sums = moves.devices.ReduceAddCoalesced.apply("cpu", 4, x, None, dual, whole, x, None, x, whole)
        yield compare("tangents of sums", _tangents(sums), [[0.0, 0.0], None, [5.0, 7.0], None])
        yield compare("a sum of none", sums[1], None)
    alone = moves.devices.ReduceAddCoalesced.apply("cpu", 2, None, x, whole, None)
    same = [y.data_ptr() == term.data_ptr() for y, term in zip(alone, (whole, x), strict=True)]
    yield compare(
        "sums of one term, and whether they are that", [*map(numbers, alone), same], [[1, 2], [1.0, 1.0], [False] * 2]
    )
    for needs in ((True, False), (False, True), (False, False)):
        tensors = [torch.ones(2, requires_grad=need) for need in needs]
        copies = moves.devices.Broadcast.apply(_HERE, *tensors, whole)
        yield compare("which copies need a gradient", [y.requires_grad for y in copies], [*needs, False] * 2)
        if any(needs):
            total = sum(y.sum() * i for i, y in enumerate(copies, 1) if y.requires_grad)
            torch.autograd.backward(total)
            need_first, need_second = [5.0, 5.0] if needs[0] else None, [7.0, 7.0] if needs[1] else None
            yield compare("gradients", _or_none([x.grad for x in tensors]), [need_first, need_second])


def _tangents(tensors: Any) -> list[list[float] | None]:
    return _or_none([None if y is None else forward_ad.unpack_dual(y).tangent for y in tensors])


def _or_none(tensors: Any) -> list[list[float] | None]:
    return [None if t is None else numbers(t) for t in tensors]


def _traffic(moves: Moves) -> Mismatches:
    """Only gradients that are asked for are sent, small tensors share a copy, and copies from the host overlap."""
    three = moves.fabric(3)
    x, y = torch.ones(3, requires_grad=True), torch.ones(5, requires_grad=True)
    with three.active():
        copies = moves.devices.Broadcast.apply((0, 1, 2), x, y)
        sums = moves.devices.ReduceAddCoalesced.apply(0, 2, *copies[2:])
        before = three.count_sent_bytes()
        grads = torch.autograd.grad(copies[4], (x, y), torch.ones_like(copies[4]), allow_unused=True)
        yield compare("bytes of one cotangent of a copy", (three.count_sent_bytes() - before, grads[1]), (12, None))
        before = three.count_sent_bytes()
        grads = torch.autograd.grad(sums[0], copies[2:], torch.ones_like(sums[0]), allow_unused=True)
        none = [g is None for g in grads]
        yield compare(
            "bytes of one cotangent of a sum", (three.count_sent_bytes() - before, none), (24, [False, True] * 2)
        )
        parts = moves.devices.Scatter.apply((0, 1), (1, 2), 0, x)
        there = moves.devices.Scatter.apply((0, 1), (1, 1), 0, parts[1])
    streams = [f"{t.buffer.owner}" for t in (*parts, there[0])]
    yield compare("streams of copies", streams, ["cpu:0/copies 0", "cpu:1/copies 1", "cpu:0/main"])
    before = len(three.ledger)
    with three.with_bucket(8).active():
        moves.devices.Broadcast.apply((1,), *torch.ones(5, 1).unbind(), torch.ones(3))
    yield compare("bytes of each copy", [sent.size for sent in three.ledger[before:]], [8, 8, 4, 12])
    three.check()


def _without_dims(moves: Moves) -> Mismatches:
    """Tensors without dims are gathered to a vector, with a warning; without tensors there is neither."""
    for dim in (0, -1):
        with warnings.catch_warnings(record=True) as log:
            warnings.simplefilter("always")
            whole = moves.devices.Gather.apply("cpu", dim, torch.tensor(1.0), torch.tensor(2.0))
            moves.devices.Gather.apply("cpu", dim, torch.ones(1), torch.ones(1))
        yield compare("a vector", numbers(whole), [1.0, 2.0])
        yield compare("warnings", ["0-dim tensors" in str(warning.message) for warning in log], [True])
        with warnings.catch_warnings(record=True) as log:
            warnings.simplefilter("always")
            yield refusal_mismatch(partial(moves.devices.Gather.apply, "cpu", dim), "gather: got no tensors")
        yield compare("warnings where nothing is gathered", len(log), 0)


def _lists(moves: Moves) -> Mismatches:
    """Lists of places and of sizes are read when the class is called, and may be changed after it."""
    places, sizes = [0, 1], [1, 2]
    x = torch.arange(3.0, requires_grad=True)
    two = moves.fabric(2)
    with two.active():
        parts = moves.devices.Scatter.apply(places, sizes, 0, x)
        copies = moves.devices.Broadcast.apply(places, x)
    places[:], sizes[:] = [1, 1], [3, 0]
    shapes = [(str(y.device), y.shape[0]) for y in (*parts, *copies)]
    yield compare("devices and lengths", shapes, [("cpu:0", 1), ("cpu:1", 2), ("cpu:0", 3), ("cpu:1", 3)])
    total = sum(i * y.sum().to("cpu") for i, y in enumerate((*parts, *copies), 1))
    (g,) = torch.autograd.grad(total, x)
    yield compare("a gradient", numbers(g), [8.0, 9.0, 9.0])
    uneven = moves.devices.Scatter.apply(("cpu",) * 4, None, 0, torch.arange(5))
    yield compare("lengths of chunks", [len(y) for y in uneven], [2, 2, 1])
    empty = moves.devices.Scatter.apply(("cpu",) * 3, None, 0, torch.ones(0, 2))
    yield compare("shapes of chunks of nothing", [tuple(y.shape) for y in empty], [(0, 2)] * 3)


def _lists_of_ranks(moves: Moves) -> Mismatches:
    """A list of sizes may be changed after the call, before the derivative of it is called."""

    def program(comm: Any) -> list[float]:
        sizes = [1, 2]
        x = torch.ones(sizes[comm.rank], requires_grad=True)
        whole = moves.collective.gather(x, 0, sizes, comm)
        sizes[:] = [3, 0]
        (g,) = torch.autograd.grad(whole, x, torch.tensor([1.0, 2.0, 3.0]))
        return numbers(g)

    if worlds.may_fail():  # so that there may be two ranks, whatever their number is elsewhere
        yield compare("gradients of ranks", run_on_ranks(2, program), [[1.0], [2.0, 3.0]])


def _results_of_ranks(moves: Moves) -> Mismatches:
    """The result of every collective of two ranks is new memory: writing to it changes no tensor that was passed."""
    calls: dict[str, tuple[Any, ...]] = {
        "all_reduce": ("max",), "reduce": (0, "min"), "broadcast": (1,), "all_gather": (), "gather": (1,),
        "scatter": (1,), "all_to_all": (),
    }  # fmt: skip

    def program(comm: Any) -> list[Any]:
        x = torch.tensor([1.0, 2.0]) + 10 * comm.rank
        rows: list[Any] = []
        for name, more in calls.items():
            result = getattr(comm, name)(x, *more)
            several = result if isinstance(result, list) else [result]
            rows.append([numbers(y) for y in several])
            for y in several:
                y.zero_()
            comm.barrier()
        return [*rows, numbers(x)]

    a, b = [1.0, 2.0], [11.0, 12.0]
    first = [[b], [a], [b], [a, b], [], [11.0], [[1.0, 11.0]], a]
    second = [[b], [b], [b], [a, b], [a, b], [12.0], [[2.0, 12.0]], b]
    if worlds.may_fail():
        yield compare("results of ranks, and what they passed", run_on_ranks(2, program), [first, second])


def _collectives(moves: Moves) -> Mismatches:
    """The collectives that are no ops of the catalog, with their derivatives."""
    over = moves.collective

    def program(comm: Any) -> list[Any]:
        x = (torch.tensor([1.0, 2.0]) + 10 * comm.rank).requires_grad_()
        results = (
            over.all_to_all(x, comm), over.reduce_scatter(x, [1, 1], comm), over.all_gather(x, [2, 2], comm),
            over.all_reduce(x, comm),
        )  # fmt: skip
        rows: list[Any] = []
        for y in results:
            (g,) = torch.autograd.grad(y, x, torch.arange(1.0, y.shape[0] + 1) + comm.rank)
            rows.append((numbers(y), numbers(g)))
        return rows

    every, total = [1.0, 2.0, 11.0, 12.0], [12.0, 14.0]
    first = [([1.0, 11.0], [1.0, 2.0]), ([12.0], [1.0, 2.0]), (every, [3.0, 5.0]), (total, [3.0, 5.0])]
    second = [([2.0, 12.0], [2.0, 3.0]), ([14.0], [1.0, 2.0]), (every, [7.0, 9.0]), (total, [3.0, 5.0])]
    if worlds.may_fail():
        yield compare("results and gradients of ranks", run_on_ranks(2, program), [first, second])


def _sums_of_ranks(moves: Moves) -> Mismatches:
    """Sums are taken in an order that no program can rely on, the same on all ranks; of half types, rounded once."""

    def in_any_order(comm: Any) -> list[float]:
        x = torch.tensor(2.0**53 if comm.rank == 0 else 1.0, dtype=torch.float64)
        return [comm.all_reduce(x).item() for _ in range(24)]

    def extremes(comm: Any) -> list[list[float]]:
        x = torch.tensor([1.0, -1.0]) * comm.rank
        return [numbers(comm.all_reduce(x, "max")), numbers(comm.all_reduce(x, "min"))]

    def rounded_once(comm: Any) -> float:
        x = torch.tensor([2.0**-9 if comm.rank else 1.0], dtype=torch.bfloat16)
        total: float = moves.collective.all_reduce(x, comm).item()
        return total

    if worlds.may_fail():
        several = run_on_ranks(3, in_any_order)
        yield compare("sums of two orders", set(several[0]), {2.0**53, 2.0**53 + 2})
        yield compare("sums of other ranks", several[1:], several[:1] * 2)
        yield compare("the largest and the least", run_on_ranks(3, extremes), [[[2.0, 0.0], [0.0, -2.0]]] * 3)
        yield compare("sums of half types", run_on_ranks(5, rounded_once), [1.0 + 2.0**-7] * 5)


def _refused_by_ranks(moves: Moves) -> Mismatches:
    """An argument that does not fit is refused on its rank before anything is sent, so that no other rank waits."""
    calls: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
        (lambda comm: comm.all_reduce(1.0), TypeError, "got x of type float"),
        (lambda comm: comm.all_reduce(torch.eye(2).to_sparse()), TypeError, "need a strided tensor"),
        (lambda comm: comm.all_reduce(torch.ones(1), "mean"), ValueError, "got reduction='mean', need one of sum"),
        (lambda comm: comm.broadcast(torch.ones(1), 2), ValueError, "got root=2, need a rank of 2"),
        (lambda comm: comm.reduce(torch.ones(1), -1), ValueError, "got root=-1, need a rank of 2"),
        (lambda comm: comm.all_gather(torch.ones(())), ValueError, "got x of shape=[], need at least one dim"),
        (lambda comm: comm.gather(torch.ones(()), 0), ValueError, "need at least one dim"),
        (lambda comm: comm.scatter(torch.ones(3), 0), ValueError, "need one slice per rank, shape[0]=2"),
        (lambda comm: comm.all_to_all(torch.ones(())), ValueError, "need one slice per rank, shape[0]=2"),
        (lambda comm: moves.collective.gather(torch.ones(1), 0, (1,), comm), ValueError, "one non-negative size"),
        (lambda comm: moves.collective.gather(torch.ones(1), 0, (-1, 1), comm), ValueError, "one non-negative size"),
        (lambda comm: moves.collective.scatter(torch.ones(2), 0, (2, 1), comm), ValueError, "need shape[0]=3"),
        (lambda comm: moves.collective.gather(torch.ones(()), 0, (1, 1), comm), ValueError, "need shape[0]=1"),
        (lambda comm: moves.collective.all_to_all(torch.ones(3), comm), ValueError, "need shape[0]=2"),
    ]
    if not worlds.may_fail():
        return
    for call, error, says in calls:
        # One rank alone makes the wrong call. The other one makes none, and must not be waited for.
        def program(comm: Any, call: Any = call, error: Any = error, says: str = says) -> str:
            return refusal_mismatch(partial(call, comm), says, error=error) if comm.rank else ""

        yield run_on_ranks(2, program)[1]


def _of_torch(moves: Moves) -> Mismatches:
    """One device several times, which has no streams: copies, and what stays where it is."""
    host = torch.device("cpu")
    fabrics = moves.fabrics
    for several in (fabrics.TorchFabric(["cpu", "cpu:0"]), fabrics.FoldedFabric(2, "cpu"), fabrics.FoldedFabric(2)):
        if several.device(0) != host:  # by default an accelerator, where there is one
            continue
        yield compare("devices", [several.device(name) for name in (0, 1, -1, "cpu:0", host)], [host] * 5)
        yield refusal_mismatch(lambda one=several: one.device(2), "device=2", "index of 2")  # type: ignore[misc]
        yield compare(
            "streams",
            (several.stream(host), several.side_stream(host, 1), several.count_sent_bytes()),
            (None, None, None),
        )
        z = torch.tensor([[1 + 2j, 3 - 1j]]).t().conj()
        with several.active():
            first, second = moves.devices.Broadcast.apply((0, 1), z)
            part, other = moves.devices.Scatter.apply((1, 0), (1, 1), 0, z)
            moved = moves.devices.Copy.apply(z, 1)
            total = moves.devices.ReduceAddCoalesced.apply(1, 1, first, second)[0]
        several.check()
        same = [y.data_ptr() == z.data_ptr() for y in (first, second, moved, part)]
        yield compare("what shares memory", same, [True, False, False, True])
        yield compare("marks of conjugates", [second.is_conj(), moved.is_conj()], [False, False])
        yield compare("copies", [numbers(y) for y in (second, moved, other)], [numbers(y) for y in (z, z, z[1:])])
        yield compare("a sum", numbers(total), numbers(2 * z))
    yield refusal_mismatch(lambda: fabrics.FoldedFabric(0), "size=0", "at least 1")


_QUESTIONS: dict[str, Callable[[Moves], Iterator[str]]] = {
    "any dtype, under autocast": _any_dtype,
    "sparse tensors": _sparse,
    "tensors without data": _elsewhere,
    "some tensors alone": _in_part,
    "traffic": _traffic,
    "tensors without dims": _without_dims,
    "lists": _lists,
    "lists of ranks": _lists_of_ranks,
    "results of ranks": _results_of_ranks,
    "collectives": _collectives,
    "sums of ranks": _sums_of_ranks,
    "what ranks refuse": _refused_by_ranks,
    "devices of torch": _of_torch,
}


def promises_of(name: str, moves: Moves) -> tuple[Promise, ...]:
    """The promises that the op of a name is asked for: those of all ops are asked of one of them.

    There are none in a world of other devices than logical ones, because real devices do not report streams and bytes.
    """
    if worlds.here().fabric != "host":
        return ()
    if name == "scatter":
        return of_logical_devices(moves.fabric)
    questions = _QUESTIONS if name == "broadcast" else {}
    return tuple(Promise(what, partial(question, moves)) for what, question in questions.items())
