"""torch's own operations, each computed in float64 and rounded once: an evaluation that every contract allows.

It shares no line with opassay's readings. Where it leaves a ball, the ball is too narrow, whatever torch's kernels do;
where it stays inside and torch does not, what torch loses is lost inside a kernel.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


class Stepping(TorchDispatchMode):
    """Operations under it are computed in float64, and their results stored in the dtypes that they have.

    An operation that writes its arguments, or that float64 does not have, is left as it is. So are those of autograd's
    backward, which come here as well.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        stored = func(*args, **kwargs)
        floats = [t for t in pytree.tree_leaves(stored) if isinstance(t, Tensor) and t.is_floating_point()]
        if func._schema.is_mutable or not floats or any(ret.alias_info for ret in func._schema.returns):
            return stored
        try:
            exact = func(*pytree.tree_map(_double, args), **pytree.tree_map(_double, kwargs))
        except (RuntimeError, NotImplementedError):
            return stored
        return pytree.tree_map(_rounded, stored, exact)


def _double(leaf: Any) -> Any:
    if isinstance(leaf, Tensor) and leaf.is_floating_point():
        return leaf.double()
    # An operation that names a dtype of its result names one of the dtypes that are replaced here.
    return torch.float64 if isinstance(leaf, torch.dtype) and leaf.is_floating_point else leaf


def _rounded(stored: Any, exact: Any) -> Any:
    moves = isinstance(stored, Tensor) and stored.is_floating_point() and stored.shape == exact.shape
    return exact.to(stored.dtype) if moves else stored
