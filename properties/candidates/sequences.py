"""Integers that a spec reads as offsets, lengths, routes or page tables, in another order in which they still are such.

Elements of each alone must not change places then: offsets would not rise any more, and lengths would be those of other
rows of a page table. So the sequences of a batch change places: with their lengths, rows and stretches of elements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .arguments import Tensor


def reorder_sequences(tensors: Sequence[Tensor], rng: Any) -> list[Tensor]:
    """The tensors of integers and truth values with the sequences of the batch in another order; others as they are.

    Args:
        tensors: of one call. rng: NumPy's generator, which draws the order.
    """
    offsets = [t.tolist() for t in tensors if _are_offsets(t)]
    count = len(offsets[0]) - 1 if offsets else _count_of_rows(tensors)
    order = rng.permutation(count)
    offsets = [each for each in offsets if len(each) == count + 1]
    return [_reordered(t, order, offsets) for t in tensors]


def _are_offsets(tensor: Tensor) -> bool:
    """Whether a tensor says where sequences begin and end: it rises from 0."""
    if tensor.is_floating_point() or tensor.dtype == torch.bool or tensor.ndim != 1 or len(tensor) < 2:
        return False
    return int(tensor[0]) == 0 and int(tensor[-1]) > 0 and bool((tensor[1:] >= tensor[:-1]).all())


def _count_of_rows(tensors: Sequence[Tensor]) -> int:
    """How many rows most tensors of integers have."""
    counts = Counter(len(t) for t in tensors if t.ndim and not t.is_floating_point())
    return max(counts, key=lambda count: counts[count], default=0)


def _reordered(tensor: Tensor, order: Any, offsets: Sequence[list[int]]) -> Tensor:
    if tensor.is_floating_point() or not tensor.ndim:
        return tensor
    if _are_offsets(tensor) and len(tensor) == len(order) + 1:
        lengths = np.diff(tensor.tolist())[order]
        return torch.tensor([0, *np.cumsum(lengths)]).to(tensor.device, tensor.dtype)
    if len(tensor) == len(order):
        return tensor[torch.from_numpy(order).to(tensor.device)]
    ends = next((each for each in offsets if each[-1] == len(tensor)), None)
    if ends is None:
        return tensor
    return torch.cat([tensor[ends[i] : ends[i + 1]] for i in order])
