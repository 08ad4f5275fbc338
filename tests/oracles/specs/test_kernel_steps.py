"""Kernels that compute in a half type itself, and derivatives that torch writes down, are inside their own bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

import opassay
from opassay.oracles.bound import accept
from opassay.oracles.bound.terms import terms
from opassay.oracles.op.declaration import dtype_name, to_array
from opassay.properties.candidates.arguments import CallArguments
from opassay.properties.candidates.specification import specification
from opassay.reference.formats import FORMATS

from ..spec_judging import draw

HALF = (torch.bfloat16, torch.float16)
_ROWS = torch.tensor([0, 1, 1, 3, 1, 0, 3, 3])
_CLASSES = torch.tensor([0, 2, 1, 4, 4, 0, 3, 1])

#: Name -> a function of positive tensors (8, 5), and how many it takes.
SPECS: dict[str, tuple[Callable[..., Tensor], int]] = {
    "addbmm": (lambda c, a, b: torch.addbmm(c[:, :2], a.expand(6, 8, 5) * 1.0, b[:5, :2].expand(6, 5, 2) * 1.0), 3),
    "addr": (lambda c, a, b: torch.addr(c, a[:, 0], b[0]), 3),
    "cross": (lambda a, b: torch.linalg.cross(a[:, :3], b[:, :3]), 2),
    "entr": (torch.special.entr, 1),
    "rsqrt": (torch.rsqrt, 1),
    "bilinear": (lambda a, b, w: functional.bilinear(a, b, w[:5].expand(3, 5, 5)), 3),
    "mse_loss": (functional.mse_loss, 2),
    "smooth_l1_loss": (functional.smooth_l1_loss, 2),
    "huber_loss": (functional.huber_loss, 2),
    "soft_margin_loss": (lambda x: functional.soft_margin_loss(x, torch.ones(8, 5)), 1),
    "nll_loss": (lambda x: functional.nll_loss(x, _CLASSES), 1),
    "binary_cross_entropy_with_logits": (functional.binary_cross_entropy_with_logits, 2),
    "embedding_bag": (lambda w: functional.embedding_bag(_ROWS.repeat(3).reshape(3, 8), w), 1),
    "adaptive_avg_pool3d": (lambda x: functional.adaptive_avg_pool3d(x.reshape(1, 2, 5, 4), 2), 1),
    "fmod": (lambda x: torch.fmod(x, 3.0), 1),
    "addmv": (lambda c, a, b: torch.addmv(c[:, 0], a, b[0], beta=0.2, alpha=0.6), 3),
    "softmax of columns": (lambda x: (4.0 * x).softmax(0), 1),
    "prod": (lambda x: torch.prod(3.0 * x, -1), 1),
}
#: The same, of functions whose gradients were outside.
SLOPES: dict[str, tuple[Callable[..., Tensor], int]] = {
    "embedding": (lambda w: functional.embedding(_ROWS, w), 1),
    "index_select": (lambda w: w.index_select(0, _ROWS), 1),
    "gather": (lambda w: w.gather(0, _ROWS[:, None].expand(8, 5)), 1),
    "expand": (lambda a, b: a[:, None] * b[:, :, None], 2),
    "unfold": (lambda x: x.unfold(-1, 3, 1).mean(-1), 1),
    "div": (torch.div, 2),
    "exp2": (torch.exp2, 1),
    "hypot": (torch.hypot, 2),
    "logaddexp": (torch.logaddexp, 2),
    "logaddexp2": (torch.logaddexp2, 2),
    "atan2": (torch.atan2, 2),
    "sinc": (torch.sinc, 1),
    "lerp": (torch.lerp, 3),
    "addcdiv": (lambda c, a, b: torch.addcdiv(c, a, b, value=0.5), 3),
    "addcmul": (lambda c, a, b: torch.addcmul(c, a, b, value=0.3), 3),
    "norm": (lambda x: torch.linalg.vector_norm(x, dim=-1), 1),
    "var": (lambda x: torch.var(x + 2.0, -1), 1),
    "asin": (lambda x: torch.asin(0.3 * x.clamp(max=3.0)), 1),
    "acosh": (lambda x: torch.acosh(1.0 + x), 1),
    "asinh": (torch.asinh, 1),
    "norm of order 0.5": (lambda x: torch.linalg.vector_norm(x, 0.5, dim=-1), 1),
    "norm of order 3": (lambda x: torch.linalg.vector_norm(x, 3.0, dim=-1), 1),
    "smallest": (lambda x: torch.linalg.vector_norm(x, -torch.inf, dim=-1), 1),
    "circular padding": (lambda x: functional.pad(x[None], (2, 2), mode="circular"), 1),
    "addmv": (lambda c, a, b: torch.addmv(c[:, 0], a, b[0], beta=0.2, alpha=0.6), 3),
    "conv_tbc": (lambda b, x, w: torch.conv_tbc(x[:, None].repeat(1, 3, 1), w[:3, :, None] * w[0, :4], b[0, :4]), 3),
    "prod": (lambda x: torch.prod(torch.where(x < 0.2, 0.0, x), -1), 1),
    "cumprod": (lambda x: torch.cumprod(torch.where(x < 0.2, 0.0, x), -1), 1),
    "group norm's statistics": (
        lambda x: torch.cat([t.flatten() for t in torch.native_group_norm(x[None], None, None, 1, 8, 5, 2, 1e-5)]),
        1,
    ),
}


def _arguments(count: int, dtype: torch.dtype) -> list[Tensor]:
    return [x.abs().add(0.01).to(dtype) for x in draw(*[(8, 5)] * count)]


def _judge(candidate: Callable[..., Any], spec: Callable[..., Any], args: list[Tensor]) -> None:
    opassay.assert_conforms(candidate(*args), spec, *args)


@pytest.mark.one_fast_in(11)
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", SPECS)
def test_steps_inside_a_kernel_may_be_stored(name: str, dtype: torch.dtype) -> None:
    spec, count = SPECS[name]
    args = _arguments(count, dtype)
    _judge(spec, spec, args)
    with pytest.raises(AssertionError):
        _judge(lambda *xs: spec(*xs) * 1.5, spec, args)


def _outside(function: Callable[..., Tensor], args: list[Tensor], factor: float) -> int:
    """How many elements of torch's gradients, times a factor, are not where the function's own bound lets them be."""
    leaves = [x.clone().requires_grad_() for x in args]
    result = function(*leaves)
    weights = torch.linspace(-1.0, 2.0, result.numel()).reshape(result.shape).to(result.dtype)
    slopes = torch.autograd.grad(result, leaves, weights)
    spec = specification(function)
    wanted = list(range(len(args)))
    balls: Any = spec.gradients(CallArguments.of(tuple(args)), spec.state, terms("torch"), wanted, [weights])
    fmt = FORMATS[dtype_name(result.dtype)]
    results = [
        accept.place_in_accept_sets(to_array(x * factor), fmt, ball, None, True, 1)
        for x, ball in zip(slopes, balls, strict=True)
    ]
    return sum(int(np.count_nonzero(~np.asarray(each.accepted))) for each in results)


@pytest.mark.one_fast_in(17)
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", SLOPES)
def test_steps_of_a_derivative_may_be_stored(name: str, dtype: torch.dtype) -> None:
    function, count = SLOPES[name]
    args = _arguments(count, dtype)
    assert _outside(function, args, 1.0) == 0
    assert _outside(function, args, 1.5) > 0


def test_one_by_one_in_float32_is_what_it_was() -> None:
    """Only where the format of what is stored is a narrow one."""
    (w,) = draw((8, 5))
    spec, _ = SPECS["embedding_bag"]
    with pytest.raises(AssertionError):
        _judge(lambda w: spec(w) * (1.0 + 2.0**-18), spec, [w])
