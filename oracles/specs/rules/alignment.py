"""The loss of an unaligned sequence (connectionist temporal classification).

A. Graves et al., Connectionist temporal classification, ICML 2006. All alignments of the labels with the steps of the
input are added up, as logarithms, from the first step to the last.

A state is one of the labels, or one of the blanks before, between and after them: 2 labels + 1 in all. Beside every
logarithm stands whether it is one of anything at all (`has`, `there`). The logarithm of nothing would be −∞, and where
two of those are added, the slopes exp(−∞ − −∞) are NaN; so it is 0 here, which nobody reads.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch

from ....reference.algorithms import Algorithm, Reverse
from ....reference.array import Array, among, attach
from .table import DECOMPOSED, LIBRARY, RULES, enter

#: torch's own operation returns a table whose shape depends on the lengths, so that it cannot be traced without them.
LIBRARY.define("ctc_loss(Tensor x, Tensor labels, Tensor steps, Tensor lengths, int blank, bool zeroed) -> Tensor")
LIBRARY.impl("ctc_loss", lambda x, *rest: x.new_empty(x.shape[1] if x.dim() == 3 else ()), "Meta")
_OPERATION = torch.ops.opassay_specs.ctc_loss.default


def _replace_ctc_loss(
    x: Any, labels: Any, steps: Any, lengths: Any, blank: int = 0, zero_infinity: bool = False
) -> tuple[Any, Any]:  # fmt: skip
    tensors = [t if isinstance(t, torch.Tensor) else torch.tensor(t) for t in (steps, lengths)]
    return _OPERATION(x, labels, *tensors, blank, zero_infinity), x.new_empty((0,))


def _add_exponentials(a: Any, has_a: Any, b: Any, has_b: Any) -> tuple[Any, Any]:
    """log(exp a + exp b) where both exist, else the one that exists; and where at least one does."""
    both = has_a & has_b
    joined = np.logaddexp(np.where(both, a, 0.0), np.where(both, b, 0.0))
    return np.where(both, joined, np.where(has_a, a, b)), has_a | has_b


def _shift_states(x: Any, has: Any, by: int) -> tuple[Any, Any]:
    """For every state what belongs to the one `by` places before it, and where there is such a state.

    Args:
        x, has: (states,), the logarithms of one step and where there are any. by: at least 1.
    """
    return np.concatenate([np.zeros(by), x[:-by]]), np.concatenate([np.zeros(by, dtype=bool), has[:-by]])


def _states_of(labels: Any, blank: int) -> tuple[Any, Any]:
    """The labels with a blank before, between and after them; and which may follow the label before without a blank."""
    states = np.full(2 * len(labels) + 1, blank)
    states[1::2] = labels
    # Between two equal labels a blank must stand.
    skips = np.zeros(states.shape, dtype=bool)
    skips[3::2] = states[3::2] != states[1:-2:2]
    return states, skips


def _are_enough(steps: int, labels: Any) -> bool:
    """Whether this number of steps is enough for an alignment with the labels."""
    return steps > 0 and steps >= len(labels) + int(np.count_nonzero(labels[1:] == labels[:-1]))


def _sum_beginnings(x: Any, labels: Any, blank: int) -> tuple[list[Any], list[Any]]:
    """Logarithms of the probabilities of all beginnings of alignments that end in a state at a step, added up.

    Args:
        x: (steps, classes) logarithms of probabilities, at least one step. labels: (length,) classes. blank: a class.

    Returns:
        (for every step (states,) logarithms, this step's own among their factors; for every step where there is any).
    """
    states, skips = _states_of(labels, blank)
    rows = x[:, states]
    totals, there = [rows[0]], [np.arange(len(states)) < 2]
    for t in range(1, np.shape(x)[0]):
        before, had = total, has = totals[-1], there[-1]
        if len(states) > 1:
            total, has = _add_exponentials(total, has, *_shift_states(before, had, 1))
        if len(states) > 2:
            skipped, open_ = _shift_states(before, had, 2)
            total, has = _add_exponentials(total, has, skipped, open_ & skips)
        totals.append(np.where(has, total + rows[t], 0.0))
        there.append(has)
    return totals, there


def _loss_at(last: Any, there: Any) -> Any:
    """The loss by the states at the last step: an alignment ends with the last label, or with the blank behind it."""
    if len(there) > 1 and there[-2:].all():
        return -np.logaddexp(last[-2], last[-1])
    return -last[int(np.flatnonzero(there)[-1])]


def _loss_of_one(x: Any, labels: Any, blank: int) -> Any:
    """The loss of one sequence: x (steps, classes) are logarithms."""
    totals, there = _sum_beginnings(x, labels, blank)
    loss = _loss_at(totals[-1], there[-1])
    # torch takes the derivative as it is in the logits of which x is the log-softmax; there both are the same.
    return attach(loss, loss + np.sum(np.exp(x)), always=True)


def _cotangent_of_one(x: Any, g: Any, labels: Any, blank: int) -> Any:
    """g (exp x − exp(log Σ αβ + loss − x)), where the sum is over the states of a class, as torch has it.

    α are all beginnings that end in a state, and β all ends that begin there, both with x. These logarithms are as
    large as the loss, and what they are rounded by is a share of the result.
    """
    totals, there = _sum_beginnings(x, labels, blank)
    ends, their = _sum_beginnings(np.flip(x, 0), labels[::-1], blank)
    loss = _loss_at(totals[-1], there[-1])
    both = np.stack(totals) + np.flip(np.stack(ends), (0, 1))
    open_ = np.stack(there) & np.flip(np.stack(their), (0, 1))
    states, _ = _states_of(labels, blank)
    classes = []
    for number in range(np.shape(x)[1]):
        slope = np.exp(x[:, number])
        own = np.flatnonzero(states == number)
        if len(own):
            total, has = both[:, own[0]], open_[:, own[0]]
            for state in own[1:]:
                total, has = _add_exponentials(total, has, both[:, state], open_[:, state])
            slope = slope - np.where(has, np.exp(np.where(has, total + loss - x[:, number], 0.0)), 0.0)
        classes.append(slope * g)
    return np.stack(classes, 1)


def _impossible(x: Any, zeroed: bool) -> Any:
    """The loss of labels that are too many for the steps, and its gradient in torch: NaN, unless it is to be zero."""
    if zeroed or not np.size(x):
        return np.float64(np.inf)
    return attach(np.full((), np.inf), np.sum(x) * np.nan, always=True)


def _ctc_loss(x: Any, labels: Any, steps: Any, lengths: Any, blank: int, zeroed: bool) -> Any:
    """ctc_loss of every sequence.

    Args:
        x: (steps, N, classes), or (steps, classes): logarithms of probabilities. blank: a class.
        labels: (N, length), or all one after another. steps, lengths: how many of both each sequence has.
        zeroed: whether the caller makes zeros of infinite losses.
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
        if not _are_enough(int(count), row):
            losses.append(_impossible(part, zeroed) if len(row) or count else np.float64(0.0))
            continue
        own = {"labels": row, "blank": blank}
        ways = [Algorithm(functools.partial(_loss_of_one, **own), "")]
        ways.append(Algorithm(Reverse(functools.partial(_cotangent_of_one, **own)), ""))
        losses.append(among(ways, part))
    lifted: list[Any] = [
        loss if isinstance(loss, Array) or not isinstance(batch, Array) else batch.lift(loss) for loss in losses
    ]
    vector: Any = np.stack(lifted)
    return vector if np.ndim(x) == 3 else np.reshape(vector, ())


enter({"_ctc_loss _ctc_loss.Tensor": _replace_ctc_loss}, DECOMPOSED)
RULES[_OPERATION] = _ctc_loss
