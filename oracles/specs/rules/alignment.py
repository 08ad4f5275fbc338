"""The loss of an unaligned sequence (connectionist temporal classification).

A. Graves et al., Connectionist temporal classification, ICML 2006. All alignments of the labels with the steps of the
input are added up, as logarithms, from the first step to the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ....reference.array import Array, attach
from .table import DECOMPOSED, RULES

#: torch's own operation returns a table whose shape hangs on the lengths, so that it cannot be traced without them.
_LIBRARY = torch.library.Library("opassay_specs", "FRAGMENT")
_LIBRARY.define("ctc_loss(Tensor x, Tensor labels, Tensor steps, Tensor lengths, int blank) -> Tensor")
_LIBRARY.impl("ctc_loss", lambda x, *rest: x.new_empty(x.shape[1] if x.dim() == 3 else ()), "Meta")
_OPERATION = torch.ops.opassay_specs.ctc_loss.default


def _traced(
    x: Any, labels: Any, steps: Any, lengths: Any, blank: int = 0, zero_infinity: bool = False
) -> tuple[Any, Any]:  # fmt: skip
    tensors = [t if isinstance(t, torch.Tensor) else torch.tensor(t) for t in (steps, lengths)]
    return _OPERATION(x, labels, *tensors, blank), x.new_empty((0,))


def _either(a: Any, has_a: Any, b: Any, has_b: Any) -> tuple[Any, Any]:
    """log(exp a + exp b) where there are both, else the one that is there; and where there is any."""
    both = has_a & has_b
    joined = np.logaddexp(np.where(both, a, 0.0), np.where(both, b, 0.0))
    return np.where(both, joined, np.where(has_a, a, b)), has_a | has_b


def _behind(x: Any, has: Any, by: int) -> tuple[Any, Any]:
    """States so many places before each, and where there is one."""
    return np.concatenate([np.zeros(by), x[:-by]]), np.concatenate([np.zeros(by, dtype=bool), has[:-by]])


def _one(x: Any, labels: Sequence[int], blank: int) -> Any:
    """The loss of one sequence: x (steps, classes) are logarithms, and labels have a blank before and after each."""
    if not np.shape(x)[0]:
        return np.float64(0.0 if not len(labels) else np.inf)
    states = np.full(2 * len(labels) + 1, blank)
    states[1::2] = labels
    # From label to label a blank may be left out, but not between two that are equal.
    skips = np.zeros(states.shape, dtype=bool)
    skips[3::2] = states[3::2] != states[1:-2:2]
    rows = x[:, states]
    total, has = rows[0], np.arange(len(states)) < 2
    for t in range(1, np.shape(x)[0]):
        before, had = total, has
        if len(states) > 1:
            total, has = _either(total, has, *_behind(before, had, 1))
        if len(states) > 2:
            skipped, there = _behind(before, had, 2)
            total, has = _either(total, has, skipped, there & skips)
        total = np.where(has, total + rows[t], 0.0)
    ends = slice(-2, None) if len(states) > 1 else slice(-1, None)
    last, there = total[ends], has[ends]
    if not there.any():
        return np.float64(np.inf)  # There are fewer steps than the labels need.
    if there.all() and len(there) == 2:
        return -np.logaddexp(last[0], last[1])
    return -last[int(np.flatnonzero(there)[-1])]


def _alignments(x: Any, labels: Any, steps: Any, lengths: Any, blank: int) -> Any:
    """ctc_loss of every sequence.

    Args:
        x: (steps, N, classes), or (steps, classes): logarithms of probabilities. blank: a class.
        labels: (N, length), or all one after another. steps, lengths: how many of both each sequence has.
    """
    batch = x if np.ndim(x) == 3 else np.expand_dims(x, 1)
    steps, lengths = np.ravel(np.asarray(steps)), np.ravel(np.asarray(lengths))
    listed = np.asarray(labels)
    if listed.ndim == 2 or np.ndim(x) == 2:
        rows = [row[:n] for row, n in zip(np.atleast_2d(listed), lengths, strict=True)]
    else:
        ends = np.cumsum(lengths)
        rows = [listed[end - n : end] for end, n in zip(ends, lengths, strict=True)]
    losses: list[Any] = []
    for i, (count, row) in enumerate(zip(steps, rows, strict=True)):
        part = batch[: int(count), i]
        loss = _one(part, row, blank)
        if isinstance(loss, Array):
            # torch takes the derivative as it is in the logits of which x is the log-softmax; there both are the same.
            loss = attach(loss, loss + np.sum(np.exp(part)), kept=True)
        losses.append(loss)
    lifted: list[Any] = [
        loss if isinstance(loss, Array) or not isinstance(batch, Array) else batch.lift(loss) for loss in losses
    ]
    found: Any = np.stack(lifted)
    return found if np.ndim(x) == 3 else np.reshape(found, ())


DECOMPOSED[torch.ops.aten._ctc_loss.default] = _traced
DECOMPOSED[torch.ops.aten._ctc_loss.Tensor] = _traced
RULES[_OPERATION] = _alignments
