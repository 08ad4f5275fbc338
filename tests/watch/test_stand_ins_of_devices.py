"""Stand-ins for operations that CPUs have not: their bounds hold what torch's other functions give in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch._C._distributed_c10d import HashStore
from torch.utils import _pytree as pytree

import opassay
from opassay.properties.watch.judging import CallJudge
from opassay.properties.watch.recorder import Recorder
from opassay.properties.watch.stand_ins.lookup import stand_in_of

aten = torch.ops.aten
Tensor = torch.Tensor


def draw(seed: int, *shapes: Sequence[int]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=generator) for shape in shapes]


def assert_holds(op: Any, args: Sequence[Any], exact: Sequence[Tensor], **kwargs: Any) -> None:
    """The stand-in's bounds at arguments in float32 hold exact results, and no longer where one of them is changed."""
    stand_in = stand_in_of(op) if isinstance(op, torch._ops.OpOverload) else op
    assert stand_in is not None, op

    def spec(*args: Any) -> tuple[Tensor, ...]:
        return tuple(x for x in pytree.tree_leaves(stand_in(*args, **kwargs)) if isinstance(x, Tensor))

    bounds: Any = opassay.bound(spec, *args)
    bounds = [bounds] if isinstance(bounds, opassay.Bound) else bounds
    for y, bound in zip(exact, bounds, strict=True):
        assert bound.half_width.isfinite().all()
        assert ((y - bound.centre).abs() <= bound.half_width).all()
        assert ((y * 1.001 - bound.centre).abs() > bound.half_width).any()


def doubled(values: Any) -> Any:
    return pytree.tree_map_only(Tensor, lambda x: x.double(), values)


def gradients(function: Callable[..., Any], primals: Sequence[Tensor], cotangents: Sequence[Tensor]) -> list[Tensor]:
    """The cotangents of primals in float64."""
    wide = [x.double().requires_grad_() for x in primals]
    results = function(*wide)
    results = results if isinstance(results, tuple) else (results,)
    return list(torch.autograd.grad(results, wide, [g.double() for g in cotangents]))


QUERIES = draw(0, (2, 4, 5, 8), (2, 4, 5, 8), (2, 4, 5, 8), (2, 4, 5, 8))


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)


def test_attention() -> None:
    g, q, k, v = QUERIES
    out = attend(q.double(), k.double(), v.double())
    scores = q.double() @ k.double().mT * 0.3
    sums = scores.masked_fill(~torch.ones(5, 5, dtype=torch.bool).tril(), -torch.inf).logsumexp(-1)
    pulled = gradients(attend, (q, k, v), [g])
    saved = (out.float(), sums.float())
    flash, memory = aten._scaled_dot_product_flash_attention, aten._scaled_dot_product_efficient_attention
    cudnn, none = aten._scaled_dot_product_cudnn_attention, None
    assert_holds(flash.default, (q, k, v, 0.0, True), (out, sums), scale=0.3)
    assert_holds(memory.default, (q, k, v, none, True, 0.0, True), (out,), scale=0.3)
    assert_holds(cudnn.default, (q, k, v, none, True, 0.0, True), (out,), scale=0.3)
    back = aten._scaled_dot_product_flash_attention_backward.default
    assert_holds(back, (g, q, k, v, *saved, none, none, 5, 5, 0.0, True, none, none), pulled, scale=0.3)
    back = aten._scaled_dot_product_efficient_attention_backward.default
    masks = (none, none, 0.0, [True, True, True, False], True)
    assert_holds(back, (g, q, k, v, none, *saved, *masks), pulled, scale=0.3)
    back = aten._scaled_dot_product_cudnn_attention_backward.default
    assert_holds(back, (g, q, k, v, *saved, none, none, none, none, none, 5, 5, 0.0, True), pulled, scale=0.3)


def test_the_bias_of_attention_has_a_cotangent() -> None:
    g, q, k, v = QUERIES
    (bias,) = draw(1, (2, 1, 5, 5))

    def attend_with(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, bias)

    out = attend_with(*doubled((q, k, v, bias)))
    sums = (q.double() @ k.double().mT * 8**-0.5 + bias).logsumexp(-1)
    pulled = gradients(attend_with, (q, k, v, bias), [g])
    args = (g, q, k, v, bias, out.float(), sums.float(), None, None, 0.0, [True] * 4, False)
    assert_holds(aten._scaled_dot_product_efficient_attention_backward.default, args, pulled)


def test_layers_of_cudnn() -> None:
    x, h, c, g, gh, gc = draw(2, (3, 2, 4), (2, 2, 3), (2, 2, 3), (3, 2, 6), (2, 2, 3), (2, 2, 3))
    weights = draw(3, *[(12, 4), (12, 3), (12,), (12,)] * 2)

    def run(x: Tensor, h: Tensor, c: Tensor, *weights: Tensor) -> Any:
        return torch.lstm(x, [h, c], list(weights), True, 1, 0.0, True, True, False)

    form: tuple[Any, ...] = (2, 3, 0, 1, False, 0.0, True, True, [], None)
    exact = run(*doubled((x, h, c, *weights)))
    assert_holds(aten._cudnn_rnn.default, (x, weights, 4, None, h, c, *form), exact)
    back = (x, weights, 4, x, h, c, x, g, gh, gc, *form, x, [True] * 4)
    assert_holds(aten._cudnn_rnn_backward.default, back, gradients(run, (x, h, c, *weights), (g, gh, gc)))


def test_cells() -> None:
    inputs, hidden, cx, bias, bias_h, gh, gc = draw(4, (2, 12), (2, 12), (2, 3), (12,), (12,), (2, 3), (2, 3))
    lstm: Any = stand_in_of(aten._thnn_fused_lstm_cell.default)
    weight, flat = torch.eye(12), (inputs, hidden, cx, bias, bias_h)

    def cell(inputs: Tensor, hidden: Tensor, cx: Tensor, bias: Tensor, bias_h: Tensor) -> Any:
        """torch's cell of these gates: one matrix is that of ones, the other gives the same whatever the state is."""
        state = torch.zeros(2, 3, dtype=inputs.dtype)
        return torch.lstm_cell(inputs + hidden, [state, cx], weight.double(), weight[:, :3].double(), bias, bias_h)

    hy, cy = cell(*doubled(flat))
    saved = lstm(*doubled(flat))[2]
    assert_holds(aten._thnn_fused_lstm_cell.default, flat, (hy, cy, saved))
    pulled = gradients(cell, flat, (gh, gc))
    back: Any = stand_in_of(aten._thnn_fused_lstm_cell_backward_impl.default)

    def pull(gh: Tensor, gc: Tensor, *flat: Tensor) -> Any:
        _, cy, saved = lstm(*flat)
        return back(gh, gc, flat[2], cy, saved, True)

    assert_holds(pull, (gh, gc, *flat), (pulled[0], pulled[2], pulled[3]))


def test_cells_with_two_gates() -> None:
    inputs, hidden, hx, g = draw(5, (2, 9), (2, 9), (2, 3), (2, 3))
    gru: Any = stand_in_of(aten._thnn_fused_gru_cell.default)
    weight = torch.zeros(9, 3)

    def cell(inputs: Tensor, hidden: Tensor, hx: Tensor) -> Tensor:
        """torch's cell of these gates, those of the state as a bias of each row."""
        rows = [
            torch.gru_cell(i[None], h[None], torch.eye(9).double(), weight.double(), None, b)
            for i, h, b in zip(inputs, hx, hidden, strict=True)
        ]
        return torch.cat(rows)

    saved = gru(*doubled((inputs, hidden, hx)))[1]
    assert_holds(aten._thnn_fused_gru_cell.default, (inputs, hidden, hx), (cell(*doubled((inputs, hidden, hx))), saved))
    pulled = gradients(cell, (inputs, hidden, hx), [g])
    back: Any = stand_in_of(aten._thnn_fused_gru_cell_backward.default)
    assert_holds(lambda g, *flat: back(g, gru(*flat)[1], False), (g, inputs, hidden, hx), pulled)


def test_products() -> None:
    a, b, c = draw(6, (3, 4), (4, 5), (3, 5))
    exact = a.double() @ b.double()
    assert_holds(aten.mm.dtype, (a, b, torch.float32), (exact,))
    assert_holds(aten.addmm.dtype, (c, a, b, torch.float32), (2 * c.double() + exact,), beta=2)
    sparse = torch.where(torch.arange(15).reshape(3, 5) % 4 == 0, 0.0, c)
    sampled = torch.where(sparse != 0, sparse.double() + 0.5 * exact, 0.0)
    assert_holds(aten.sparse_sampled_addmm.default, (sparse, a, b), (sampled,), alpha=0.5)
    (other,) = draw(7, (5, 2))
    means = torch.stack([row[row != 0].double() @ other[row != 0].double() / (row != 0).sum() for row in sparse])
    assert_holds(aten._sparse_mm_reduce_impl.default, (sparse, other, "mean"), (means,))
    largest = torch.stack([(row[row != 0, None].double() * other[row != 0].double()).amax(0) for row in sparse])
    assert_holds(aten._sparse_mm_reduce_impl.default, (sparse, other, "amax"), (largest,))


@pytest.fixture
def group() -> Iterator[str]:
    store = HashStore()
    dist.init_process_group("gloo", rank=0, world_size=1, store=store)
    yield dist.group.WORLD.group_name if dist.group.WORLD is not None else ""
    dist.destroy_process_group()


def test_collectives_of_one_rank_keep_the_numbers(group: str) -> None:
    (x,) = draw(8, (4,))
    operations = torch.ops._c10d_functional
    calls: list[tuple[Any, tuple[Any, ...]]] = [
        (operations.all_reduce.default, (x, "avg", group)),
        (operations.all_gather_into_tensor.default, (x, 1, group)),
        (operations.reduce_scatter_tensor.default, (x, "sum", 1, group)),
        (operations.broadcast.default, (x, 0, group)),
    ]
    for op, args in calls:
        stand_in = stand_in_of(op)
        assert stand_in is not None
        assert torch.equal(stand_in(*args), operations.wait_tensor(op(*args))), op


def test_what_ranks_give_is_recorded_when_it_is_there(group: str) -> None:
    (x,) = draw(9, (1000,))
    recorder = Recorder()
    recorder.start()
    try:
        operations = torch.ops._c10d_functional
        operations.wait_tensor(operations.reduce_scatter_tensor(x, "sum", 1, group))
    finally:
        recorder.stop()
    findings = [CallJudge().hold(call) for call in recorder.store.calls]
    assert [(each.elements, each.wrong) for each in findings] == [(1000, None)] * 2
