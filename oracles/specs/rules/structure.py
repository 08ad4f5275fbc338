"""Aten operations that move elements, or make constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .table import RULES, Rule, enter

aten = torch.ops.aten


def _expand(x: Any, shape: Sequence[int], **kwargs: Any) -> Any:
    padded = (1,) * (len(shape) - np.ndim(x)) + np.shape(x)
    wanted = tuple(n if m == -1 else m for n, m in zip(padded, shape, strict=True))
    return np.broadcast_to(np.reshape(x, padded), wanted)


def _slice(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    return x[(slice(None),) * (dim % np.ndim(x)) + (slice(start, end, step),)]


def _select(x: Any, dim: int, index: int) -> Any:
    return x[(slice(None),) * (dim % np.ndim(x)) + (index,)]


def _squeeze(x: Any, dim: Any = None) -> Any:
    dims = range(np.ndim(x)) if dim is None else [dim] if isinstance(dim, int) else dim
    axes = tuple(d for d in dims if np.shape(x)[d] == 1)
    return np.squeeze(x, axis=axes) if axes else x


def _filled_with(value: float) -> Rule:
    return lambda shape, **kwargs: np.full(tuple(shape), value)


enter(lambda x, shape: np.reshape(x, tuple(shape)), aten.view.default, aten.reshape.default, aten._unsafe_view.default)
enter(_expand, aten.expand.default, aten.expand_copy.default)
enter(_squeeze, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims)
RULES.update(
    {
        aten.ones_like.default: lambda x, **kwargs: np.ones(np.shape(x)),
        aten.zeros_like.default: lambda x, **kwargs: np.zeros(np.shape(x)),
        aten.full_like.default: lambda x, value, **kwargs: np.full(np.shape(x), float(value)),
        aten.full.default: lambda shape, value, **kwargs: np.full(tuple(shape), float(value)),
        aten.ones.default: _filled_with(1.0),
        aten.zeros.default: _filled_with(0.0),
        aten.scalar_tensor.default: lambda value, **kwargs: np.float64(value),
        aten.permute.default: lambda x, dims: np.transpose(x, tuple(dims)),
        aten.transpose.int: np.swapaxes,
        aten.t.default: np.transpose,
        aten.unsqueeze.default: lambda x, dim: np.expand_dims(x, dim),
        aten.slice.Tensor: _slice,
        aten.select.int: _select,
        aten.cat.default: lambda tensors, dim=0: np.concatenate(tensors, axis=dim),
        aten.stack.default: lambda tensors, dim=0: np.stack(tensors, axis=dim),
    }
)
