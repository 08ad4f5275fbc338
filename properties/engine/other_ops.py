"""Calls of other ops, forward and backward, between two calls of the op that is judged.

An op may share memory with another one: a workspace, a cache of constants, a setting that both of them change. So a
check that asks whether an op's result depends on earlier calls makes calls of other ops, too.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ... import impl

#: Of the tensor that every op is called with: samples, channels, positions; and two of equal extents, for `trace`.
_SHAPE = (4, 4, 6)
_SEED = 1


def _normalised_by_batch(x: Tensor) -> Tensor:
    statistics = x.detach().new_zeros(x.shape[1]), x.detach().new_ones(x.shape[1])
    return impl.batch_norm(x, *statistics, training=True)


def _classified(x: Tensor) -> Tensor:
    rows = x.flatten(1)
    return impl.cross_entropy(rows, torch.arange(rows.shape[0], device=x.device))


_OPS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda x: impl.layer_norm(x, x.shape[-1:]),
    lambda x: impl.group_norm(x, 2),
    _normalised_by_batch,
    lambda x: impl.softmax(x, -1),
    lambda x: impl.log_softmax(x, 1),
    impl.log_sigmoid,
    _classified,
    lambda x: impl.trace(x[:, :, 0]),
    torch.tanh,
)


def calls(dtype: str, device: str) -> Callable[[], None]:
    """A function that calls ops of this package and of torch, and differentiates them.

    Args:
        dtype: name of the floating dtype. device: "cpu" or "cuda".
    """
    drawn = np.random.default_rng(_SEED).standard_normal(_SHAPE)
    values = torch.from_numpy(drawn).to(device, getattr(torch, dtype))

    def run() -> None:
        x = values.clone().requires_grad_()
        for op in _OPS:
            torch.autograd.grad(op(x).sum(), x)

    return run
