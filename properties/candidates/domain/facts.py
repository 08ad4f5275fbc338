"""What holds in every draw of the inputs, and is kept where their values become hostile ones.

Only exact facts are kept, such as numbers of which some are 0 and all others 1: a spec of binary labels says nothing of
others. That all numbers of a draw are positive may be chance, and is no fact here, nor that all are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

Tensor = torch.Tensor
#: The words for facts; those of an axis are followed by its number.
BINARY, WHOLE, SUMS, UNIT, SYMMETRIC, LOWER = (
    "0 or 1",
    "whole",
    "sums to 1",
    "of norm 1",
    "symmetric",
    "lower triangular",
)
#: Roundings that a sum or a norm may be away from 1, in units of the last place for each root of the count.
_ROUNDINGS = 16.0
#: Fewer numbers, in all draws together, show no fact: some are all 0 or 1 by chance, or for a small example.
_FEW = 16


def find_facts(draws: Sequence[Tensor]) -> tuple[str, ...]:
    """The facts that hold of a floating tensor in every draw."""
    values = [t.detach().cpu().double() for t in draws]
    together = torch.cat([t.reshape(-1) for t in values])
    if len(together) < _FEW or not bool(together.isfinite().all()) or len(together.unique()) < 2:
        return ()
    if bool(((together == 0) | (together == 1)).all()):
        return (BINARY,)
    facts = []
    close = _ROUNDINGS * torch.finfo(draws[0].dtype).eps
    for d in range(values[0].ndim):
        count = values[0].shape[d]
        if count < 2:
            continue
        near = close * count**0.5
        if all(bool((t >= 0).all()) and bool(((t.sum(d) - 1).abs() <= near).all()) for t in values):
            facts.append(f"{SUMS} along {d}")
        elif all(bool(((t.norm(dim=d) - 1).abs() <= near).all()) for t in values):
            facts.append(f"{UNIT} along {d}")
    if values[0].ndim > 1 and values[0].shape[-1] == values[0].shape[-2] > 1:
        if all(torch.equal(t, t.mT) for t in values):
            facts.append(SYMMETRIC)
        elif all(torch.equal(t, t.tril()) for t in values):
            facts.append(LOWER)
    return tuple(facts)


def keep_facts(facts: Sequence[str], original: Tensor, values: Any, rng: Any) -> Any:
    """Values of a tensor, changed so that facts hold of them.

    Args:
        facts: of the tensor. original: with its given values. values: an array of its shape. rng: NumPy's generator.
    """
    for fact in facts:
        word, _, axis = fact.partition(" along ")
        with np.errstate(all="ignore"):
            values = _keep_fact(word, int(axis or 0), original, np.asarray(values, np.float64), rng)
    return values


def _keep_fact(word: str, axis: int, original: Tensor, values: Any, rng: Any) -> Any:
    if word == BINARY:
        if not np.isfinite(values).all() or not values.any():
            return np.where(np.isfinite(values), values, original.double().cpu().numpy())
        return (rng.random(values.shape) < rng.choice([0.05, 0.5, 0.95])).astype(np.float64)
    if word in (SUMS, UNIT):
        sizes = np.abs(values) if word == SUMS else values
        whole = sizes.sum(axis, keepdims=True) if word == SUMS else np.linalg.norm(sizes, axis=axis, keepdims=True)
        return np.where(whole > 0, sizes / whole, original.double().cpu().numpy())
    lower = np.tril(values)
    return lower if word == LOWER else lower + np.swapaxes(np.tril(values, -1), -1, -2)
