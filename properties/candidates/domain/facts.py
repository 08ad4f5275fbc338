"""What holds in every draw of the inputs, and is kept where their values become hostile ones.

Only exact facts are kept, such as numbers of which some are 0 and all others 1: a spec of binary labels says nothing of
others. That all numbers of a draw are positive may be chance, and is no fact here, nor that all are equal: a sign tells
only whether a fault shows within it, too.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

Tensor = torch.Tensor
#: The words for facts; those of an axis are followed by its number.
SUMS, UNIT, HALVES = "sums to 1", "of norm 1", "equal halves"
SYMMETRIC, DEFINITE, LOWER, UPPER = "symmetric", "positive definite", "lower triangular", "upper triangular"
#: Those of labels: the smaller of two numbers, of which the other is 1.
OF_TWO = {"0 or 1": 0.0, "-1 or 1": -1.0}
#: Those of matrices that are square, and remain so.
OF_SQUARES = (SYMMETRIC, DEFINITE, LOWER, UPPER)
WORDS = re.compile(rf"{'|'.join(OF_TWO)}|(?:{SUMS}|{UNIT}|{HALVES}) along \d+|{'|'.join(OF_SQUARES)}")
_RANGE = re.compile(r"in \[([^,\]]+), *([^,\]]+)\]")
#: The word for numbers that have one sign and are not 0, and that sign; that for those that are less than 1 besides.
SIGNS, SHARE = {"positive": 1.0, "negative": -1.0}, "between 0 and 1"
#: Fewer numbers, in all draws together, show no fact: some are all 0 or 1 by chance, or for a small example.
FEW = 16
#: So many numbers of a tensor are looked at; to look at all of a large one would take longer than to compute with it.
_SOME = 2**16


def find_facts(draws: Sequence[Tensor]) -> tuple[str, ...]:
    """The facts that hold of a floating tensor in every draw; none of few numbers, or of equal ones."""
    return tuple(facts_of(unlike(draws), _SOME)) if len(_numbers_of(draws)) else ()


def find_sign(draws: Sequence[Tensor]) -> tuple[str, ...]:
    """The sign of a floating tensor in every draw, and whether all are less than 1; nothing of few numbers."""
    values = _numbers_of(draws)
    signs = [word for word, sign in SIGNS.items() if len(values) and bool((sign * values > 0).all())]
    return (*signs, SHARE) if signs == ["positive"] and bool((values < 1).all()) else tuple(signs)


def _numbers_of(draws: Sequence[Tensor]) -> Tensor:
    """The numbers of unlike draws; none where they show nothing: few or equal ones, or what is no number."""
    values = torch.cat([_some(t).detach().reshape(-1).cpu().double() for t in unlike(draws)])
    some = len(values) >= FEW and bool(values.isfinite().all()) and len(values.unique()) > 1
    return values if some else values[:0]


def unlike(draws: Sequence[Tensor]) -> list[Tensor]:
    """The draws without those that are as an earlier one, as of an example whose numbers are written down."""
    return [t for n, t in enumerate(draws) if not any(torch.equal(t, other) for other in draws[:n])]


def facts_of(draws: Sequence[Tensor], most: int = sys.maxsize) -> Iterator[str]:
    """The facts that hold of all these values, whatever their number, or of some of each tensor: so many at most."""
    values = [_some(t, most).detach().cpu().double() for t in draws]
    shape = draws[0].shape
    for word, low in OF_TWO.items():
        if all(bool(((t == low) | (t == 1)).all()) for t in values):
            yield word
            return
    for d in range(len(shape)):
        # The divisor is a sum of n terms, of half types in float32, which is rounded, and so is each quotient.
        eps = torch.finfo(draws[0].dtype).eps
        near = shape[d] * min(eps, torch.finfo(torch.float32).eps) + 2 * eps
        rows = [_some(t, most, whole=d).detach().cpu().double() for t in draws]
        if near >= 1 or shape[d] == 1:  # So many numbers of so few digits have any sum.
            continue
        if all(bool((t >= 0).all()) and bool(((t.sum(d) - 1).abs() <= near).all()) for t in rows):
            yield f"{SUMS} along {d}"
        elif all(bool(((t.norm(dim=d) - 1).abs() <= near).all()) for t in rows):
            yield f"{UNIT} along {d}"
    last = len(shape) - 1
    if last >= 0 and shape[last] > 2:
        # As cosines of angles have them. What repeats one number, or one row, has them by being expanded.
        whole = [_some(t, most, whole=last).detach() for t in draws]
        if all(has_equal_halves(t, last) and bool((t != t[..., :1]).any()) for t in whole):
            yield f"{HALVES} along {last}"
    if len(shape) > 1 and shape[-1] == shape[-2] > 1:
        if all(torch.equal(t, t.mT) for t in values):
            yield SYMMETRIC
            if all(not torch.linalg.cholesky_ex(t).info.any() for t in values):
                yield DEFINITE
        for word, cut in ((LOWER, torch.tril), (UPPER, torch.triu)):
            if all(torch.equal(t, cut(t)) for t in values):
                yield word


def _some(tensor: Tensor, most: int = _SOME, whole: int = -1) -> Tensor:
    """At most so many elements of a tensor, at even distances; all of the axis `whole`.

    Axes of one extent are cut alike, so that a symmetric matrix remains one.
    """
    while tensor.numel() > most:
        longest = max((n for d, n in enumerate(tensor.shape) if d != whole), default=1)
        if longest == 1:
            break
        cut = (slice(None, None, 2 if n == longest and d != whole else 1) for d, n in enumerate(tensor.shape))
        tensor = tensor[tuple(cut)]
    return tensor


def find_ranges(takes: Callable[[Tensor], bool], original: Tensor, draws: Sequence[Tensor]) -> tuple[str, ...]:
    """The range of a tensor's draws outside of which numbers, in place of some given ones, are refused; or none."""
    sizes = 2 * original.abs() + 1
    signs = sizes * (-1) ** torch.arange(sizes.numel(), device=sizes.device).reshape(sizes.shape)
    if takes(signs):
        return ()
    ways = (0.0, math.inf, sizes), (0.0, 1.0, 1 / sizes), (-1.0, 1.0, 1 / signs)
    inside = [way for way in ways if all(bool(((t >= way[0]) & (t <= way[1])).all()) for t in draws)]
    return tuple(f"in [{low:g}, {high:g}]" for low, high, values in inside if takes(values))[:1]


def has_equal_halves(tensor: Tensor, axis: int) -> bool:
    """Whether a tensor has this axis, and both of its halves have the same numbers."""
    return axis < tensor.ndim and tensor.shape[axis] % 2 == 0 and torch.equal(*tensor.tensor_split(2, axis))


def can_hold(facts: Sequence[str], shape: Sequence[int]) -> bool:
    """Whether facts can hold of a shape: an axis of equal halves is even."""
    return not any(shape[int(fact.rpartition(" ")[2])] % 2 for fact in facts if fact.startswith(HALVES))


def range_of(fact: str) -> tuple[float, float] | None:
    """The ends of a declared range, "in [-20, 0]"; None of other facts."""
    match = _RANGE.fullmatch(fact)
    return None if match is None else (float(match[1]), float(match[2]))


def keep_facts(facts: Sequence[str], original: Tensor, values: Any, rng: Any) -> Any:
    """An array of values for a tensor, changed so that facts hold of it; `rng`: NumPy's generator."""
    for fact in facts:
        word, _, axis = fact.partition(" along ")
        with np.errstate(all="ignore"):
            values = _keep_fact(word, int(axis or 0), original, np.asarray(values, np.float64), rng)
    return values


def _keep_fact(word: str, axis: int, original: Tensor, values: Any, rng: Any) -> Any:
    if ends := range_of(word):
        low, high = ends
        if math.isinf(low) or math.isinf(high):  # mirrored at the other end
            values = low + np.abs(values - low) if math.isinf(high) else high - np.abs(values - high)
        else:
            values = np.where((values >= low) & (values <= high), values, low + np.abs(values) % 1 * (high - low))
        return np.where(np.isfinite(values), values, original.double().cpu().numpy())
    if word in SIGNS:  # NaN and infinity remain: they are wrong within a sign, too
        return SIGNS[word] * np.where(values == 0, 1.0, np.abs(values))
    if word == SHARE:
        shares = np.abs(values) % 1
        return np.where(shares > 0, shares, 0.5)  # also in place of NaN and of an infinity, which no such number is
    if word in OF_TWO:
        if not np.isfinite(values).all() or not values.any():
            return np.where(np.isfinite(values) & (OF_TWO[word] == 0), values, original.double().cpu().numpy())
        return np.where(rng.random(values.shape) < rng.choice([0.05, 0.5, 0.95]), 1.0, OF_TWO[word])
    if word in (SUMS, UNIT):
        sizes = np.abs(values) if word == SUMS else values
        whole = sizes.sum(axis, keepdims=True) if word == SUMS else np.linalg.norm(sizes, axis=axis, keepdims=True)
        return np.where(whole > 0, sizes / whole, original.double().cpu().numpy())
    if word == HALVES:
        half = np.split(values, [values.shape[axis] // 2, values.shape[axis] // 2 * 2], axis)
        return np.concatenate([half[0], half[0], half[2]], axis)
    if word in (LOWER, UPPER):
        return np.tril(values) if word == LOWER else np.triu(values)
    values = np.tril(values) + np.swapaxes(np.tril(values, -1), -1, -2)
    if word == SYMMETRIC:
        return values
    sums = 2 * np.abs(values).sum(-1, keepdims=True)  # what has more than half of each row on its diagonal is definite
    usable = (np.isfinite(sums) & (sums > 0)).all(-2, keepdims=True)
    return np.where(usable, np.where(np.eye(len(values.T)) > 0, sums, values), original.double().cpu().numpy())
