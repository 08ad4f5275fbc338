"""Relations: two ways to one result, whose bits must be equal; and those of the rows of a batch.

A relation is a pair of programs over a function of arguments, so that the candidate and what is right can both run it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from ..oracles.op.bits import different
from ..oracles.op.declaration import Tensor, is_float, to_array
from ..oracles.specs.storage import format_of
from ..reference.formats import ulp_array

#: With what the names of gradients begin, and of arguments that a call has changed.
GRADIENT, WRITTEN = "gradient of ", "written "
#: The largest number by which the integers of rows are divided.
_LONGEST = 2048
#: The leaves of the arguments of a call; and what a call gives by name: outputs, and gradients for cotangents.
Leaves = Sequence[Any]
Results = dict[str, Tensor]


class Ask(Protocol):
    """A function of arguments, which may be told how it is called."""

    def __call__(self, leaves: Leaves, cotangents: Sequence[Tensor] = (), **how: Any) -> Results: ...


Program = Callable[[Ask], Results]


class BitDifference(NamedTuple):
    """Where two results differ: of which name, the first such element, in words, and whether one call gives the same
    bits again.
    """

    name: str
    first: tuple[int, ...]
    words: str
    steady: bool = True


@dataclass(frozen=True)
class BitRelation:
    """Two programs whose results must be equal.

    Attributes:
        words: what differs between both. programs: the two. along: the axes.
        proposed: whether the formula may not keep it, and is asked first.
        shrink: (what differs) -> a smaller relation, what differs there, and a line about it.
    """

    words: str
    programs: Sequence[Program]
    along: str = ""
    proposed: bool = False
    shrink: Callable[[BitDifference], tuple[BitRelation, BitDifference, str]] | None = None

    def run(self, ask: Ask) -> tuple[Results, Results]:
        """The results of both programs."""
        one, other = (program(ask) for program in self.programs)
        return one, other


def find_difference(one: Results, other: Results) -> BitDifference | None:
    """The first difference of bits, but for those of a NaN and the sign of a zero."""
    for name, a in one.items():
        b = other.get(name, a.new_empty(0))
        if a.shape != b.shape or a.dtype != b.dtype:
            return BitDifference(name, (), f"{name} has another shape or dtype")
        if (apart := mask_of(a, b)).any():
            far = f", by {ulps_of(a, b, apart).max():.4g} ulp at most" if is_float(a) else ""
            words = f"{name} differs in {int(apart.sum())} of {a.numel()} elements{far}"
            return BitDifference(name, tuple(map(int, apart.nonzero()[0])), words)
    return None


def count_signs(one: Results, other: Results) -> int:
    """How many zeros have another sign, which is told and judges nobody."""
    pairs = ((a, other[name]) for name, a in one.items() if is_float(a))
    return sum(int((different(a, b) & (a == 0) & (b == 0)).sum()) for a, b in pairs)


def mask_of(a: Tensor, b: Tensor) -> Tensor:
    """Where two results have other bits, and are not a NaN each, nor a zero each."""
    return different(a, b) & ~((a == 0) & (b == 0))


def ulps_of(a: Tensor, b: Tensor, apart: Tensor) -> Any:
    """How far two results are apart where a mask says so, in units of the last place of the larger one, else 0; of what
    is not floating in numbers. Infinite where one of both is no number.
    """
    one, other = to_array(a), to_array(b)
    with np.errstate(all="ignore"):
        unit = ulp_array(format_of(a.dtype), np.maximum(np.abs(one), np.abs(other))) if is_float(a) else 1.0
        distances = np.abs(np.asarray(one, np.float64) - np.asarray(other, np.float64)) / unit
    return np.where(apart.cpu().numpy(), np.nan_to_num(distances, nan=np.inf, posinf=np.inf), 0.0)


def to_integers(leaves: Leaves) -> list[Any]:
    """Small integers in place of numbers, of which many sums are exact in every order."""
    return [(x.double() * 4).round().clamp(-4, 4).nan_to_num().to(x.dtype) if is_float(x) else x for x in leaves]


def is_integers(leaf: Any) -> bool:
    """Whether a leaf is a tensor of integers."""
    return isinstance(leaf, Tensor) and not (is_float(leaf) or leaf.is_complex() or leaf.dtype == torch.bool)


def take_along(tensor: Tensor, axis: int, rows: Sequence[int]) -> Tensor:
    """Some of a tensor along an axis."""
    index = torch.tensor(list(rows), device=tensor.device, dtype=torch.int64)
    return _as_bytes(tensor.detach()).index_select(axis, index).view(tensor.dtype)


def _as_bytes(tensor: Tensor) -> Tensor:
    """A tensor; of eight-bit floats the bytes, because torch does not select these."""
    return tensor.view(torch.uint8) if is_float(tensor) and tensor.element_size() == 1 else tensor


@dataclass(frozen=True)
class RowAxes:
    """The row axis of each argument that has one.

    Attributes:
        name: the axes, as "x.0 = mask.0". arguments: the axis, by the place among the leaves.
        sizes: places of numbers that say how many rows there are.
        results: the axis of each output that has rows, in order, and of each gradient, by name.
        least: the smallest integers of an argument, where somebody declares them or what is right refuses others.
    """

    name: str
    arguments: Mapping[int, int]
    sizes: Sequence[int] = ()
    results: Mapping[str, int] = field(default_factory=dict)
    least: Mapping[int, int] = field(default_factory=dict)

    def count(self, leaves: Leaves) -> int:
        """How many rows a call has."""
        i, axis = next(iter(self.arguments.items()))
        return int(leaves[i].shape[axis])

    def take(self, leaves: Leaves, rows: Sequence[int]) -> list[Any]:
        """The arguments with these rows alone."""
        own = [take_along(x, self.arguments[i], rows) if i in self.arguments else x for i, x in enumerate(leaves)]
        return [len(rows) if i in self.sizes else x for i, x in enumerate(own)]

    def mix(self, leaves: Leaves, other: Leaves, rows: Sequence[int], kind: Callable[[Any], bool]) -> list[Any]:
        """The arguments, but elsewhere than in these rows those of another call; of leaves of a kind alone."""
        own, mixed = {row: n for n, row in enumerate(rows)}, list(leaves)
        index = [own.get(i, len(own) + i) for i in range(self.count(leaves))]
        for i, d in self.arguments.items():
            if kind(leaves[i]):
                mixed[i] = take_along(torch.cat([take_along(leaves[i], d, rows), other[i]], d), d, index)
        return mixed

    def turned(self, batch: Leaves, rows: Sequence[int]) -> list[Any]:
        """Rows, in each of which the numbers are further on by one more: other sums of the same numbers."""
        own = self.take(batch, rows)
        for i, d in self.arguments.items():
            if is_float(own[i]) and own[i].ndim > 1 and own[i].numel():
                by_row = own[i].movedim(d, 0)
                flat = by_row.flatten(1)
                places = torch.arange(flat.shape[1], device=flat.device)
                index = (places - torch.arange(len(flat), device=flat.device)[:, None]) % flat.shape[1]
                own[i] = _as_bytes(flat).gather(1, index).view(flat.dtype).view_as(by_row).movedim(0, d).contiguous()
        return own

    def cut(self, results: Results, rows: Sequence[int]) -> Results:
        """These rows of the results that have rows."""
        return {name: take_along(t, self.results[name], rows) for name, t in results.items() if name in self.results}

    def program(self, batch: Leaves, rows: Sequence[int], at: Sequence[int], cotangents: Sequence[Tensor]) -> Program:
        """Calls with rows of a batch, and gives those at places among them."""
        cut = [take_along(g, axis, rows) for g, axis in zip(cotangents, self.results.values(), strict=False)]
        return lambda ask: self.cut(ask(self.take(batch, rows), cut), at)

    def shared(
        self, batch: Leaves, calls: Sequence[Sequence[int]], count: int, cotangents: Sequence[Tensor]
    ) -> Program:
        """Gradients of what rows share, summed over calls with rows of a batch; all but `count` have no cotangents."""

        def run(ask: Ask) -> Results:
            total = Results()
            for rows in calls:
                cut = [take_along(g, axis, rows) for g, axis in zip(cotangents, self.results.values(), strict=False)]
                for g, axis in zip(cut, self.results.values(), strict=False):
                    g.narrow(axis, min(count, len(rows)), max(len(rows) - count, 0)).zero_()
                for name, gradient in ask(self.take(batch, rows), cut).items():
                    if name.startswith(GRADIENT) and name not in self.results:
                        total[name] = total[name] + gradient if name in total else gradient
            return total

        return run

    def in_order(self, batch: Leaves, order: Sequence[int], words: str, cotangents: Sequence[Tensor]) -> BitRelation:
        """All rows as they are, and in another order."""
        every = range(len(order))
        programs = [self.program(batch, rows, at, cotangents) for rows, at in ((every, order), (order, every))]
        return BitRelation(f"{len(order)} rows{words}", programs, self.name)

    def sums(self, batch: Leaves) -> list[list[int]]:
        """For each tensor of integers that has rows, the rows in the order of their sums."""
        own = [batch[i].double().movedim(d, 0) for i, d in self.arguments.items() if is_integers(batch[i])]
        return [x.reshape(len(x), -1).sum(1).argsort(stable=True).tolist() for x in own]

    def of_sizes(
        self, batch: Leaves, sizes: Sequence[int], cotangents: Sequence[Tensor], ask: Ask | None = None
    ) -> Iterator[BitRelation]:
        """Some first rows alone, and in a larger batch; with `ask` it can be shrunk."""
        for m, n in itertools.pairwise(sorted({*(n for n in sizes if n < self.count(batch)), self.count(batch)})):
            words = f"{m} row{'s' * (m > 1)} alone, or with {n - m} other{'s' * (n - m > 1)}"
            programs = [self.program(batch, range(k), range(m), cotangents) for k in (m, n)]
            smaller = functools.partial(self._least_case, batch, cotangents, ask, m, n) if ask is not None else None
            yield BitRelation(words, programs, self.name, shrink=smaller)

    def _least_case(
        self, batch: Leaves, cotangents: Sequence[Tensor], ask: Ask, m: int, n: int, difference: BitDifference
    ) -> tuple[BitRelation, BitDifference, str]:
        """The fewest rows that have other bits among the least number, and how the bits go on from there."""

        def differs(few: int, sizes: tuple[int, int]) -> BitDifference | None:
            return find_difference(*(self.program(batch, range(k), range(few), cotangents)(ask) for k in sizes))

        low, high = m, n
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if differs(m, (m, middle)) is not None else (middle, high)
        difference = differs(m, (m, high)) or difference
        row = difference.first[self.results[difference.name]] + 1 if difference.first else m
        if row < m and (smaller := differs(row, (row, high))) is not None:
            m, difference = row, smaller
        beyond = [k for k in (high + 1, high + 2, 2 * high, 4 * high) if k <= self.count(batch)]
        again = [str(k) for k in beyond if differs(m, (high, k)) is not None]
        line = f"a choice by size: one way below {high} rows, another from {high} on"
        line = f"follows the number of rows, as a split does: again at {' and '.join(again)} rows" if again else line
        (case,) = self.of_sizes(self.take(batch, range(high)), [m], cotangents)
        return case, difference, f"choice     {line}"

    def beside(
        self, batch: Leaves, other: Leaves, rows: Sequence[int], words: str, cotangents: Sequence[Tensor]
    ) -> BitRelation:
        """Some rows of one batch, and of another that has the same there."""
        every = range(self.count(batch))
        programs = [self.program(each, every, rows, cotangents) for each in (batch, other)]
        return BitRelation(f"{len(rows)} of {len(every)} rows, beside others {words}", programs, self.name)

    def beside_longer(self, batch: Leaves, words: str, step: int) -> Iterator[BitRelation]:
        """The half of small integers beside such, and beside the largest.

        Those of which the least is declared are divided by powers of `step`, too, so that lengths are of every order of
        magnitude. Others may be numbers of which no half is one, as a label to be ignored.
        """
        n = self.count(batch)
        scales = [step**k for k in range(12 if self.least else 1) if step**k <= _LONGEST]
        for order, scale in itertools.product(self.sums(batch), scales):
            half, small = sorted(order[: max(n // 2, 1)]), list(batch)
            for i, least in self.least.items():
                own = batch[i].long()  # eight bits have no room for the divisor
                small[i] = (own // scale).clamp(min=least).to(batch[i].dtype) if scale > 1 else batch[i]
            one, other = (self.mix(small, self.take(each, [row] * n), half, is_integers)
                          for each, row in ((small, order[len(half) - 1]), (batch, order[-1])))  # fmt: skip
            yield self.beside(one, other, half, f"of integers as small, over {scale}, or the largest{words}", ())
