"""A program that interprets the kernels of layer and group norm, run by path with the name of a question.

It prints one line of JSON. What a question asks is what the tests next to it say; values are asked by cells.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from opassay.properties.places.interpreting import install

MACHINE = install()

import torch  # noqa: E402 (Triton must not be imported before this process is told to interpret)
from torch import Tensor  # noqa: E402

from opassay import impl  # noqa: E402
from opassay.impl.gpu import launching  # noqa: E402

SEED = 13


def _numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(SEED), dtype=torch.float64).to(dtype)


def _launched() -> dict[str, int]:
    """The launches since the last call."""
    launches = MACHINE.book.launches
    result = dict(launches)
    launches.clear()
    return result


def _layer(x: Tensor, weight: Tensor) -> list[Tensor]:
    """Outputs, d_input and tangents of rows, each of which has a cotangent and a tangent of its own."""
    out, mean, rstd = impl.native_layer_norm(x, (x.shape[-1],), weight, weight, 1e-5)
    only = [True, False, False]
    d_input, _, _ = impl.native_layer_norm_backward(x.flip(-1), x, (x.shape[-1],), mean, rstd, weight, None, only)
    moved = _moved(lambda t: impl.native_layer_norm(t, (x.shape[-1],), weight, weight, 1e-5), x)
    return [t for t in (out, mean, rstd, d_input, *moved) if t is not None]


def _group(x: Tensor, weight: Tensor) -> list[Tensor]:
    """The same of samples with two groups."""
    sizes = (x.shape[0], x.shape[1], x.shape[2], 2)
    out, mean, rstd = impl.native_group_norm(x, weight, weight, *sizes, 1e-5)
    only = [True, False, False]
    d_input, _, _ = impl.native_group_norm_backward(x.flip(-1), x, mean, rstd, weight, *sizes, only)
    moved = _moved(lambda t: impl.native_group_norm(t, weight, weight, *sizes, 1e-5), x)
    return [t for t in (out, mean, rstd, d_input, *moved) if t is not None]


def _moved(f: Callable[[Tensor], tuple[Tensor, ...]], x: Tensor) -> tuple[Tensor, ...]:
    """The tangents of all outputs."""
    tangents: tuple[Tensor, ...] = torch.func.jvp(f, (x,), (x.flip(-1),))[1]
    return tangents


def _alone_and_in_a_batch(f: Callable[[Tensor, Tensor], list[Tensor]], x: Tensor, weight: Tensor) -> list[bool]:
    together = f(x, weight)
    return [
        torch.equal(whole[i : i + 1], one)
        for i in (0, len(x) - 1)
        for whole, one in zip(together, f(x[i : i + 1], weight), strict=True)
    ]


def bits() -> list[bool]:
    """Whether first and last row, or sample, have the same bits alone and in a batch: short, and beyond registers."""
    results = []
    for rows, length in ((130, 5), (3, 33000)):
        results += _alone_and_in_a_batch(_layer, _numbers(rows, length), _numbers(length))
    for samples, channels, positions in ((40, 4, 7), (3, 4, 17000)):
        results += _alone_and_in_a_batch(_group, _numbers(samples, channels, positions), _numbers(channels))
    return results


def launches() -> dict[str, dict[str, int]]:
    """What forward and backward launch."""
    results = {}
    x, weight, bias = (t.requires_grad_() for t in (_numbers(70, 33), _numbers(33), _numbers(33)))
    out = impl.layer_norm(x, (33,), weight, bias)
    results["layer_norm"] = _launched()
    out.sum().backward()
    results["its backward"] = _launched()
    x, weight, bias = (t.requires_grad_() for t in (_numbers(4, 6, 5), _numbers(6), _numbers(6)))
    out = impl.group_norm(x, 3, weight, bias)
    results["group_norm"] = _launched()
    out.sum().backward()
    results["its backward, too"] = _launched()
    torch.autograd.grad(impl.layer_norm(x, (5,)).sum(), x)
    results["without parameters"] = _launched()
    x, residual, weight = (t.requires_grad_() for t in (_numbers(70, 33), _numbers(70, 33), _numbers(33)))
    out, total = impl.fused_add_rms_norm(x, residual, (33,), weight)
    results["fused_add_rms_norm"] = _launched()
    (out.sum() + total.sum()).backward()
    results["its backward, the sum's included"] = _launched()
    return results


def tangents() -> dict[str, dict[str, int]]:
    """What forward mode launches, values included: of each op, of a batch of tangents, and of the second order."""
    row, rows, images, channels = _numbers(5), _numbers(3, 5), _numbers(4, 6, 7), _numbers(6)
    large, one = _numbers(2, 1, 9000), _numbers(1)
    calls: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
        "layer_norm": (lambda x, w, b: impl.layer_norm(x, (5,), w, b), (rows, row, row)),
        "group_norm": (lambda x, w, b: impl.group_norm(x, 3, w, b), (images, channels, channels)),
        "batch_norm": (lambda x, w, b: impl.batch_norm(x, None, None, w, b, True), (images, channels, channels)),
        "in pieces": (lambda x, w, b: impl.batch_norm(x, None, None, w, b, True), (large, one, one)),
        "evaluation": (
            lambda x, w, b: impl.batch_norm(x, channels, channels.exp(), w, b, False), (images, channels, channels)
        ),
        "softmax": (lambda x: impl.softmax(x, 1), (images,)),
        "log_softmax": (lambda x: impl.log_softmax(x, 2), (images,)),
    }  # fmt: skip
    results = {}
    for name, (f, operands) in calls.items():
        torch.func.jvp(f, operands, operands)
        results[name] = _launched()
    torch.func.jacfwd(lambda x: impl.layer_norm(x, (5,), row, row))(rows)
    results["a batch of tangents"] = _launched()
    first, operands = calls["softmax"]
    torch.func.jvp(lambda x: torch.func.jvp(first, (x,), operands)[1], operands, operands)
    results["second order"] = _launched()
    return results


def sums() -> list[float]:
    """Of d_weight, d_bias over more rows than programs share, against float64: errors in units of n u Σ|terms|."""
    results = []
    x, dy = _numbers(700, 3000), _numbers(700, 3000).flip(0)
    mean, rstd = x.mean(1, keepdim=True), (x.var(1, keepdim=True, correction=0) + 1e-5).rsqrt()
    weight = _numbers(3000)
    _, d_weight, d_bias = impl.native_layer_norm_backward(
        dy, x, (3000,), mean, rstd, weight, weight, [False, True, True]
    )
    xh = (x.double() - mean.double()) * rstd.double()
    for d, terms in ((d_weight, dy * xh), (d_bias, dy.double())):
        assert d is not None
        size = terms.abs().sum(0) * len(x) * 2.0**-24
        results.append(float(((d.double() - terms.sum(0)).abs() / size).max()))
    return results


def infinities() -> list[list[float]]:
    """The means of rows with infinities, as native ops return them: short rows, and such as are read in pieces."""
    results = []
    for length in (6, 33000):
        x = torch.zeros(4, length)
        x[0, 1], x[1, -1] = torch.inf, -torch.inf
        x[2, 0], x[2, -1] = torch.inf, -torch.inf
        x[3] = 7.0
        results.append(impl.native_layer_norm(x, (length,), None, None, 1e-5)[1].flatten().tolist())
        results.append(impl.native_group_norm(x[:, None], None, None, 4, 1, length, 1, 1e-5)[1].flatten().tolist())
    return results


if __name__ == "__main__":
    questions: dict[str, Callable[[], Any]] = {
        "bits": bits, "launches": launches, "tangents": tangents, "sums": sums, "infinities": infinities
    }  # fmt: skip
    answer = questions[sys.argv[1]]()
    print(json.dumps({"answer": answer, "fallbacks": sum(launching.fallbacks.values())}))
