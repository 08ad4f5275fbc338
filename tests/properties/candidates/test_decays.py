"""Loops with decays: values and gradients of kernels by chunks, and errors at elements that are zeros of the loop."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import opassay
from tests.traced_once import traced_once

Spec = Callable[..., Tensor]


def _draw(*shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(3)
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)


def _decay_loop(x: Tensor, b: Tensor) -> Tensor:
    g, state, out = -F.softplus(x), torch.zeros_like(b[0]), []
    for t in range(len(x)):
        state = state * g[t].exp() + b[t]
        out.append(state)
    return torch.stack(out)


def _pairs(sums: Tensor) -> Tensor:
    """exp(G_i - G_j) for i >= j, else 0: (n, ...) -> (n, n, ...)."""
    n = len(sums)
    later = torch.ones(n, n, dtype=torch.bool).triu(1).reshape(n, n, *[1] * (sums.ndim - 1))
    return torch.exp((sums[:, None] - sums[None]).masked_fill(later, 0)).masked_fill(later, 0)


def _decay_chunks(x: Tensor, b: Tensor, size: int = 4) -> Tensor:
    g, state, out = -F.softplus(x), torch.zeros_like(b[0]), []
    for c in range(0, len(x), size):
        sums, addends = g[c : c + size].cumsum(0), b[c : c + size]
        out.append(sums.exp()[:, None] * state + _pairs(sums) @ addends)
        state = out[-1][-1]
    return torch.cat(out)


def _gated_linear(q: Tensor, k: Tensor, v: Tensor, x: Tensor) -> Tensor:
    """Decays are vectors, as in GLA."""
    g, out = F.logsigmoid(x), []
    state = torch.zeros(k.shape[-1], v.shape[-1], dtype=q.dtype)
    for t in range(len(q)):
        state = g[t].exp()[:, None] * state + k[t][:, None] * v[t]
        out.append(q[t] @ state)
    return torch.stack(out)


def _gated_linear_chunks(q: Tensor, k: Tensor, v: Tensor, x: Tensor, size: int = 4) -> Tensor:
    g, out = F.logsigmoid(x), []
    state = torch.zeros(k.shape[-1], v.shape[-1], dtype=q.dtype)
    for c in range(0, len(q), size):
        a, b, w, sums = q[c : c + size], k[c : c + size], v[c : c + size], g[c : c + size].cumsum(0)
        scores = (a[:, None] * b[None] * _pairs(sums)).sum(-1)
        out.append((a * sums.exp()) @ state + scores @ w)
        state = sums[-1].exp()[:, None] * state + (b * (sums[-1] - sums).exp()).T @ w
    return torch.cat(out)


def _normal(k: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return k * torch.rsqrt(k.square().sum(-1, keepdim=True) + 1e-6), -F.softplus(a), torch.sigmoid(b)


def _delta(q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The gated delta rule."""
    k, g, b = _normal(k, a, b)
    state, out = torch.zeros(k.shape[-1], v.shape[-1], dtype=q.dtype), []
    for t in range(len(q)):
        state = state * g[t].exp()
        state = state + k[t][:, None] * (b[t] * (v[t] - k[t] @ state))
        out.append(q[t] @ state)
    return torch.stack(out)


def _delta_chunks(q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, size: int = 4) -> Tensor:
    k, g, b = _normal(k, a, b)
    state, out = torch.zeros(k.shape[-1], v.shape[-1], dtype=q.dtype), []
    for c in range(0, len(q), size):
        rows, keys, beta, sums = q[c : c + size], k[c : c + size], b[c : c + size], g[c : c + size].cumsum(0)
        pairs = _pairs(sums)
        lower = (beta[:, None] * (keys @ keys.T) * pairs).tril(-1)
        right = beta[:, None] * (v[c : c + size] - sums.exp()[:, None] * (keys @ state))
        news: list[Tensor] = []
        for i in range(len(rows)):
            news.append(right[i] - sum((lower[i, j] * news[j] for j in range(i)), torch.zeros_like(right[i])))
        new = torch.stack(news)
        out.append(sums.exp()[:, None] * (rows @ state) + ((rows @ keys.T) * pairs) @ new)
        state = sums[-1].exp() * state + (keys * (sums[-1] - sums).exp()[:, None]).T @ new
    return torch.cat(out)


_DECAY = (8,), (8, 3)
_LINEAR = (8, 4), (8, 4), (8, 3), (8, 4)
_DELTA = (8, 4), (8, 4), (8, 4), (8,), (8,)


def _judge(kernel: Spec, spec: Spec, inputs: tuple[Tensor, ...], *further: str) -> opassay.Judgement:
    return opassay.judge(kernel, traced_once(spec), inputs, seed=0, questions=["FWD:given", "VJP:grad", *further])


RIGHT: list[Any] = [
    (_decay_chunks, _decay_loop, _DECAY),
    (_decay_loop, _decay_loop, _DECAY),
    (functools.partial(_decay_chunks, size=8), _decay_loop, _DECAY),
    (_gated_linear_chunks, _gated_linear, _LINEAR),
    (functools.partial(_delta_chunks, size=3), _delta, _DELTA),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "spec", "shapes"), RIGHT)
def test_kernels_by_chunks_have_the_gradients_of_their_loops(kernel: Spec, spec: Spec, shapes: Any) -> None:
    judged = _judge(kernel, spec, _draw(*shapes), "LIKELY")
    assert judged.verdict.value == "accepted", judged


class _Changed(torch.autograd.Function):
    """A tensor, whose gradient is changed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.change = change
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor, None]:
        return ctx.change(cotangents[0].clone()), None


def _at_zero(share: float) -> Callable[[Tensor], Tensor]:
    """An error at the first step, as a share of the largest element."""
    return lambda g: torch.cat([g[:1] + share * g.abs().max(), g[1:]])


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize(
    "change",
    [
        lambda g: g * 1.001,
        lambda g: torch.cat([g[:3], torch.zeros_like(g[:1]), g[4:]]),
        lambda g: g.roll(1, 0),
        _at_zero(0.01),
        _at_zero(1e-3),
    ],
)
def test_wrong_gradients_of_decays_are_refused(change: Callable[[Tensor], Tensor]) -> None:
    def wrong(x: Tensor, b: Tensor) -> Tensor:
        return _decay_chunks(_Changed.apply(x, change), b)  # type: ignore[no-untyped-call]

    judged = _judge(wrong, _decay_loop, _draw(*_DECAY))
    assert [cause.question for cause in judged.causes] == ["VJP:grad"]


def _decays_ahead(x: Tensor, b: Tensor) -> Tensor:
    state, out = torch.zeros_like(b[0]), []
    for decay, addend in zip(torch.sigmoid(-x).unbind(0), b, strict=True):
        state = decay[..., None] * state + addend
        out.append(state)
    return torch.stack(out)


def _outer_products(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    state, out = torch.zeros(k.shape[-1], v.shape[-1]), []
    for t in range(len(q)):
        state = state + k[t][:, None] * v[t]
        out.append(q[t] @ state)
    return torch.stack(out)


def _scores(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The products of queries and keys overflow where those of keys and values do not."""
    return (q @ k.T).tril() @ v


_HOSTILE = ("FWD:given", "DATA:integers", "FWD:wide", "SPECIAL:nan", "SPECIAL:inf")


@pytest.mark.fast_cases("_scores-_outer_products-shapes3-0")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("kernel", "spec", "shapes"),
    [
        (functools.partial(_decay_chunks, size=16), _decay_loop, ((16,), (16, 3))),
        (functools.partial(_decay_chunks, size=16), _decays_ahead, ((16,), (16, 3))),
        (_gated_linear_chunks, _gated_linear, _LINEAR),
        (_scores, _outer_products, ((10, 4), (10, 4), (10, 5))),
    ],
)
def test_values_by_running_sums_of_logarithms_are_accepted(kernel: Spec, spec: Spec, shapes: Any, seed: int) -> None:
    assert not opassay.judge(kernel, traced_once(spec), _draw(*shapes), seed=seed, questions=_HOSTILE).causes


@pytest.mark.fast_cases("0.0001")
@pytest.mark.parametrize("share", [1e-4, 2.0**-9])
def test_decays_of_fewer_digits_are_refused(share: float) -> None:
    def kernel(x: Tensor, b: Tensor) -> Tensor:
        return _decay_chunks(x, b, 16) + share * _decay_chunks(x, torch.cat([b[:1] * 0, b[:-1]]), 16)

    judged = opassay.judge(
        kernel, traced_once(_decay_loop), _draw((16,), (16, 3)), questions=["FWD:given", "FWD:signs"]
    )
    assert [cause.question for cause in judged.causes] == ["FWD:given", "FWD:signs"], judged


def test_scores_without_the_last_key_are_refused() -> None:
    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.T).tril(-1) @ v

    judged = opassay.judge(kernel, _outer_products, _draw((10, 4), (10, 4), (10, 5)), questions=["FWD:wide"])
    assert judged.causes
