"""What the CUDA kernels of the losses must do beyond what cells ask: a program, to be run in a process of its own.

`python -m tests.impl.interpreted_losses` interprets the kernels and prints, as JSON, what went wrong in each case.
"""

from __future__ import annotations

import json
import math
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from opassay import impl
from opassay.impl.gpu import launching
from opassay.impl.losses.cross_entropy import rules as entropy_rules
from opassay.impl.losses.cross_entropy.kernels_cpu import SmoothedLoss, SmoothedLossBackward
from opassay.impl.losses.nll_loss import kernels_cuda as likelihood
from opassay.impl.losses.nll_loss import rules as likelihood_rules
from opassay.impl.losses.nll_loss.kernels_cpu import MEAN, NONE, SUM, Loss, LossBackward
from tests.impl.launch_recorder import recorded

VOCABULARY = 1 << 17
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
CASES: dict[str, Callable[[], None]] = {}

nll_loss, cross_entropy = likelihood_rules.nll_loss.kernels.cuda, entropy_rules.cross_entropy.kernels.cuda
nll_loss_backward = likelihood_rules.nll_loss_backward.kernels.cuda
cross_entropy_backward = entropy_rules.cross_entropy_backward.kernels.cuda
total_weight = likelihood.total_weight


def case(function: Callable[[], None]) -> Callable[[], None]:
    """Registers a case under the name of its function."""
    CASES[function.__name__] = function
    return function


def two_levels(rows: int, classes: int, high: slice, dtype: torch.dtype) -> Tensor:
    """Logits of 0 in the classes of `high`, of which there is a power of two, and -200 elsewhere.

    e^-200 is 0 in float32, so every probability is exact: 0, or a power of two.
    """
    x = torch.full((rows, classes), -200.0, dtype=dtype)
    x[:, high] = 0.0
    return x


@case
def rows_of_a_vocabulary() -> None:
    """A row that no block holds, largest at its end: what came before is rescaled. Targets at both ends."""
    high = slice(VOCABULARY - 1024, VOCABULARY)
    target = torch.tensor([0, VOCABULARY - 1, VOCABULARY - 1024])
    log = math.log(1024)
    exact = torch.tensor([200.0 + log, log, log], dtype=torch.float64)
    for dtype in (torch.float32, torch.bfloat16):
        x = two_levels(3, VOCABULARY, high, dtype)
        loss = impl.cross_entropy(x, target, None, -100, "none")
        # An ulp of the log, and the roundings of a difference and of the output.
        assert ((loss.double() - exact).abs() <= 2 * torch.finfo(dtype).eps * exact).all(), loss
        d = torch.zeros(3, VOCABULARY, dtype=torch.float64)
        d[:, high] = 1 / 1024
        d.scatter_add_(1, target[:, None], -torch.ones(3, 1).double())
        result = cross_entropy_backward(torch.ones(3, dtype=dtype), x, target, None, -100, 0.0, 0)
        assert torch.equal(result, d.to(dtype))


@case
def targets_at_the_ends_of_pieces() -> None:
    """Classes 0, C - 1 and the ends of a piece of 4096, in rows that do not fit, side by side and one by one."""
    target = torch.tensor([0, 4095, 4096, 9999])
    x = torch.arange(4 * 10000, dtype=torch.float64).remainder(7.0).reshape(4, 10000) - 3.0
    z = x - x.exp().sum(1, keepdim=True).log()
    exact = -z[torch.arange(4), target]
    # Sums of 10000 exponentials of 2 ulp each, an ulp of the log and two roundings.
    bound = (10000 + 8) * 2.0**-53 * exact.abs().max()
    side_by_side = x.t().contiguous()[None]
    assert (impl.cross_entropy(x, target, None, -100, "none") - exact).abs().max() <= bound
    assert (impl.cross_entropy(side_by_side, target[None], None, -100, "none")[0] - exact).abs().max() <= bound
    assert torch.equal(impl.nll_loss(x, target, None, -100, "none"), -x[torch.arange(4), target])
    assert torch.equal(impl.nll_loss(side_by_side, target[None], None, -100, "none")[0], -x[torch.arange(4), target])


@case
def smoothing_of_long_rows() -> None:
    """One sweep gives the mean of the log-probabilities, too, though their largest logit comes last."""
    classes, share = 3 * 8192, 0.25
    x = torch.linspace(-40.0, 40.0, classes, dtype=torch.float64)[None]
    w = torch.linspace(0.5, 2.0, classes, dtype=torch.float64)
    target = torch.tensor([classes // 2])
    for weight in (None, w):
        table = torch.ones_like(w) if weight is None else w
        z = torch.log_softmax(x, 1)[0]
        terms = torch.stack((-(1 - share) * table[target[0]] * z[target[0]], -share / classes * (table * z).sum()))
        # Sums of `classes` terms of one sign, twice (here and there), and some roundings of each term.
        bound = (2 * classes + 16) * 2.0**-53 * float(terms.sum())
        out = impl.cross_entropy(x, target, weight, -100, "sum", share)
        assert abs(float(out - terms.sum())) <= bound


@case
def all_ignored() -> None:
    """0 / 0 for a mean, else 0; the gradient is 0, whatever the rows hold."""
    target = torch.full((3,), -100)
    for classes in (4, 9000):
        x = torch.full((3, classes), math.nan, requires_grad=True)
        for loss in (impl.nll_loss, impl.cross_entropy):
            assert loss(x, target).isnan()
            assert float(loss(x, target, None, -100, "sum").detach()) == 0.0
            assert torch.equal(loss(x, target, None, -100, "none"), torch.zeros(3))
            assert torch.equal(torch.autograd.grad(loss(x, target), x)[0], torch.zeros(3, classes))


@case
def launches_per_call() -> None:
    """One kernel per direction, and one or two more where a loss is summed."""
    g = torch.ones(())
    for rows, more in ((8, {}), (1500, {"nll_loss_fold": 1})):
        x, target = torch.zeros(rows, 3), torch.ones(rows, dtype=torch.int64)
        for reduction in (NONE, MEAN, SUM):
            with recorded() as result:
                nll_loss(x, target, None, reduction, -100, 0)
            assert result.launches == {"nll_loss_forward": 1} | (more if reduction else {}), result.launches
            with recorded() as result:
                cross_entropy(x, target, None, reduction, -100, 0.1, 0)
            sums = {"nll_loss_forward": 1} | more if reduction else {}
            assert result.launches == {"cross_entropy_forward": 1} | sums, result.launches
        with recorded() as result:
            nll_loss_backward(g, target, None, 3, -100, 0, torch.float32)
            cross_entropy_backward(g, x, target, None, -100, 0.1, 0)
        assert result.launches == {"nll_loss_backward": 1, "cross_entropy_backward": 1}


@case
def no_log_probabilities_are_stored() -> None:
    """Forward allocates a number per position; backward, the gradient."""
    for classes in (500, 9000):
        x = torch.zeros(4, classes, requires_grad=True)
        with recorded() as result:
            loss = impl.cross_entropy(x, torch.tensor([0, 1, 2, classes - 1]), None, -100, "mean", 0.1)
        assert sum(result.sizes) <= 4 * 4, result.sizes
        with recorded() as result:
            torch.autograd.grad(loss, x)
        assert sorted(result.sizes)[-1] == x.numel()
        assert sum(result.sizes) <= x.numel() + 4, result.sizes


@case
def bytes_that_must_move() -> None:
    """Rows that fit are read once and written once; those that do not are read twice backward, and once forward."""
    for classes, reads in ((3000, 1), (40000, 2)):
        x, target = torch.zeros(2, classes), torch.tensor([0, classes - 1])
        forward, backward = "cross_entropy_forward", "cross_entropy_backward"
        if reads == 2:
            forward, backward = f"{forward}_long", f"{backward}_long"
        before = traffic(forward)
        cross_entropy(x, target, None, NONE, -100, 0.0, 0)
        loaded, stored = (now - then for now, then in zip(traffic(forward), before, strict=True))
        # Per row a target; where the row does not fit its logit once more; and its loss and a flag are stored.
        assert loaded <= x.numel() * 4 + 2 * (8 + 4), loaded
        assert stored == 2 * (4 + 4)
        before = traffic(backward)
        cross_entropy_backward(torch.ones(2), x, target, None, -100, 0.0, 0)
        loaded, stored = (now - then for now, then in zip(traffic(backward), before, strict=True))
        assert (loaded, stored) == (reads * x.numel() * 4 + 2 * (8 + 4), x.numel() * 4 + 2 * 4)
        before = traffic("nll_loss_backward")
        nll_loss_backward(torch.ones(2), target, None, classes, -100, 0, torch.float32)
        loaded, stored = (now - then for now, then in zip(traffic("nll_loss_backward"), before, strict=True))
        assert (loaded, stored) == (2 * (8 + 4), x.numel() * 4 + 2 * 4)


def traffic(kernel: str) -> tuple[int, int]:
    """Bytes that all launches of a kernel have loaded and stored so far."""
    machine: Any = launching._on[-1]
    moved = machine.book.moved.get(kernel)
    return (moved.loaded, moved.stored) if moved else (0, 0)


@case
def a_wrong_target_is_an_error_everywhere() -> None:
    for shape in ((3, 4), (3, 9000), (3, 40000), (2, 4, 3), (1500, 2)):
        x = torch.zeros(shape)
        for wrong in (-1, shape[1], 2**40):
            target = torch.zeros(shape[:1] + shape[2:], dtype=torch.int64)
            target.view(-1)[-1] = wrong
            for reduction in (NONE, MEAN, SUM):
                require_error(wrong, nll_loss, x, target, None, reduction, -100, 0)
                require_error(wrong, cross_entropy, x, target, None, reduction, -100, 0.5, 0)
            g = torch.ones(())
            require_error(wrong, nll_loss_backward, g, target, None, shape[1], -100, 0, torch.float32)
            require_error(wrong, cross_entropy_backward, g, x, target, None, -100, 0.5, 0)
            require_error(wrong, total_weight, torch.ones(shape[1]), target, -100, 0)


def require_error(wrong: int, kernel: Callable[..., Any], *args: Any) -> None:
    """That a kernel refuses one target, and says which."""
    with pytest.raises(IndexError, match=f"got target={wrong} at 1 of"):
        kernel(*args)


@case
def a_wrong_target_is_nan_until_a_gpu_asserts_it() -> None:
    """And no other position is touched."""
    x, target = torch.zeros(3, 4), torch.tensor([0, 7, -100])
    with patch.object(likelihood.Targets, "require_classes", lambda targets, wrong: None):
        for out in (
            nll_loss(x, target, None, NONE, -100, 0)[0],
            cross_entropy(x, target, None, NONE, -100, 0.0, 0)[0],
            nll_loss_backward(torch.ones(3), target, None, 4, -100, 0, torch.float32)[:, 0],
            cross_entropy_backward(torch.ones(3), x, target, None, -100, 0.0, 0)[:, 0],
        ):
            assert out.isnan().tolist() == [False, True, False], out
            assert float(out[2]) == 0.0


@case
def a_row_has_its_bits_anywhere() -> None:
    """Alone, among others and under vmap: loss and gradient."""
    seed = 20
    print(f"seed {seed}", file=sys.stderr)
    generator = torch.Generator().manual_seed(seed)
    for classes in (37, 9000):
        x = torch.randn(5, classes, generator=generator)
        target = torch.randint(0, classes, (5,), generator=generator)
        weight, g = torch.rand(classes, generator=generator), torch.rand(5, generator=generator)

        def both(x: Tensor, target: Tensor, g: Tensor, weight: Tensor = weight, ndim: int = 0) -> tuple[Tensor, Tensor]:
            loss = cross_entropy(x, target, weight, NONE, -100, 0.1, ndim)[0]
            return loss, cross_entropy_backward(g, x, target, weight, -100, 0.1, ndim)

        whole = both(x, target, g)
        batched = both(x, target, g, ndim=1)
        for i in range(5):
            alone = both(x[i : i + 1].clone(), target[i : i + 1], g[i : i + 1])
            for result, other, one in zip(whole, batched, alone, strict=True):
                assert torch.equal(result[i], one[0])
                assert torch.equal(other[i], one[0])
        summed = nll_loss(x.expand(3, 5, classes), target.expand(3, 5), weight, MEAN, -100, 1)[0]
        assert torch.equal(summed, nll_loss(x, target, weight, MEAN, -100, 0)[0].expand(3))


@case
def any_strides() -> None:
    """Channels last, transposed, expanded: the same numbers as without gaps."""
    x = torch.arange(2 * 5 * 3 * 4, dtype=torch.float32).remainder(9.0).reshape(2, 5, 3, 4)
    target = torch.arange(2 * 3 * 4).remainder(5).reshape(2, 3, 4)
    wide = torch.zeros(2, 10, 3, 8)[:, ::2, :, 1::2].copy_(x)
    for layout in (
        x.to(memory_format=torch.channels_last),
        x.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
        wide,
    ):
        assert layout.stride() != x.stride()
        assert torch.equal(nll_loss(layout, target, None, NONE, -100, 0)[0], -picked(x, target))
        result = cross_entropy(layout, target, None, NONE, -100, 0.0, 0)[0]
        # Two ways to sum five exponentials in (0, 1], each within 5 roundings and 2 ulp of exp.
        value = cross_entropy(x, target, None, NONE, -100, 0.0, 0)[0]
        assert (result - value).abs().max() <= 2 * 9 * 2.0**-24 * value.abs().max()
        g = torch.ones(())
        d = cross_entropy_backward(g, layout, target, None, -100, 0.0, 0)
        assert d.is_contiguous()
        assert torch.equal(d, cross_entropy_backward(g, x, target, None, -100, 0.0, 0))
    row = x[0, :, 0, 0].expand(6, 5).t()
    assert torch.equal(nll_loss(row, torch.zeros(5).long(), None, NONE, -100, 0)[0], -row[:, 0])


def picked(x: Tensor, target: Tensor) -> Tensor:
    """The score of every target."""
    return x.gather(1, target.unsqueeze(1)).squeeze(1)


@case
def many_positions() -> None:
    """Programs that go over several blocks, and a last one that has fewer: sums of integers are exact."""
    most, likelihood._PARTS = likelihood._PARTS, 3
    likelihood._gathering.cache_clear()
    likelihood.split.cache_clear()
    try:
        for count in (1025, 3000, 3072, 3073, 9001):
            x = torch.arange(count * 2, dtype=torch.float32).remainder(5.0).reshape(count, 2)
            target = torch.arange(count).remainder(3)
            target[target == 2] = -100
            target[0] = 1
            w = torch.tensor([1.0, 2.0])
            counted = target >= 0
            hits = w[target[counted]]
            exact = -(x[counted, target[counted]] * hits).sum()
            out, total = nll_loss(x, target, w, SUM, -100, 0)
            assert (float(out), float(total)) == (float(exact), float(hits.sum())), count
            assert float(total_weight(w, target, -100, 0)) == float(hits.sum())
            assert float(nll_loss(x, target, None, SUM, -100, 0)[1]) == int(counted.sum())
    finally:
        likelihood._PARTS = most
        likelihood._gathering.cache_clear()
        likelihood.split.cache_clear()


@case
def counts_beyond_float32() -> None:
    """2^24 + 1 + 1 positions: added in float32, the ones would be lost."""
    from opassay.impl.losses.nll_loss import kernels_triton as texts

    partial = torch.tensor([[[0.0, 0.0, 0.0]], [[2.0**24, 1.0, 1.0]]])
    out, total = torch.zeros(1), torch.zeros(1)
    constants = {"COUNT": True, "MEAN": False, "BLOCK": 4}
    launching.launch(texts.nll_loss_fold, (1,), (partial, out, total, 1, 3), constants)
    assert float(total) == 2.0**24 + 2


@case
def bytes_as_targets() -> None:
    """uint8: 255 is a class, or ignored."""
    x = torch.arange(4 * 256, dtype=torch.float32).reshape(4, 256)
    target = torch.tensor([0, 255, 128, 255], dtype=torch.uint8)
    for ignored, exact in ((-100, [0.0, -511.0, -640.0, -1023.0]), (255, [0.0, 0.0, -640.0, 0.0])):
        out = nll_loss(x, target, None, NONE, ignored, 0)[0]
        assert out.tolist() == exact
        d = nll_loss_backward(torch.ones(4), target, None, 256, ignored, 0, torch.float16)
        rows = torch.tensor([i for i in range(4) if ignored < 0 or i in (0, 2)])
        assert d.nonzero().tolist() == [[int(i), int(target[i])] for i in rows]


@case
def without_triton() -> None:
    """The composition serves, and is counted."""
    x, target = torch.zeros(3, 4), torch.tensor([0, 1, 2])
    none = launching.compositions
    with recorded() as result:
        none["nll_loss"](Loss(x, target, None, MEAN, -100, 0))
        none["nll_loss_total_weight"](torch.ones(4), target, -100, 0)
        none["nll_loss_backward"](LossBackward(torch.ones(()), target, None, 4, -100, 0, torch.float32))
        none["cross_entropy"](SmoothedLoss(x, target, None, MEAN, -100, 0.0, 0))
        none["cross_entropy_backward"](SmoothedLossBackward(torch.ones(()), x, target, None, -100, 0.0, 0))
    try:
        assert not result.launches
        reason = "triton is not installed"
        names = "nll_loss", "nll_loss_total_weight", "nll_loss_backward", "cross_entropy", "cross_entropy_backward"
        assert launching.fallbacks == Counter((name, reason) for name in names)
    finally:
        launching.fallbacks.clear()


@case
def nothing_falls_back() -> None:
    """Every dtype, no element, one element, no classes."""
    for dtype in DTYPES:
        for shape in ((1, 1), (0, 3), (2, 0), (2, 3, 0), (3,), (1, 1, 1, 1)):
            x = torch.ones(shape, dtype=dtype, requires_grad=True)
            where = shape[:1] + shape[2:] if len(shape) > 1 else ()
            target = torch.full(where, 0 if x.numel() else -100)
            for loss in (impl.nll_loss, impl.cross_entropy):
                for reduction in ("none", "mean", "sum"):
                    loss(x, target, None, -100, reduction).sum().backward()
    assert not launching.fallbacks


def main() -> None:
    from opassay.properties.places import interpreting

    interpreting.install()
    results = {}
    for name, function in CASES.items():
        try:
            function()
            results[name] = ""
        except (Exception, pytest.fail.Exception):
            results[name] = traceback.format_exc()
    print(json.dumps(results))


if __name__ == "__main__":
    main()
