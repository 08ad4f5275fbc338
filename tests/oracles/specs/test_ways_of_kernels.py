"""Ways in which kernels compute what a spec says: means of pieces, flushed exponentials, sums that are stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from opassay.oracles.bound import accept
from opassay.oracles.bound.contract import LOG_SUM
from opassay.reference.formats import FORMATS
from tests.oracles.spec_judging import accepted, name_of, read

#: How many, their mean, and Σ (x − μ)².
Moments = tuple[int, Tensor, Tensor]


def _joined(a: Moments, b: Moments) -> Moments:
    """T. F. Chan, G. H. Golub, R. J. LeVeque, COMPSTAT 1982."""
    count, apart = a[0] + b[0], b[1] - a[1]
    return count, a[1] + apart * (b[0] / count), a[2] + b[2] + apart * apart * (a[0] * b[0] / count)


def _of_pieces(x: Tensor, length: int) -> Moments:
    """The moments of every row: of its elements one after another, or of two pieces."""
    if length >= x.shape[1]:
        pieces = [(1, x[:, i], torch.zeros_like(x[:, i])) for i in range(x.shape[1])]
    else:
        parts = (x[:, :length], x[:, length:])
        means = [part.sum(1) / part.shape[1] for part in parts]
        pieces = [(p.shape[1], m, ((p - m[:, None]) ** 2).sum(1)) for p, m in zip(parts, means, strict=True)]
    result = pieces[0]
    for piece in pieces[1:]:
        result = _joined(result, piece)
    return result


def _rows(kind: str, length: int, dtype: torch.dtype) -> Tensor:
    rng = np.random.default_rng(length)
    x = rng.standard_normal((2000, length))
    x = {"normal": x, "offset": x + 100.0, "wide": x * np.exp(3.0 * x), "signs": np.sign(x) + 1e-3 * x}[kind]
    return torch.from_numpy(x).to(dtype)


def _layer_norm(x: Tensor) -> Tensor:
    centred = x - x.mean(1, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(1, keepdim=True) + 1e-5)


SPECS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Moments], Tensor]]] = {
    "mean": (lambda x: x.mean(1), lambda x, m: m[1]),
    "var": (lambda x: x.var(1), lambda x, m: m[2] / (m[0] - 1)),
    "std": (lambda x: x.std(1), lambda x, m: (m[2] / (m[0] - 1)).sqrt()),
    "layer_norm": (
        lambda x: F.layer_norm(x, x.shape[1:]),
        lambda x, m: (x - m[1][:, None]) * torch.rsqrt(m[2] / m[0] + 1e-5)[:, None],
    ),
    "layer_norm, spelled out": (
        _layer_norm, lambda x, m: (x - m[1][:, None]) * torch.rsqrt(m[2] / m[0] + 1e-5)[:, None],
    ),
}  # fmt: skip


@pytest.mark.one_fast_in(5)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SPECS)
def test_moments_may_be_put_together_of_pieces(name: str, dtype: torch.dtype) -> None:
    spec, candidate = SPECS[name]
    for length in (2, 3, 4, 5, 9):
        for kind in ("normal", "offset", "wide", "signs"):
            x = _rows(kind, length, dtype)
            ball = read(spec, (x,))[0]
            for first in (length // 2, (length + 1) // 2, length):
                assert accepted(candidate(x, _of_pieces(x, first)), ball).all(), (length, kind, first)
            count, mean, squares = _of_pieces(x, length)
            off = 1.0 + 64 * length * torch.finfo(dtype).eps
            for fault in ((count, mean * off, squares), (count, mean, squares * off)):
                if kind == "offset" and not torch.equal(candidate(x, fault), candidate(x, (count, mean, squares))):
                    assert not accepted(candidate(x, fault), ball).all() or name.startswith("layer_norm")


def test_the_bound_of_a_mean_around_100_is_that_of_its_additions() -> None:
    x = _rows("offset", 8, torch.float32)
    radius = read(lambda x: x.mean(1), (x,))[0].radii().max()
    assert radius <= (7 + 2 + 1) * 2.0**-24 * 105.0


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) * 0.25, -1) @ v


def test_a_small_probability_may_be_flushed() -> None:
    scores = torch.tensor([[0.0, -80.0, -87.25, -95.0, -1.0]])
    exact = torch.softmax(scores, -1)
    ball = read(lambda x: torch.softmax(x, -1), (scores,))[0]
    flushed = torch.where(exact < 2.0**-125, 0.0, exact)
    assert (flushed[0, 2:4] == 0.0).all()
    assert accepted(flushed, ball).all()
    assert not accepted(torch.where(exact < 1e-30, 0.0, exact), ball).all()
    assert not accepted(torch.where(exact < 1e-37, 3.0 * exact, exact), ball).all()
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(2, 24, 16, generator=generator) for _ in range(3))
    q, v = q * 40.0, v.sign()
    assert accepted(F.scaled_dot_product_attention(q, k, v, scale=0.25), read(_attention, (q, k, v))[0]).all()


def test_an_exponential_of_what_is_given_keeps_its_digits() -> None:
    x = torch.tensor([-90.0, -88.0])
    ball = read(torch.exp, (x,))[0]
    assert accepted(torch.exp(x), ball).all()
    assert not accepted(torch.zeros(2), ball).any()


def test_eps_is_the_number_that_was_written() -> None:
    x = _rows("normal", 8, torch.float32)[:4] * 2.0**-15
    for eps in (1e-6, 1e-5, 2.0**-20):

        def text(x: Tensor, eps: float = eps) -> Tensor:
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)

        own, spelled = (read(f, (x,))[0] for f in (lambda x, e=eps: F.rms_norm(x, (8,), eps=e), text))
        assert np.array_equal(own.centre, spelled.centre), eps
        assert np.array_equal(own.radii(), spelled.radii()), eps


def test_eps_is_the_number_that_torch_computes_with_in_float64() -> None:
    x, y = (_rows("normal", 4, torch.float64)[i : i + 8] * 2.0**-20 for i in (0, 8))

    def loss(x: Tensor) -> Tensor:
        return F.cosine_embedding_loss(x, y, torch.ones(8), reduction="none")

    assert accepted(loss(x), read(loss, (x,))[0]).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_log_softmax_of_half_types_may_store_its_sum(dtype: torch.dtype) -> None:
    for scale in (1.0, 30.0, 1000.0):
        x = (_rows("normal", 24, torch.float32)[:64] * scale).to(dtype)
        stored = read(lambda x: torch.log_softmax(x, 1), (x,), intermediates=True)[0]
        assert _inside(torch.log_softmax(x, 1), stored)
        careful = torch.log_softmax(x.float(), 1).to(dtype)
        assert _inside(careful, read(lambda x: torch.log_softmax(x, 1), (x,))[0])
        assert not _inside(careful * 1.05, stored)


def _inside(computed: Tensor, ball: Any) -> bool:
    places = accept.place_in_accept_sets(computed.double().numpy(), FORMATS[name_of(computed.dtype)], ball, None)
    return bool(places.accepted.all())


def test_a_kept_log_sum_needs_its_name() -> None:
    x = _rows("normal", 64, torch.float32)[:32] + 8.0 * torch.eye(32, 64) + 1000.0
    target = torch.arange(32)

    def loss(x: Tensor) -> Tensor:
        return F.cross_entropy(x, target, reduction="none")

    fused = torch.logsumexp(x, -1) - x[target, target]
    assert not _inside(fused, read(loss, (x,))[0])
    named = read(loss, (x,), algorithms=frozenset({LOG_SUM}))[0]
    assert _inside(fused, named)
    assert not _inside(fused + 1e-3, named)
