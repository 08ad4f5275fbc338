"""Calls of other ops, forward and backward, between two calls of the op that is judged.

An op may share memory with another one: a workspace, a cache of constants, a setting that both of them change. So a
check that asks whether an op's result depends on earlier calls makes calls of other ops, too.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from ...reference.distributions import has_part
from ..catalog import CATALOG
from ..catalog.loading import load_op

#: The shape of the tensor that every op is called with: samples, channels, positions. The first two are equal, because
#: `trace` takes them as a matrix.
_SHAPE = (4, 4, 6)
_SEED = 1


def examples() -> list[Callable[[torch.Tensor], torch.Tensor]]:
    """The calls that declarations of the catalog give as an example, where it is installed, and one of torch's."""
    names = CATALOG if has_part("ops") else ()
    return [*(call for name in names if (call := load_op(name).production.example) is not None), torch.tanh]


def calls(dtype: str, device: str) -> Callable[[], None]:
    """A function that calls ops of this package and of torch in a dtype on a device, and differentiates them."""
    numbers = np.random.default_rng(_SEED).standard_normal(_SHAPE)
    ops = examples()
    values = torch.from_numpy(numbers).to(device, getattr(torch, dtype))

    def run() -> None:
        x = values.clone().requires_grad_()
        for op in ops:
            torch.autograd.grad(op(x).sum(), x)

    return run
