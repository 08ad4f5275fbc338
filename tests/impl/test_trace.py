"""Trace: what the cells do not ask."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import jacfwd, jacrev, vmap

from opassay.impl import trace

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize(
    ("operands", "kind", "text"),
    [
        (torch.ones(3), RuntimeError, "got input of shape=[3], need two dims."),
        (torch.ones(2, 3, 4), RuntimeError, "got input of shape=[2, 3, 4], need two dims."),
        (torch.tensor(1.0), RuntimeError, "got input of shape=[], need two dims."),
        (torch.ones(2, 2, dtype=torch.int64), NotImplementedError, "got input of dtype=torch.int64, need float64"),
        ([[1.0]], TypeError, "got input=[[1.0]], need a Tensor."),
    ],
)
def test_mistake(operands: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as error:
        trace(operands)
    assert str(error.value).startswith(f"trace: {text}")
    assert type(error.value) is kind


def _views() -> dict[str, Tensor]:
    base = torch.arange(48.0).reshape(6, 8)
    return {
        "whole": base,
        "transposed": base.T,
        "stepped": base[::2, 1::3],
        "expanded row": base[:1].expand(5, 8),
        "expanded column": base[:, :1].expand(6, 5),
        "one element everywhere": base[2, 3].expand(4, 4),
        "overlapping": base.as_strided((4, 5), (2, 3), 1),
        "one row": base[:1],
        "one column": base[:, :1],
    }


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", _views())
def test_any_strides(name: str, dtype: torch.dtype) -> None:
    """Integers, so that sums are exact."""
    x = _views()[name].to(dtype)  # keeps the strides in float32
    assert trace(x).item() == float(torch.tensor(sum(x[i, i].item() for i in range(min(x.shape))), dtype=dtype))


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_no_elements(shape: tuple[int, int]) -> None:
    x = torch.ones(shape, requires_grad=True)
    out = trace(x)
    assert out.item() == 0.0
    assert torch.autograd.grad(out, x)[0].shape == shape


@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (4, 2), (1, 3)])
def test_the_jacobian_is_the_identity(shape: tuple[int, int]) -> None:
    x = torch.randn(shape)
    for jacobian in (jacrev, jacfwd):
        assert torch.equal(jacobian(trace)(x), torch.eye(*shape))


def test_nothing_is_kept_for_backward() -> None:
    tensors: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: tensors.append(t), lambda t: t):
        trace(torch.ones(3, 3, requires_grad=True))
    assert tensors == []


@pytest.mark.parametrize("dtype", DTYPES)
def test_nested_vmap(dtype: torch.dtype) -> None:
    x = torch.arange(120.0).reshape(2, 3, 4, 5).to(dtype)
    out = vmap(vmap(trace), 1)(x)
    assert out.dtype == dtype
    assert torch.equal(out, torch.stack([torch.stack([trace(x[i, j]) for i in range(2)]) for j in range(3)]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_sums_are_rounded_once(dtype: torch.dtype) -> None:
    """256 and 2048 swallow ones in bfloat16 and float16: all of them together they do not."""
    big = 256.0 if dtype == torch.bfloat16 else 2048.0
    x = torch.diag(torch.tensor([big] + [1.0] * 16)).to(dtype)
    assert trace(x).item() == big + 16
