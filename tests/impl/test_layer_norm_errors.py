"""Error types and texts: those of torch for the same mistake, with the value and the rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from opassay.impl import layer_norm, native_layer_norm, native_layer_norm_backward

X = torch.ones(2, 3, 4)
W = torch.ones(4)
MEAN = torch.ones(2, 3, 1)

MISTAKES: dict[str, tuple[type[Exception], str, Callable[[Callable[..., Any]], Any]]] = {
    "empty normalized_shape": (
        RuntimeError,
        "got normalized_shape=[], need at least one dim.",
        lambda f: f(X, ()),
    ),
    "wrong trailing dims": (
        RuntimeError,
        "got normalized_shape=[3] and input of shape=[2, 3, 4], need the input's trailing dims to be normalized_shape.",
        lambda f: f(X, (3,)),
    ),
    "more dims than the input": (
        RuntimeError,
        "got normalized_shape=[1, 2, 3, 4] and input of shape=[2, 3, 4]",
        lambda f: f(X, (1, 2, 3, 4)),
    ),
    "negative size": (RuntimeError, "got normalized_shape=[-4]", lambda f: f(X, (-4,))),
    "normalized_shape an int": (
        TypeError,
        "got normalized_shape=4, need a tuple of ints.",
        lambda f: f(X, 4),
    ),
    "normalized_shape of floats": (
        TypeError,
        "got normalized_shape=(4.0,), need a tuple of ints.",
        lambda f: f(X, (4.0,)),
    ),
    "weight shape": (
        RuntimeError,
        "got weight of shape=[3], need normalized_shape=[4].",
        lambda f: f(X, (4,), W[:3]),
    ),
    "bias shape": (
        RuntimeError,
        "got bias of shape=[3], need normalized_shape=[4].",
        lambda f: f(X, (4,), W, W[:3]),
    ),
    "weight dtype": (
        RuntimeError,
        "got weight of dtype=torch.float64 and input of dtype=torch.float32, need the input's"
        " dtype, or float32 with a bfloat16 or float16 input.",
        lambda f: f(X, (4,), W.double()),
    ),
    "bias dtype": (
        RuntimeError,
        "got bias of dtype=torch.bfloat16 and input of dtype=torch.float32",
        lambda f: f(X, (4,), W, W.bfloat16()),
    ),
    "integer input": (
        NotImplementedError,
        "got input of dtype=torch.int64, need float64, float32, bfloat16 or float16.",
        lambda f: f(X.long(), (4,)),
    ),
    "complex input": (
        NotImplementedError,
        "got input of dtype=torch.complex64",
        lambda f: f(X.to(torch.complex64), (4,)),
    ),
    "weight on another device": (
        RuntimeError,
        "got weight on device=meta and input on device=cpu, need one device.",
        lambda f: f(X, (4,), W.to("meta")),
    ),
    "input not a tensor": (TypeError, "got input=[1.0], need a Tensor.", lambda f: f([1.0], (1,))),
    "weight not a tensor": (
        TypeError,
        "got weight=1.0, need a Tensor.",
        lambda f: f(X, (4,), 1.0),
    ),
}


def _layer_norm(x: Any, shape: Any, weight: Any = None, bias: Any = None) -> Any:
    return layer_norm(x, shape, weight, bias)


def _native(x: Any, shape: Any, weight: Any = None, bias: Any = None) -> Any:
    return native_layer_norm(x, shape, weight, bias, 1e-5)


def _backward(x: Any, shape: Any, weight: Any = None, bias: Any = None) -> Any:
    return native_layer_norm_backward(x, x, shape, MEAN, MEAN, weight, bias, [True] * 3)


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("layer_norm", _layer_norm),
        ("native_layer_norm", _native),
        ("native_layer_norm_backward", _backward),
    ],
)
def test_forward_mistake(name: str, call: Callable[..., Any], mistake: str) -> None:
    kind, text, make = MISTAKES[mistake]
    with pytest.raises(kind) as error:
        make(call)
    assert str(error.value).startswith(f"{name}: {text}")
    assert type(error.value) is kind


BACKWARD_MISTAKES: dict[str, tuple[type[Exception], str, dict[str, Any]]] = {
    "grad_out shape": (
        RuntimeError,
        "got grad_out of shape=[3, 4], dtype=torch.float32, need the input's shape=[2, 3, 4], dtype=torch.float32.",
        {"grad_out": X[0]},
    ),
    "grad_out dtype": (
        RuntimeError,
        "got grad_out of shape=[2, 3, 4], dtype=torch.float64",
        {"grad_out": X.double()},
    ),
    "grad_out not a tensor": (TypeError, "got grad_out=None, need a Tensor.", {"grad_out": None}),
    "mean shape": (
        RuntimeError,
        "got mean of shape=[2, 3], dtype=torch.float32, need shape=[2, 3, 1], dtype=torch.float32.",
        {"mean": MEAN[..., 0]},
    ),
    "rstd dtype": (
        RuntimeError,
        "got rstd of shape=[2, 3, 1], dtype=torch.float16",
        {"rstd": MEAN.half()},
    ),
    "rstd device": (
        RuntimeError,
        "got rstd on device=meta and input on device=cpu, need one device.",
        {"rstd": MEAN.to("meta")},
    ),
    "mask too short": (
        RuntimeError,
        "got output_mask=[True, True], need three bools.",
        {"output_mask": [True, True]},
    ),
}


@pytest.mark.parametrize("mistake", BACKWARD_MISTAKES)
def test_backward_mistake(mistake: str) -> None:
    kind, text, change = BACKWARD_MISTAKES[mistake]
    arguments: dict[str, Any] = {
        "grad_out": X, "input": X, "normalized_shape": (4,), "mean": MEAN, "rstd": MEAN,
        "weight": W, "bias": W, "output_mask": [True, True, True],
    }  # fmt: skip
    with pytest.raises(kind) as error:
        native_layer_norm_backward(**(arguments | change))
    assert str(error.value).startswith(f"native_layer_norm_backward: {text}")


def test_eps_not_a_number() -> None:
    with pytest.raises(TypeError, match="got eps='a', need a float"):
        layer_norm(X, (4,), eps="a")  # type: ignore[arg-type]


def test_eps_an_int() -> None:
    """An int is a number: the same bits as the float."""
    assert torch.equal(layer_norm(X * X.cumsum(-1), (4,), eps=1), layer_norm(X * X.cumsum(-1), (4,), eps=1.0))
