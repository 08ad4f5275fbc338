"""Half types: the last rounding counts once, and derivatives may store their steps, as autograd does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import opassay
from tests.traced_once import traced_once

from ..spec_judging import draw

HALVES = (torch.bfloat16, torch.float16)

#: Specs of one operation, or of one and what moves its result.
SINGLE: dict[str, Callable[..., Tensor]] = {
    "add": lambda a, b: a + b,
    "matmul": lambda a, b: a @ b,
    "matmul, moved": lambda a, b: (a @ b).transpose(0, 1).reshape(2, -1)[:, 1:],
    "exp": lambda a, b: torch.exp(a),
    "softmax": lambda a, b: torch.softmax(a, -1),
    "layer_norm": lambda a, b: functional.layer_norm(a, a.shape[-1:]),
    "cast at last": lambda a, b: (a.float() @ b.float()).to(a.dtype),
}
#: Functions whose gradients torch computes of stored results, in stored steps, or as stored sums.
DIFFERENTIATED: dict[str, Callable[..., Tensor]] = {
    "tanh": lambda a, b: torch.tanh(a),
    "sigmoid": lambda a, b: torch.sigmoid(a),
    "exp": lambda a, b: torch.exp(a),
    "sqrt": lambda a, b: torch.sqrt(a.abs() + 0.125),
    "erf": lambda a, b: torch.erf(a),
    "reciprocal": lambda a, b: 1 / a,
    "divide": lambda a, b: a / b,
    "power": lambda a, b: torch.pow(a.abs() + 0.25, b),
    "atan2": torch.atan2,
    "logsumexp": lambda a, b: torch.logsumexp(a, -1),
    "log_softmax": lambda a, b: torch.log_softmax(a, -1),
    "numbers beside tensors": lambda a, b: ((a.abs() + 0.2) ** 1.5 * 0.3 - 0.7) / 1.1,
    "used twice": lambda a, b: a @ a.transpose(-1, -2),
    "used often": lambda a, b: a * b + a.sin() + a * a + torch.exp(a) * b,
    "mse_loss": functional.mse_loss,
    "huber_loss": functional.huber_loss,
    "glu": lambda a, b: functional.glu(a),
    "group_norm": lambda a, b: functional.group_norm(a[None, :, :, None], 4),
    "vector_norm": lambda a, b: torch.linalg.vector_norm(a, dim=-1),
    "rms norm by hand": lambda a, b: a * torch.rsqrt(a.square().mean(-1, keepdim=True) + 1e-5) * b[0],
}


def _conforms(computed: Tensor, spec: Callable[..., Tensor], *tensors: Tensor) -> bool:
    try:
        opassay.assert_conforms(computed, spec, *tensors)
    except AssertionError:
        return False
    return True


def _neighbour(values: Tensor) -> Tensor:
    return (values.view(torch.int16) + 1).view(values.dtype)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", SINGLE)
def test_the_last_rounding_counts_once(name: str, dtype: torch.dtype) -> None:
    spec, tensors = SINGLE[name], draw((16, 16), (16, 16), dtype=dtype)
    right = spec(*(t.double() for t in tensors)).to(dtype) if "cast" not in name else spec(*tensors)
    assert _conforms(right, spec, *tensors)
    assert not _conforms(_neighbour(right.contiguous()), spec, *tensors)


@pytest.mark.parametrize("dtype", HALVES)
def test_an_output_that_is_used_again_is_rounded_once(dtype: torch.dtype) -> None:
    def spec(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        total = a + b
        return total, functional.rms_norm(total, total.shape[-1:])

    a, b = draw((16, 16), (16, 16), dtype=dtype)
    total, normed = spec(a, b)
    opassay.assert_conforms((total, normed), spec, a, b)
    unstored = functional.rms_norm(a.float() + b.float(), (16,)).to(dtype)
    opassay.assert_conforms((total, unstored), spec, a, b)
    with pytest.raises(AssertionError):
        opassay.assert_conforms((_neighbour(total), normed), spec, a, b)


def _rulings(candidate: Callable[..., Any], spec: Callable[..., Any], dtype: torch.dtype) -> str:
    tensors = draw((8, 16), (8, 16), dtype=dtype)
    return str(opassay.judge(candidate, traced_once(spec), tensors, questions=("FWD:given", "VJP:grad")).verdict)


@pytest.mark.one_fast_in(23)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_gradients_of_torch_are_accepted(name: str, dtype: torch.dtype) -> None:
    spec = DIFFERENTIATED[name]
    assert _rulings(lambda a, b: spec(a, b), spec, dtype) == "accepted"


class _Doubled(torch.autograd.Function):
    """tanh with a gradient that is 5 % off."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        slope: Tensor = (g.float() * (1.05 - 1.05 * y.float() ** 2)).to(g.dtype)
        return slope


@pytest.mark.parametrize("dtype", HALVES)
def test_a_wrong_gradient_is_refused(dtype: torch.dtype) -> None:
    verdict = _rulings(_call_of(_Doubled), lambda a, b: torch.tanh(a), dtype)
    assert verdict == "rejected"


def _call_of(function: Any) -> Callable[..., Any]:
    return lambda a, b: function.apply(a)


def test_steps_in_float32_of_a_half_spec_are_not_stored() -> None:
    """A spec that computes in float32 itself has gradients as narrow as those of float32, rounded once."""

    def spec(a: Tensor, b: Tensor) -> Tensor:
        return torch.tanh(a.float() * 0.25).to(a.dtype)

    class Stored(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Tensor) -> Tensor:
            y = torch.tanh(a.float() * 0.25)
            ctx.save_for_backward(y.to(a.dtype))
            return y.to(a.dtype)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            (y,) = ctx.saved_tensors
            slope: Tensor = (0.25 * g.float() * (1.0 - (8 * y.float()).round() / 8)).to(g.dtype)
            return slope

    assert _rulings(lambda a, b: spec(a, b), spec, torch.bfloat16) == "accepted"
    assert _rulings(_call_of(Stored), spec, torch.bfloat16) == "rejected"
