"""torch's associative scans: what any order of combining gives is right, and mistakes are rejected."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops import associative_scan

import opassay

Step = Callable[[Any, Any], Any]
_N = 5


def _add(a: Tensor, b: Tensor) -> Tensor:
    return a + b


def _multiply(a: Tensor, b: Tensor) -> Tensor:
    return b @ a


def _recur(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """h -> a h + b, of which b is applied after a."""
    return a[0] * b[0], b[0] * a[1] + b[1]


_STEPS: dict[str, tuple[Step, tuple[int, ...], torch.dtype]] = {
    "sum": (_add, (2,), torch.float32),
    "sum in bfloat16": (_add, (2,), torch.bfloat16),
    "log of a sum of exponentials": (torch.logaddexp, (2,), torch.float32),
    "products of matrices": (_multiply, (2, 2), torch.float32),
    "recurrence": (_recur, (2,), torch.float32),
    "recurrence of complex numbers": (_recur, (2,), torch.complex64),
}


def _spec(step: Step) -> Callable[..., Any]:
    scan: Any = associative_scan
    return lambda *xs: scan(step, xs if len(xs) > 1 else xs[0], 0, combine_mode="generic")


def _inputs(name: str) -> tuple[Tensor, ...]:
    step, shape, dtype = _STEPS[name]
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn((_N, *shape), generator=generator, dtype=dtype) for _ in range(1 + (step is _recur)))


def _in_an_order(step: Step, cut: Callable[[int, int], int], *xs: Tensor) -> Any:
    """Every prefix combined by itself: of the elements i to j where a cut is."""

    def combine(i: int, j: int) -> Any:
        if i == j:
            return tuple(x[i] for x in xs) if len(xs) > 1 else xs[0][i]
        k = cut(i, j)
        return step(combine(i, k), combine(k + 1, j))

    prefixes = [combine(0, j) for j in range(len(xs[0]))]
    return tuple(map(torch.stack, zip(*prefixes, strict=True))) if len(xs) > 1 else torch.stack(prefixes)


_CUTS: dict[str, Callable[[int, int], int]] = {
    "first": lambda i, j: i,
    "last": lambda i, j: j - 1,
    "middle": lambda i, j: (i + j) // 2,
    "random": lambda i, j: random.Random(i * _N + j).randrange(i, j),
}


def _judge(kernel: Callable[..., Any], spec: Callable[..., Any], inputs: tuple[Tensor, ...]) -> Any:
    return opassay.judge(kernel, spec, inputs, questions=["FWD:given", "FWD:signs"], seed=0)


@pytest.mark.one_fast_in(8)
@pytest.mark.parametrize("cut", _CUTS)
@pytest.mark.parametrize("name", _STEPS)
def test_every_order_is_right(name: str, cut: str) -> None:
    step = _STEPS[name][0]
    kernel = functools.partial(_in_an_order, step, _CUTS[cut])
    judgement = _judge(kernel, _spec(step), _inputs(name))
    assert judgement.verdict == "accepted", str(judgement)


@pytest.mark.fast_cases("sum")
@pytest.mark.parametrize("name", _STEPS)
def test_a_wrong_step_is_rejected(name: str) -> None:
    step = _STEPS[name][0]
    kernels: dict[bool, Callable[..., Any]] = {
        False: lambda *xs: _spec(step)(*(torch.cat((x[:-1], x[:1])) for x in xs)),
        True: _spec(lambda a, b: step(b, a)),
    }
    kernel = kernels[step in (_multiply, _recur)]
    assert _judge(kernel, _spec(step), _inputs(name)).verdict == "rejected"


@pytest.mark.slow
def test_small_numbers_may_be_lost_one_after_the_other() -> None:
    # 1 is a quarter of the spacing at 2^25, so a sum in order stays at 2^25, and torch's tree has more.
    x = torch.ones(32)
    x[0] = 2.0**25
    assert _judge(functools.partial(_in_an_order, _add, _CUTS["last"]), _spec(_add), (x,)).verdict == "accepted"
    assert _judge(lambda x: _spec(_add)(x) + 2.0**8, _spec(_add), (x,)).verdict == "rejected"


@pytest.mark.slow
def test_errors_of_prefixes_do_not_cancel() -> None:
    """A kernel may combine each prefix anew, so the difference of two has the errors of both."""

    def spec(x: Tensor) -> Any:
        sums = _spec(_add)(x)
        return sums[1:] - sums[:-1]

    def kernel(x: Tensor) -> Any:
        cuts = [_CUTS["last"], _CUTS["first"]]
        sums = [_in_an_order(_add, cut, x) for cut in cuts]
        return torch.stack([sums[i % 2][i] - sums[1 - i % 2][i - 1] for i in range(1, len(x))])

    x = torch.tensor([2.0**25, *[1.0] * 20, -(2.0**25), *[1.0] * 3])
    assert _judge(kernel, spec, (x,)).verdict == "accepted"


@pytest.mark.slow
def test_a_step_may_read_other_tensors() -> None:
    def spec(x: Tensor, w: Tensor) -> Any:
        return _spec(lambda a, b: a + b + w)(x)

    def kernel(x: Tensor, w: Tensor) -> Any:
        return x.cumsum(0) + w * torch.arange(len(x))[:, None]

    x, w = torch.randn(2, _N, 2, generator=torch.Generator().manual_seed(0))
    assert _judge(kernel, spec, (x, w[0])).verdict == "accepted"
    assert _judge(lambda x, w: kernel(x, w) + w, spec, (x, w[0])).verdict == "rejected"


@pytest.mark.slow
def test_a_step_may_choose_with_indices() -> None:
    def larger(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        is_first = a[0] >= b[0]
        return torch.where(is_first, a[0], b[0]), torch.where(is_first, a[1], b[1])

    def spec(x: Tensor) -> Any:
        return _spec(larger)(x, torch.arange(len(x))[:, None].expand_as(x).clone())

    x = torch.randn(_N, 2, generator=torch.Generator().manual_seed(0))
    assert _judge(lambda x: tuple(x.cummax(0)), spec, (x,)).verdict == "accepted"
    assert _judge(lambda x: (x.cummax(0)[0], x.cummax(0)[1] * 0), spec, (x,)).verdict == "rejected"


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_scans_of_rows_under_vmap() -> None:
    x = torch.randn(2, _N, generator=torch.Generator().manual_seed(0))
    spec = torch.vmap(_spec(_add))
    assert _judge(lambda x: x.cumsum(1), spec, (x,)).verdict == "accepted"
    assert _judge(lambda x: x.cumsum(0), spec, (x,)).verdict == "rejected"


def test_gradients_are_not_judged() -> None:
    x = torch.randn(_N, 2, requires_grad=True)
    judgement = opassay.judge(lambda x: x.cumsum(0), _spec(_add), (x,), questions=["FWD:given", "VJP:grad"], seed=0)
    (finding,) = [each for each in judgement.findings if each.question == "VJP:grad"]
    assert "associative_scan, of which no gradient is judged" in finding.text


def test_a_long_scan_is_not_read() -> None:
    x = torch.ones(500, 3)
    judgement = _judge(_spec(_add), _spec(_add), (x,))
    assert "associative_scan of 500 elements of 3 numbers, whose orders cannot all be read" in judgement.error
