"""Values of the losses that need a look of their own: nothing to count, half sums, large inputs, total weights."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from opassay.impl import cross_entropy, nll_loss, nll_loss2d_backward, nll_loss_backward, nll_loss_forward
from opassay.impl.losses.cross_entropy import kernels_cpu as cross_entropy_cpu

ALL_IGNORED = torch.full((3,), -100)
BOTH = pytest.mark.parametrize("loss", [nll_loss, cross_entropy])


def gradient(loss: Any, x: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    """Value and gradient of a loss in its input."""
    x = x.clone().requires_grad_()
    out = loss(x, *args)
    return out.detach(), torch.autograd.grad(out.sum(), x)[0]


@BOTH
@pytest.mark.parametrize(("reduction", "value"), [("mean", math.nan), ("sum", 0.0), ("none", 0.0)])
@pytest.mark.parametrize("fill", [0.5, math.nan, -math.inf])
def test_all_ignored(loss: Any, reduction: str, value: float, fill: float) -> None:
    """0 / 0 for the mean; the gradient is 0 in every reduction, whatever the rows hold."""
    out, grad = gradient(loss, torch.full((3, 4), fill), ALL_IGNORED, None, -100, reduction)
    assert torch.equal(out.nan_to_num(7.0), torch.full_like(out, value).nan_to_num(7.0))
    assert torch.equal(grad, torch.zeros(3, 4))


@BOTH
def test_weights_that_sum_to_zero(loss: Any) -> None:
    """A quotient by 0; an ignored row keeps its gradient of 0."""
    x = torch.tensor([[0.0, 1.0], [2.0, 0.5], [3.0, 1.0]])
    out, grad = gradient(loss, x, torch.tensor([0, 1, -100]), torch.tensor([1.0, -1.0]))
    assert not out.isfinite()
    assert not grad[:2].isfinite().all()
    assert torch.equal(grad[2], torch.zeros(2))


@BOTH
@pytest.mark.parametrize("ignore_index", [-(2**63), 2**63 - 1, -1, 0, 3, 4])
def test_any_integer_may_be_ignored(loss: Any, ignore_index: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 4)
    target = torch.tensor([1, ignore_index, 2, 2, ignore_index])
    counted = torch.tensor([0, 2, 3])
    for reduction in ("sum", "mean"):
        masked = gradient(loss, x, target, None, ignore_index, reduction)
        deleted = gradient(loss, x[counted], target[counted], None, ignore_index, reduction)
        assert torch.equal(masked[0], deleted[0])
        assert torch.equal(masked[1][counted], deleted[1])
        assert torch.equal(masked[1][[1, 4]], torch.zeros(2, 4))


@BOTH
def test_uint8_targets(loss: Any) -> None:
    """As int64 ones, in every rank; 255 is no -1, and an ignore_index of 300 equals none of them."""
    torch.manual_seed(0)
    for shape in ((3, 4), (2, 4, 3), (2, 4, 2, 3)):
        x = torch.randn(shape)
        target = torch.randint(0, 4, shape[:1] + shape[2:])
        assert torch.equal(loss(x, target.byte(), None, 300), loss(x, target))
    masked = torch.tensor([1, 255, 2], dtype=torch.uint8)
    assert loss(torch.randn(3, 4), masked, None, 255).isfinite()
    with pytest.raises(IndexError, match="got target=255"):
        loss(torch.randn(3, 4), masked, None, -1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_sums_are_float32(dtype: torch.dtype) -> None:
    """Ones beyond the largest odd integer of the format: an accumulator in the format would stay there."""
    count = 4101
    x, target = torch.full((count, 1), -1.0, dtype=dtype), torch.zeros(count, dtype=torch.int64)
    out, total = nll_loss_forward(x, target, None, 2, -100)
    assert (total.dtype, float(total)) == (torch.float32, count)
    assert out == torch.tensor(float(count)).to(dtype)
    assert nll_loss_forward(x, target, x[0].neg(), 1, -100)[0] == 1.0


@pytest.mark.parametrize("weight", [None, torch.tensor([0.5, 2.0, 0.25])])
def test_total_weight(weight: Tensor | None) -> None:
    """Of the targets that count; 0 without a reduction, for a single row as well; differentiable in the weight."""
    weight = None if weight is None else weight.clone().requires_grad_()
    x, target = torch.zeros(3, 3), torch.tensor([0, -100, 1])
    expected = {0: 0.0, 1: 2.0, 2: 2.0} if weight is None else {0: 0.0, 1: 2.5, 2: 2.5}
    for reduction, total in expected.items():
        assert nll_loss_forward(x, target, weight, reduction, -100)[1].item() == total
    assert nll_loss_forward(x[0], target[0], weight, 0, -100)[1].item() == 0.0
    if weight is not None:
        total_weight = nll_loss_forward(x, target, weight, 2, -100)[1]
        assert torch.equal(torch.autograd.grad(total_weight, weight)[0], torch.tensor([1.0, 1.0, 0.0]))


def test_backward_takes_single_elements_in_either_shape() -> None:
    x, target = torch.zeros(2, 3), torch.tensor([0, 2])
    g, total = torch.tensor(3.0), torch.tensor(2.0)
    expected = torch.tensor([[-1.5, 0.0, 0.0], [0.0, 0.0, -1.5]])
    assert torch.equal(nll_loss_backward(g, x, target, None, 1, -100, total), expected)
    assert torch.equal(nll_loss_backward(g.reshape(1), x, target, None, 1, -100, total.reshape(1)), expected)
    grid = nll_loss2d_backward(g, x.T.reshape(1, 3, 2, 1), target.reshape(1, 2, 1), None, 1, -100, total)
    assert torch.equal(grid.reshape(3, 2), expected.T)


def test_backward_over_a_total_weight_of_zero() -> None:
    """Infinite where a target is, 0 elsewhere and where it is ignored."""
    grad = nll_loss_backward(
        torch.tensor(1.0), torch.zeros(2, 2), torch.tensor([1, -100]), None, 1, -100, torch.tensor(0.0)
    )
    assert torch.equal(grad, torch.tensor([[0.0, -math.inf], [0.0, 0.0]]))


@BOTH
def test_a_target_of_one_element_for_one_row(loss: Any) -> None:
    x = torch.tensor([0.5, 0.25, -1.0])
    for reduction in ("none", "sum", "mean"):
        assert loss(x, torch.tensor([1]), None, -100, reduction).shape == ()
        assert torch.equal(
            loss(x, torch.tensor([1]), None, -100, reduction), loss(x, torch.tensor(1), None, -100, reduction)
        )


@pytest.mark.parametrize("shape", [(41, 7), (5, 7, 31)])
@pytest.mark.parametrize("smoothing", [0.0, 0.25])
@pytest.mark.parametrize("batched", [False, True])
def test_pieces_of_any_size(
    shape: tuple[int, ...], smoothing: float, batched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half-precision logits are taken to float32 a few rows at a time: no row depends on the others."""
    torch.manual_seed(0)
    x, target = torch.randn(shape).bfloat16(), torch.randint(0, 7, shape[:1] + shape[2:])
    target[0] = -100
    weight = torch.rand(7)

    def run() -> tuple[Tensor, Tensor]:
        if not batched:
            return gradient(cross_entropy, x, target, weight, -100, "none", smoothing)
        weights = torch.stack((weight, weight))
        each = torch.vmap(lambda w: cross_entropy(x, target, w, -100, "none", smoothing))(weights)
        return each, torch.vmap(torch.func.grad(lambda y, w: cross_entropy(y, target, w)), (None, 0))(x, weights)

    monkeypatch.setattr(cross_entropy_cpu, "_CHUNK", x.numel())
    whole = run()
    for size in (1, 20, 64, x.numel() - 1):
        monkeypatch.setattr(cross_entropy_cpu, "_CHUNK", size)
        assert all(torch.equal(a, b) for a, b in zip(run(), whole, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_threads_change_no_bit(dtype: torch.dtype) -> None:
    """Sums over more positions than one thread takes."""
    torch.manual_seed(0)
    x, target = torch.randn(70_000, 5).to(dtype), torch.randint(0, 5, (70_000,))
    threads, results = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append((cross_entropy(x, target), nll_loss(x, target), *gradient(cross_entropy, x, target)))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@BOTH
def test_no_argument_is_written_and_none_aliased(loss: Any) -> None:
    x, target = torch.randn(1, 3), torch.tensor([1])
    before = x.clone()
    out = loss(x, target, None, -100, "none")
    out.add_(1.0)
    assert torch.equal(x, before)


def test_a_gradient_does_not_keep_the_input() -> None:
    """The input's gradient does not read the input; the weight's does."""
    x = torch.randn(64, 32, requires_grad=True)
    weight = torch.rand(32)
    for wanted, expected in ((False, []), (True, [64 * 32])):
        sizes: list[int] = []

        def pack(t: Tensor, sizes: list[int] = sizes) -> Tensor:
            sizes.append(t.numel())
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            nll_loss(x, torch.arange(32).repeat(2), weight.clone().requires_grad_(wanted))
        assert [n for n in sizes if n > 64] == expected


@pytest.mark.parametrize("smoothing", [0.0, 0.25])
def test_few_classes(smoothing: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs of many rows and few classes take softmax in parts: the same values, whatever the rows hold."""
    torch.manual_seed(0)
    x, target = torch.randn(40, 5) * 10, torch.randint(0, 5, (40,))
    x[0], x[1, 2], x[2, 3], x[3, 1], target[4] = -math.inf, -math.inf, math.inf, math.nan, -100
    x[4] = math.nan
    whole = gradient(cross_entropy, x, target, None, -100, "none", smoothing)
    monkeypatch.setattr(cross_entropy_cpu, "_MANY", 0)
    parts = gradient(cross_entropy, x, target, None, -100, "none", smoothing)
    u = torch.finfo(torch.float32).eps
    for one, other in zip(whole, parts, strict=True):
        assert torch.equal(one.isnan(), other.isnan())
        assert torch.equal(one.isinf(), other.isinf())
        finite = one.isfinite()
        assert ((one - other)[finite].abs() <= 40 * u * one[finite].abs().clamp(min=1.0)).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_ignored_rows_have_no_gradient_where_the_sum_of_finite_weights_overflows(dtype: torch.dtype) -> None:
    x = torch.zeros(2, 2, dtype=dtype, requires_grad=True)
    weight = torch.full((2,), torch.finfo(dtype).max, dtype=dtype)
    loss = cross_entropy(x, torch.tensor([-100, 1]), weight, reduction="none", label_smoothing=0.1)
    (result,) = torch.autograd.grad(loss, x, torch.ones_like(loss))
    assert result[0].tolist() == [0.0, 0.0]
