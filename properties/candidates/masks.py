"""Operands that are masked by -inf, as the scores of padding are: runs of it, where a spec takes it for a mask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from .arguments import CallArguments, Tensor
from .inputs import as_tensor


def axes_of(arguments: CallArguments, place: int) -> list[int]:
    """The last two axes along which an argument may be masked, the last one first."""
    tensor = arguments.tensors[place]
    return [k for k in reversed(range(tensor.ndim)) if tensor.shape[k] > 1][:2] if tensor.is_floating_point() else []


def mask_runs(arguments: CallArguments, place: int, axis: int, rng: Any) -> CallArguments:
    """The arguments with -inf in one tensor, as masks put it there: along an axis a stretch alone stays as it is.

    Single infinities never fill a block, so that a sum kept over blocks never meets a first one that is masked whole.
    Of the first line the last element stays, of the second the first one; of others a stretch that is drawn.

    Args:
        place: of the tensor. axis: of it, with two elements at least. rng: what draws.
    """
    tensor = arguments.tensors[place]
    values = np.moveaxis(tensor.detach().cpu().double().numpy().copy(), axis, -1)
    size, lines = values.shape[-1], values.shape[:-1]
    low = rng.integers(size, size=lines)
    high = np.where(rng.random(lines) < 0.5, low + 1, rng.integers(low, size) + 1)
    low.reshape(-1)[:1], high.reshape(-1)[:2] = size - 1, ([size, 1] if high.size > 1 else size)
    low.reshape(-1)[1:2] = 0
    at = np.arange(size)
    values[(at < low[..., None]) | (at >= high[..., None])] = -np.inf
    tensors = list(arguments.tensors)
    tensors[place] = as_tensor(tensor, np.moveaxis(values, -1, axis))
    return arguments.with_tensors(tensors)


class _Infinities(torch.fx.Interpreter):
    """Runs a spec, and says whether some intermediate is NaN or +inf."""

    strays = False

    def run_node(self, n: torch.fx.Node) -> Any:
        result = super().run_node(n)
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
                wide = leaf.detach().double()
                self.strays |= bool((wide.isnan() | wide.isposinf()).any())
        return result


def takes_masks(graph: torch.fx.GraphModule, operands: Sequence[Tensor], masks: Sequence[Tensor]) -> bool:
    """Whether -inf in an operand is a mask to a spec: results change to numbers, and no NaN or +inf is on the way.

    Where it is multiplied, or is the largest of absolute values, an evaluation in another order has other limits.

    Args:
        graph: of a spec. operands: numbers for it. masks: the same, one of them with -inf.
    """
    capture = _Infinities(graph)
    with torch.no_grad():
        try:
            after = capture.run(*masks)
        except NotImplementedError:  # What a trace has in place of some functions, as of CTC, is read and never run.
            return False
        if capture.strays:
            return False
        before = torch.fx.Interpreter(graph).run(*operands)
    pairs = zip(_leaves(before), _leaves(after), strict=True)
    return any(bool((b.isfinite() & (a != b)).any()) for a, b in pairs if a.shape == b.shape)


def _leaves(result: Any) -> Iterator[Tensor]:
    return (leaf.detach().double() for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor))
