"""Several devices under one program: what is moved, what is not, how often, and what races."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import forward_ad

from opassay.impl.comm import (
    Broadcast,
    CudaFabric,
    FoldedFabric,
    Gather,
    HostFabric,
    ReduceAddCoalesced,
    Scatter,
    TorchFabric,
    broadcast,
    broadcast_coalesced,
    gather,
    get_stream,
    reduce_add,
    reduce_add_coalesced,
    scatter,
)
from opassay.impl.comm.devices.planner import Piece, buckets, chunks

DTYPES = [torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64]


def encoded(place: int, shape: tuple[int, ...] = (2, 3), dtype: torch.dtype = torch.float64) -> Tensor:
    """Values that tell place and index."""
    return (torch.arange(torch.Size(shape).numel()).reshape(shape) + 20 * place).to(dtype)


def on(fabric: HostFabric, place: int, x: Tensor) -> Any:
    return fabric.copy(x, fabric.devices[place])


def home(x: Tensor) -> Tensor:
    return x.to("cpu")


# ------------------------------------------------------------------------------------------------------ the planner


@given(st.integers(0, 40), st.integers(1, 9))
def test_chunks_are_those_of_torch(length: int, parts: int) -> None:
    assert chunks(length, parts) == [len(part) for part in torch.arange(length).chunk(parts)]


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from("ab"))), st.integers(1, 20))
def test_buckets_hold_every_piece_once_in_order_and_within_the_limit(pieces: list[Any], limit: int) -> None:
    result = buckets([Piece(size, kind) for size, kind in pieces], limit)
    assert sorted(itertools.chain(*result)) == list(range(len(pieces)))
    for bucket in result:
        assert bucket == sorted(bucket)
        assert len({pieces[i][1] for i in bucket}) == 1
        assert len(bucket) == 1 or sum(pieces[i][0] for i in bucket) <= limit
    for kind in "ab":
        sizes = [sum(pieces[i][0] for i in b) for b in result if pieces[b[0]][1] == kind]
        firsts = [pieces[b[0]][0] for b in result if pieces[b[0]][1] == kind]
        assert all(a + b > limit for a, b in zip(sizes, firsts[1:], strict=False)), "a bucket was closed too early"


def test_a_bucket_has_at_least_a_byte() -> None:
    with pytest.raises(ValueError, match="size=0"):
        HostFabric(1).with_bucket(0)


# --------------------------------------------------------------------------------------------------- what is moved


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_data_of_any_dtype_arrive_where_they_belong(size: int, dtype: torch.dtype) -> None:
    fabric = HostFabric(size)
    rows = [encoded(p, (p % 3, 3), dtype).t() for p in range(size)]
    with fabric.active():
        whole = gather([on(fabric, p, x) for p, x in enumerate(rows)], -1, size - 1)
        assert whole.device == fabric.devices[-1]
        assert torch.equal(home(whole), torch.cat(rows, 1))
        parts = scatter(whole, range(size), [x.shape[1] for x in rows], 1)
        assert [y.device for y in parts] == list(fabric.devices)
        assert all(torch.equal(home(y), x) for y, x in zip(parts, rows, strict=True))
        copies = broadcast(parts[0], range(size))
        assert [y.device for y in copies] == list(fabric.devices)
        assert all(torch.equal(home(y), rows[0]) for y in copies)
        if dtype != torch.bool:
            total = reduce_add([on(fabric, p, encoded(p, dtype=dtype)) for p in range(size)], 0)
            assert torch.equal(
                home(total), sum((encoded(p, dtype=dtype) for p in range(1, size)), encoded(0, dtype=dtype))
            )
    fabric.check()


def test_what_stays_where_it_lives_is_not_copied() -> None:
    fabric = HostFabric(3)
    x = on(fabric, 1, encoded(0))
    fabric.ledger.clear()
    first: Any
    second: Any
    third: Any
    same: Any
    with fabric.active():
        (same,) = broadcast(x, [1])
        assert same.raw.data_ptr() == x.raw.data_ptr()
        first, second, third = scatter(x, [0, 1, 2], [1, 1, 0])
    assert second.raw.data_ptr() == x.raw[1:].data_ptr()
    assert [(t.source, t.destination, t.size) for t in fabric.ledger] == [("cpu:1", "cpu:0", 24)]
    assert (first.shape, third.shape) == ((1, 3), (0, 3))


def test_on_one_device_every_place_but_the_first_has_memory_of_its_own() -> None:
    x = torch.ones(3)
    first, *others = broadcast(x, ["cpu"] * 3)
    assert first.data_ptr() == x.data_ptr()
    assert len({y.data_ptr() for y in (x, *others)}) == 3
    a, b = torch.ones(2), torch.ones(2)
    ((_, _), (c, d)) = broadcast_coalesced([a, b], ["cpu", "cpu"])
    c.zero_()
    assert d.tolist() == [1.0, 1.0], "tensors that travelled together share memory"


@pytest.mark.parametrize("bucket", [1, 24, 40, 10 * 2**20, 2**60])
def test_the_size_of_buckets_changes_no_bit(bucket: int) -> None:
    fabric = HostFabric(3)
    dtypes = [torch.float64, torch.float32, torch.float64, torch.complex64, torch.float32, torch.float64]
    tensors = [encoded(i, (i % 4, 2), d) / 7 for i, d in enumerate(dtypes)]
    with fabric.active():
        rows = broadcast_coalesced(tensors, [0, 1, 2], bucket)
        assert all(torch.equal(home(y), x) for row in rows for y, x in zip(row, tensors, strict=True))
        sums = reduce_add_coalesced(rows, 1, bucket)
    assert all(torch.equal(home(y), (x + x) + x) for y, x in zip(sums, tensors, strict=True))
    sent = [t for t in fabric.ledger if (t.source, t.destination) == ("cpu", "cpu:2")]
    largest = max(t.size for t in sent)
    assert largest <= max(bucket, max(x.numel() * x.element_size() for x in tensors))
    assert sum(t.size for t in sent) == sum(x.numel() * x.element_size() for x in tensors)
    if bucket > 2**20:
        assert len(sent) == len(set(dtypes))


def test_missing_cotangents_cost_no_traffic() -> None:
    fabric = HostFabric(4)
    x, y = torch.ones(3, dtype=torch.float64).requires_grad_(), torch.ones(5, dtype=torch.float64).requires_grad_()
    with fabric.active():
        outputs = Broadcast.apply(range(4), x, y)
    g = on(fabric, 2, torch.ones(3).double())
    fabric.ledger.clear()
    grads = torch.autograd.grad(outputs[4], [x, y], g, allow_unused=True)
    assert grads[0].tolist() == [1.0, 1.0, 1.0]
    assert grads[1] is None
    assert [(t.source, t.destination, t.size) for t in fabric.ledger] == [("cpu:2", "cpu", 24)]


def test_gradients_know_their_fabric_and_their_devices() -> None:
    fabric = HostFabric(3)
    x = [on(fabric, p, encoded(p)).requires_grad_() for p in range(3)]
    with fabric.active():
        total = reduce_add(x, 2)
    grads = torch.autograd.grad(total, x, torch.ones_like(total), create_graph=True)  # outside of `active`
    assert [g.device for g in grads] == list(fabric.devices)
    assert total.device == fabric.devices[2]


def test_double_backward_of_a_sum_on_any_device() -> None:
    fabric = HostFabric(3)
    x = [on(fabric, p, encoded(p)).requires_grad_() for p in range(3)]
    with fabric.active():
        total = reduce_add(x, 1)
        square = total * total
        first = torch.autograd.grad(square, x, torch.ones_like(square), create_graph=True)
        second = torch.autograd.grad(first[2], x, torch.ones_like(first[2]))
    assert all(torch.equal(home(g), torch.full((2, 3), 2.0, dtype=torch.float64)) for g in second)


def test_an_output_needs_a_gradient_where_its_input_does() -> None:
    x, y = torch.ones(2, requires_grad=True), torch.ones(2)
    outputs = Broadcast.apply(("cpu", "cpu"), x, y)
    assert [t.requires_grad for t in outputs] == [True, False, True, False]


def test_vectors_from_0_dim_tensors_and_their_gradients() -> None:
    x = [torch.tensor(float(i), requires_grad=True) for i in range(3)]
    for dim in (0, -1):
        with pytest.warns(UserWarning, match="0-dim"):
            y = gather(x, dim)
        grads = torch.autograd.grad(y, x, torch.tensor([1.0, 2.0, 3.0]))
        assert y.tolist() == [0.0, 1.0, 2.0]
        assert [(g.shape, g.item()) for g in grads] == [((), 1.0), ((), 2.0), ((), 3.0)]


def test_fewer_chunks_than_devices() -> None:
    assert [len(y) for y in scatter(torch.arange(5), ["cpu"] * 4)] == [2, 2, 1]
    assert [tuple(y.shape) for y in scatter(torch.ones(0, 2), ["cpu"] * 3)] == [(0, 2)] * 3


def test_conjugate_views_expanded_and_sparse_tensors() -> None:
    z = torch.tensor([1 + 2j, 3 - 1j]).conj()
    fabric = HostFabric(2)
    with fabric.active():
        assert torch.equal(home(broadcast(z, [1])[0]), z.resolve_conj())
        assert torch.equal(home(broadcast(torch.ones(1, 3).expand(4, 3), [1])[0]), torch.ones(4, 3))
    sparse = torch.tensor([[0.0, 1.0], [2.0, 0.0]]).to_sparse()
    copies = broadcast_coalesced([sparse, torch.ones(2)], ["cpu", "cpu"])
    assert copies[1][0].layout == torch.sparse_coo
    total = reduce_add([copies[0][0], copies[1][0]])
    assert torch.equal(total.to_dense(), 2 * sparse.to_dense())
    assert torch.equal(gather([sparse, sparse], 1).to_dense(), torch.cat([sparse.to_dense()] * 2, 1))


def test_sums_of_half_types_are_rounded_once() -> None:
    x = [torch.tensor([1.0], dtype=torch.bfloat16)] + [torch.tensor([2.0**-9], dtype=torch.bfloat16)] * 4
    assert reduce_add(x).item() == 1.0 + 2.0**-7
    assert reduce_add_coalesced([[a, a] for a in x])[1].item() == 1.0 + 2.0**-7


def test_nested_transforms_on_logical_devices() -> None:
    fabric = HostFabric(3)

    def cubes(x: Tensor) -> Tensor:
        parts = scatter(x, [0, 1, 2], [1, 0, 2])
        return gather([y * y * y for y in parts], 0, -1)

    x, v = torch.tensor([1.0, 2.0, 3.0]).double(), torch.tensor([1.0, -1.0, 2.0]).double()
    with fabric.active():
        jacobian = torch.func.vmap(lambda t: torch.func.jvp(cubes, (x,), (t,))[1])(torch.eye(3).double())
        assert torch.equal(jacobian, torch.diag(3 * x * x))
        moved = torch.func.jvp(lambda x: torch.func.vjp(cubes, x)[1](v)[0], (x,), (v,))[1]
        assert torch.equal(moved, 6 * x * v * v)


@pytest.mark.parametrize("fabric", [TorchFabric(["cpu"] * 3), FoldedFabric(3, "cpu"), HostFabric(3)])
def test_every_fabric_runs_the_same_program(fabric: Any) -> None:
    x = encoded(0, (5, 2)).requires_grad_()
    with fabric.active():
        parts = scatter(x, range(3), [2, 0, 3])
        weights = broadcast(torch.ones(2).double() * 3, range(3))
        y = gather([p * w for p, w in zip(parts, weights, strict=True)], 0, -1)
        (g,) = torch.autograd.grad(y, x, torch.ones_like(y))
        assert get_stream("cpu") is None
    assert torch.equal(y, 3 * x)
    assert torch.equal(g, torch.full_like(x, 3.0))


# -------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: broadcast(torch.ones(2), []), ValueError, r"devices=\[\]"),
        (lambda: broadcast_coalesced([torch.ones(2)], ["cpu"], 0), ValueError, "size=0"),
        (lambda: broadcast(torch.ones(2), [7]), ValueError, "device=7"),
        (lambda: reduce_add([]), ValueError, "need at least one"),
        (lambda: reduce_add([torch.ones(2), torch.ones(3)]), ValueError, r"inputs\[1\]\[0\].*\[3\].*need.*\[2\]"),
        (lambda: reduce_add([torch.ones(2), torch.ones(2).double()]), ValueError, "float64.*need.*float32"),
        (lambda: reduce_add_coalesced([[torch.ones(2)], []]), ValueError, r"lengths \[1, 0\]"),
        (lambda: gather([]), ValueError, "need at least one"),
        (lambda: gather([torch.ones(2), torch.ones(2, 1)]), ValueError, r"\[2\], float32\[2, 1\]"),
        (lambda: gather([torch.ones(2), torch.ones(2).half()]), ValueError, "need one dtype"),
        (lambda: gather([torch.ones(2)], 1), IndexError, "dim=1"),
        (lambda: scatter(torch.ones(4), ["cpu"] * 2, [1, 2]), ValueError, r"chunk_sizes=\[1, 2\].*length 4"),
        (lambda: scatter(torch.ones(4), ["cpu"] * 2, [4]), ValueError, "2 devices"),
        (lambda: scatter(torch.ones(4), ["cpu"] * 2, [5, -1]), ValueError, "non-negative"),
        (lambda: scatter(torch.ones(()), ["cpu"]), IndexError, "0 dims"),
        (lambda: HostFabric(0), ValueError, "size=0"),
        (lambda: FoldedFabric(0), ValueError, "size=0"),
        (lambda: CudaFabric([99]), RuntimeError, r"indices=\[99\]"),
    ],
)  # fmt: skip
def test_a_call_that_does_not_fit_is_refused_before_anything_moves(
    call: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        call()


def test_nothing_moves_when_a_call_is_refused() -> None:
    fabric = HostFabric(2)
    rows = [on(fabric, 0, torch.ones(2)), on(fabric, 1, torch.ones(3))]
    fabric.ledger.clear()
    with fabric.active():
        with pytest.raises(ValueError, match="need"):
            reduce_add(rows)
        with pytest.raises(ValueError, match="need"):
            gather([rows[0], rows[1].reshape(3, 1)])
    assert fabric.ledger == []


def test_names_of_the_classes_are_those_of_torch_nn_parallel() -> None:
    from torch.nn.parallel import _functions

    for cls in (Broadcast, ReduceAddCoalesced, Gather, Scatter):
        assert hasattr(_functions, cls.__name__)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Gather.apply("cpu", 0, torch.ones(1), torch.ones(1)).tolist() == [1.0, 1.0]
        assert Scatter.apply(("cpu", "cpu"), None, 0, torch.ones(2))[1].tolist() == [1.0]
        assert ReduceAddCoalesced.apply("cpu", 1, None, None) == (None,)


# ------------------------------------------------------------------------------------- modes that torch itself tries


@pytest.mark.parametrize("kind", ["broadcast", "reduce", "gather", "scatter"])
def test_gradcheck_of_every_kind_agrees(kind: str) -> None:
    x, y = (torch.arange(4.0).double().reshape(2, 2) + i for i in range(2))
    calls: dict[str, Any] = {
        "broadcast": lambda a, b: Broadcast.apply(("cpu", "cpu"), a * a, b * b),
        "reduce": lambda a, b: ReduceAddCoalesced.apply("cpu", 1, a * a, b * b),
        "gather": lambda a, b: Gather.apply("cpu", 1, a * a, b * b),
        "scatter": lambda a, b: Scatter.apply(("cpu", "cpu"), (0, 2), 1, a * b),
    }
    inputs = (x.requires_grad_(), y.requires_grad_())
    options: dict[str, Any] = {"check_batched_grad": True}
    assert torch.autograd.gradcheck(calls[kind], inputs, check_forward_ad=True, **options)
    assert torch.autograd.gradgradcheck(calls[kind], inputs, check_fwd_over_rev=True, **options)


def test_tangents_of_some_inputs_alone() -> None:
    x, y, t = torch.ones(2), torch.ones(2) * 3, torch.ones(2) * 5
    with forward_ad.dual_level():
        outputs = Broadcast.apply(("cpu", "cpu"), x, forward_ad.make_dual(y, t))
        tangents = [forward_ad.unpack_dual(z).tangent for z in outputs]
        assert [z.tolist() for z in tangents] == [[0, 0], [5, 5], [0, 0], [5, 5]]
        sums = ReduceAddCoalesced.apply("cpu", 2, x, forward_ad.make_dual(y, t), x, y)
        assert [forward_ad.unpack_dual(z).tangent.tolist() for z in sums] == [[0, 0], [5, 5]]


def test_gradients_of_one_weight_may_be_sparse_and_dense() -> None:
    weight = torch.ones(3, 2, requires_grad=True)
    first, second = broadcast(weight, ["cpu", "cpu"])
    rows = torch.nn.functional.embedding(torch.tensor([1]), first, sparse=True)
    (g,) = torch.autograd.grad(rows.sum() + (second * 2).sum(), weight)
    assert g.tolist() == [[2, 2], [3, 3], [2, 2]]


def test_one_device_has_several_names() -> None:
    x = torch.ones(3)
    assert broadcast(x, ["cpu:0"])[0].data_ptr() == x.data_ptr()
    with pytest.raises(ValueError, match="cpu:7"), HostFabric(2).active():
        broadcast(x, ["cpu:7"])
    with pytest.raises(ValueError, match="num_inputs=2, 3 tensors"):
        ReduceAddCoalesced.apply("cpu", 2, x, x, x)
