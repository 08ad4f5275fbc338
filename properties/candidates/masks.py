"""Operands that mask others, as padding is masked: runs of -inf, or of 0 and 1, where a spec takes them for a mask.

Single infinities never fill a block, and masks that are drawn element by element do not either, so that a sum kept over
blocks never meets a first one that is masked whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from .arguments import CallArguments, Tensor

#: (tensor whose last axis is masked, what draws) -> where a stretch of each line begins, and what lies behind it.
_Pattern = Callable[[Any, Any], tuple[Any, Any]]


def fillers_of(tensor: Tensor) -> list[float]:
    """What masks an element of a tensor: -inf, or one of two values where it has 0 and 1 alone."""
    if tensor.is_floating_point():
        return [-np.inf]
    return [0.0, 1.0] if bool(((tensor == 0) | (tensor == 1)).all()) else []


def axes_of(tensor: Tensor) -> list[int]:
    """The last two axes along which a tensor may be masked, the last one first."""
    return [k for k in reversed(range(tensor.ndim)) if tensor.shape[k] > 1][:2]


def mask_runs(
    arguments: CallArguments, place: int, axis: int, rng: Any, filler: float = -np.inf, pattern: int = 0
) -> CallArguments:
    """The arguments with one tensor masked: along an axis a stretch of each line alone is not.

    Args:
        place: of the tensor. axis: of it, with two elements at least. rng: what draws.
        filler: one of `fillers_of`. pattern: the number of one of `PATTERNS`.
    """
    tensor = arguments.tensors[place]
    values = np.moveaxis(tensor.detach().cpu().double().numpy().copy(), axis, -1)
    if np.isinf(filler):
        finite = values[np.isfinite(values)]
        values[~np.isfinite(values)] = rng.choice(finite) if finite.size else 0.0
    else:
        values[...] = 1.0 - filler
    low, high = PATTERNS[pattern](values, rng)
    at = np.arange(values.shape[-1])
    values[(at < low[..., None]) | (at >= high[..., None])] = filler
    tensors = list(arguments.tensors)
    tensors[place] = torch.from_numpy(np.moveaxis(values, -1, axis)).to(tensor.device, tensor.dtype)
    return arguments.with_tensors(tensors)


def _draw_stretches(values: Any, rng: Any) -> tuple[Any, Any]:
    """Of the first line the last element stays, of the second the first one; of others a stretch that is drawn."""
    size, lines = values.shape[-1], values.shape[:-1]
    low = rng.integers(size, size=lines)
    high = np.where(rng.random(lines) < 0.5, low + 1, rng.integers(low, size) + 1)
    low.reshape(-1)[:1], high.reshape(-1)[:2] = size - 1, ([size, 1] if high.size > 1 else size)
    low.reshape(-1)[1:2] = 0
    return low, high


def _follow_diagonal(values: Any, rng: Any) -> tuple[Any, Any]:
    """The element of each line's own number stays, which a spec that masks what is later does not mask besides."""
    own = np.arange(values.shape[-2]) if values.ndim > 1 else 0
    low = np.broadcast_to(own, values.shape[:-1]) % values.shape[-1]
    return low, low + 1


PATTERNS: tuple[_Pattern, ...] = (_draw_stretches, _follow_diagonal)


class _Infinities(torch.fx.Interpreter):
    """Runs a spec, and says whether some intermediate is NaN or +inf, and whether some is -inf."""

    strays = hides = False

    def run_node(self, n: torch.fx.Node) -> Any:
        result = super().run_node(n)
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
                wide = leaf.detach().double()
                self.strays |= bool((wide.isnan() | wide.isposinf()).any())
                self.hides |= bool(wide.isneginf().any())
        return result


def takes_masks(graph: torch.fx.GraphModule, operands: Sequence[Tensor], masks: Sequence[Tensor]) -> bool:
    """Whether an operand is a mask to a spec: results change to numbers, and -inf but no NaN or +inf is on the way.

    Where it is multiplied, or is the largest of absolute values, an evaluation in another order has other limits.

    Args:
        graph: of a spec. operands: numbers for it. masks: the same, one of them masked.
    """
    capture = _Infinities(graph)
    with torch.no_grad():
        try:
            after = capture.run(*masks)
        except NotImplementedError:  # What a trace has in place of some functions, as of CTC, is read and never run.
            return False
        if capture.strays or not capture.hides:
            return False
        before = torch.fx.Interpreter(graph).run(*operands)
    pairs = zip(_leaves(before), _leaves(after), strict=True)
    return any(bool((b.isfinite() & (a != b)).any()) for a, b in pairs if a.shape == b.shape)


def _leaves(result: Any) -> Iterator[Tensor]:
    return (leaf.detach().double() for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor))
