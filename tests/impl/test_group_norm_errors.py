"""Error types and texts of group norm: those of torch for the same mistake, with the value and the rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from opassay.impl import group_norm, native_group_norm, native_group_norm_backward
from opassay.impl.norms.group_norm import _refusal_of_torch as refusal

X = torch.ones(2, 6, 4)
W = torch.ones(6)
STATISTICS = torch.ones(2, 3)

MISTAKES: dict[str, tuple[type[Exception], str, dict[str, Any]]] = {
    "no groups": (
        RuntimeError,
        "got num_groups=0 and input of shape=[2, 6, 4], need num_groups > 0 that divides the 6 channels.",
        {"num_groups": 0},
    ),
    "negative groups": (RuntimeError, "got num_groups=-3 and input of shape=[2, 6, 4]", {"num_groups": -3}),
    "groups do not divide": (RuntimeError, "got num_groups=4 and input of shape=[2, 6, 4]", {"num_groups": 4}),
    "groups a float": (TypeError, "got num_groups=3.0, need an int.", {"num_groups": 3.0}),
    "groups a bool": (TypeError, "got num_groups=True, need an int.", {"num_groups": True}),
    "one dim": (RuntimeError, "got input of shape=[6], need (N, C, *).", {"input": W}),
    "no dims": (RuntimeError, "got input of shape=[], need (N, C, *).", {"input": W[0]}),
    "weight shape": (RuntimeError, "got weight of shape=[3], need the input's channels=[6].", {"weight": W[:3]}),
    "weight dims": (
        RuntimeError,
        "got weight of shape=[2, 3], need the input's channels=[6].",
        {"weight": W.reshape(2, 3)},
    ),
    "bias shape": (RuntimeError, "got bias of shape=[3], need the input's channels=[6].", {"bias": W[:3]}),
    "weight dtype": (
        RuntimeError,
        "got weight of dtype=torch.float64 and input of dtype=torch.float32, need the input's"
        " dtype, or float32 with a bfloat16 or float16 input.",
        {"weight": W.double()},
    ),
    "bias dtype": (
        RuntimeError,
        "got bias of dtype=torch.bfloat16 and input of dtype=torch.float32",
        {"bias": W.bfloat16()},
    ),
    "integer input": (
        NotImplementedError,
        "got input of dtype=torch.int64, need float64, float32, bfloat16 or float16.",
        {"input": X.long()},
    ),
    "complex input": (
        NotImplementedError,
        "got input of dtype=torch.complex64",
        {"input": X.to(torch.complex64)},
    ),
    "weight on another device": (
        RuntimeError,
        "got weight on device=meta and input on device=cpu, need one device.",
        {"weight": W.to("meta")},
    ),
    "input not a tensor": (TypeError, "got input=[1.0], need a Tensor.", {"input": [1.0]}),
    "bias not a tensor": (TypeError, "got bias=1.0, need a Tensor.", {"bias": 1.0}),
    "eps not a number": (TypeError, "got eps='a', need a float.", {"eps": "a"}),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake(mistake: str) -> None:
    kind, text, change = MISTAKES[mistake]
    arguments: dict[str, Any] = {"input": X, "num_groups": 3, "weight": W, "bias": W, "eps": 1e-5}
    with pytest.raises(kind) as error:
        group_norm(**(arguments | change))
    assert str(error.value).startswith(f"group_norm: {text}")
    assert type(error.value) is kind


def _native(x: Any = X, n: Any = 2, c: Any = 6, l: Any = 4, group: Any = 3) -> Any:  # noqa: E741
    return native_group_norm(x, W, W, n, c, l, group, 1e-5)


def _backward(x: Any = X, n: Any = 2, c: Any = 6, l: Any = 4, group: Any = 3, **change: Any) -> Any:  # noqa: E741
    arguments: dict[str, Any] = {
        "grad_out": X, "input": x, "mean": STATISTICS, "rstd": STATISTICS, "weight": W,
        "N": n, "C": c, "HxW": l, "group": group, "output_mask": [True] * 3,
    }  # fmt: skip
    return native_group_norm_backward(**(arguments | change))


NATIVE_MISTAKES: dict[str, tuple[type[Exception], str, dict[str, Any]]] = {
    "another N": (
        RuntimeError,
        "got input of shape=[2, 6, 4] and N=3, C=6, HxW=4, need input to have N * C * HxW elements.",
        {"n": 3},
    ),
    "negative sizes": (RuntimeError, "got input of shape=[2, 6, 4] and N=-2, C=-6", {"n": -2, "c": -6}),
    "C not an int": (TypeError, "got C=6.0, need an int.", {"c": 6.0}),
    "groups": (RuntimeError, "got group=4 and input of shape=[2, 6, 4], need group > 0", {"group": 4}),
    "C that is not the weight's": (
        RuntimeError,
        "got weight of shape=[6], need the input's channels=[12].",
        {"n": 1, "c": 12},
    ),
    "input not a tensor": (TypeError, "got input=None, need a Tensor.", {"x": None}),
}


@pytest.mark.parametrize("mistake", NATIVE_MISTAKES)
@pytest.mark.parametrize(("name", "call"), [("native_group_norm", _native), ("native_group_norm_backward", _backward)])
def test_native_mistake(name: str, call: Callable[..., Any], mistake: str) -> None:
    kind, text, change = NATIVE_MISTAKES[mistake]
    with pytest.raises(kind) as error:
        call(**change)
    assert str(error.value).startswith(f"{name}: {text}")


BACKWARD_MISTAKES: dict[str, tuple[type[Exception], str, dict[str, Any]]] = {
    "grad_out shape": (
        RuntimeError,
        "got grad_out of shape=[6, 4], dtype=torch.float32, need the input's shape=[2, 6, 4], dtype=torch.float32.",
        {"grad_out": X[0]},
    ),
    "grad_out dtype": (RuntimeError, "got grad_out of shape=[2, 6, 4], dtype=torch.float64", {"grad_out": X.double()}),
    "grad_out not a tensor": (TypeError, "got grad_out=None, need a Tensor.", {"grad_out": None}),
    "mean shape": (
        RuntimeError,
        "got mean of shape=[6], dtype=torch.float32, need shape=[2, 3], dtype=torch.float32.",
        {"mean": STATISTICS.flatten()},
    ),
    "rstd dtype": (RuntimeError, "got rstd of shape=[2, 3], dtype=torch.float16", {"rstd": STATISTICS.half()}),
    "rstd device": (
        RuntimeError,
        "got rstd on device=meta and input on device=cpu, need one device.",
        {"rstd": STATISTICS.to("meta")},
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
    with pytest.raises(kind) as error:
        _backward(**change)
    assert str(error.value).startswith(f"native_group_norm_backward: {text}")


def test_eps_an_int() -> None:
    """An int is a number: the same bits as the float."""
    x = X.cumsum(-1)
    assert torch.equal(group_norm(x, 3, eps=1), group_norm(x, 3, eps=1.0))


@pytest.mark.parametrize("shape", [(2, 0, 3), (2, 4, 0), (0, 4, 3), (2, 0), (2, 4, 0, 5)])
@pytest.mark.parametrize("refuses", [False, True])
def test_an_empty_input_is_taken_where_torch_takes_it(
    shape: tuple[int, ...], refuses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions of torch differ; `refuses` is one that takes no sample without elements."""
    own = torch.group_norm

    def strict(x: torch.Tensor, groups: int) -> torch.Tensor:
        if 0 in x.shape[1:]:
            raise RuntimeError("Expected at least one channel and one position")
        return own(x, groups)

    refusal.cache_clear()
    if refuses:
        monkeypatch.setattr(torch, "group_norm", strict)
    x = torch.empty(shape)
    try:
        expected = torch.group_norm(x, 1)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            group_norm(x, 1)
    else:
        assert group_norm(x, 1).shape == expected.shape
    refusal.cache_clear()
