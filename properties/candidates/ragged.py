"""Sequences one behind the other, as rows: offsets or lengths say where each begins, and each is as long as it is.

What is asked of rows is asked of a table of them, a row and a length for each sequence. It becomes the tensors that the
formula takes before every call, and results become a table behind it. So nothing else knows of sequences.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...oracles.op.declaration import Tensor, is_float
from ..relations import GRADIENT, WRITTEN, Ask, Leaves, Results, RowAxes
from .arguments import CallArguments
from .domain.domain import Domain
from .inputs import are_offsets

#: A sequence in a table has at least so much room, so that there are long ones.
_ROOM = 65


@dataclass(frozen=True)
class Packing:
    """How a call has sequences; of nothing where it has none.

    Attributes:
        name: what says where they begin, in words. of: by the place of a tensor of tokens among the leaves, its axis
            and the place of that which has its lengths. rising: of these, whether they are offsets; else lengths.
        longest: places of numbers that say how long the longest is. ndim: of the tensors of tokens.
        results: of results and gradients with an axis of tokens that axis, and whose lengths they have. floats: the
            names of floating outputs, in order.
    """

    name: str = ""
    of: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    rising: Mapping[int, bool] = field(default_factory=dict)
    longest: Sequence[int] = ()
    ndim: Mapping[int, int] = field(default_factory=dict)
    results: dict[str, tuple[int, int]] = field(default_factory=dict)
    floats: list[str] = field(default_factory=list)

    @property
    def axes(self) -> RowAxes:
        """Those of the rows of a table."""
        return RowAxes(self.name, dict.fromkeys((*self.rising, *self.of), 0), least=dict.fromkeys(self.rising, 1))

    def is_table(self, leaves: Leaves) -> bool:
        """Whether leaves are those of a table, in which tokens have one more axis."""
        return any(leaves[i].ndim > n for i, n in self.ndim.items())

    def room(self, leaves: Leaves) -> int:
        """How long a row of a table may be."""
        return int(leaves[next(iter(self.of))].shape[1])

    def table(self, leaves: Leaves) -> list[Any]:
        """The leaves of a call as those of a table."""
        lengths = {i: leaves[i].diff() if rises else leaves[i] for i, rises in self.rising.items()}
        own = [lengths.get(i, x) for i, x in enumerate(leaves)]
        room = max(_ROOM, *itertools.chain(*(each.tolist() for each in lengths.values())))
        for i, (axis, by) in self.of.items():
            own[i] = _apart(leaves[i], axis, lengths[by], room)
        return own

    def like(self, others: Leaves, leaves: Leaves) -> list[Any]:
        """The leaves of a call, or those of a table where others are."""
        return self.table(leaves) if self.is_table(others) else list(leaves)

    def call(self, leaves: Leaves) -> list[Any]:
        """The leaves of a table as those of a call, which others are already."""
        own = list(leaves)
        if self.is_table(leaves):
            for i, (axis, by) in self.of.items():
                own[i] = _joined(leaves[i], axis, leaves[by])
            for i in (i for i, rises in self.rising.items() if rises):
                own[i] = torch.cat([leaves[i].new_zeros(1), leaves[i].cumsum(0).to(leaves[i])])
            for i in self.longest:
                own[i] = max(int(leaves[by].max()) for by in self.rising)
        return own

    def learn(self, ask: Ask, *tables: Leaves) -> None:
        """Find out which results have an axis of tokens, as that whose extent is the sum of a call's lengths."""
        if self.is_table(tables[0]):
            whole, few = (ask(self.call(each)) for each in tables)
            self.floats.extend(name for name, y in whole.items() if is_float(y) and not name.startswith(WRITTEN))
            for name, y in whole.items():
                extents = list(zip(y.shape, few[name].shape, strict=False))
                for by in self.rising:
                    if (sums := tuple(int(each[by].sum()) for each in tables)) in extents:
                        self.results.setdefault(name, (extents.index(sums), by))

    def wrap(self, ask: Ask) -> Ask:
        """A function of the leaves of a call as one of those of a table, too."""

        def ask_table(leaves: Leaves, cotangents: Sequence[Tensor] = (), **how: Any) -> Results:
            if not self.is_table(leaves):
                return ask(leaves, cotangents, **how)
            places = {name: (axis, leaves[by]) for name, (axis, by) in self.results.items()}
            pairs = zip(self.floats, cotangents, strict=False)
            pulled = [_joined(g, *places[name]) if name in places else g for name, g in pairs]
            results = ask(self.call(leaves), pulled, **how)
            tables = {name: _apart(results[name], *places[name], self.room(leaves)) for name in results.keys() & places}
            return {name: tables.get(name, result) for name, result in results.items()}

        return ask_table


def packing_of(arguments: CallArguments, domain: Domain) -> Packing:
    """How a call has sequences: rising numbers end at an extent, or its domain tells of lengths."""
    leaves, tensors = arguments.leaves, arguments.tensors
    places = [i for i, x in enumerate(leaves) if isinstance(x, Tensor)]
    of, rising, most = dict[int, tuple[int, int]](), dict[int, bool](), 0
    for i, tensor in enumerate(tensors):
        offsets, role = are_offsets(tensor), domain.integers.get(i)
        into = [] if role is None or offsets or tensor.ndim != 1 else [*role.sums_to]
        if offsets:
            end = int(tensor[-1])
            into = [(j, t.shape.index(end)) for j, t in enumerate(tensors) if end in t.shape]
        if into:
            rising[places[i]], most = offsets, max(most, int((tensor.diff() if offsets else tensor).max()))
            of = {places[j]: (axis, places[i]) for j, axis in into} | of
    names = arguments.names or [f"input {i}" for i in range(len(leaves))]
    name = f"sequences of {' = '.join(names[i] for i in rising)}" if of else ""
    longest = [i for i, x in enumerate(leaves) if type(x) is int and x == most]
    results = {f"{GRADIENT}{names[i]}": each for i, each in of.items()}
    return Packing(name, of, rising, longest, {i: leaves[i].ndim for i in of}, results)


def _apart(tokens: Tensor, axis: int, lengths: Tensor, room: int) -> Tensor:
    """A row for each sequence, with zeros behind it; of tokens beyond the last sequence none."""
    flat = tokens.detach().movedim(axis, 0)
    table = flat.new_zeros(len(lengths), room, *flat.shape[1:])
    for row, part in zip(table, flat[: int(lengths.sum())].split(lengths.tolist()), strict=True):
        row[: len(part)] = part
    return table


def _joined(table: Tensor, axis: int, lengths: Tensor) -> Tensor:
    """The sequences of a table, one behind the other."""
    return torch.cat([row[:n] for row, n in zip(table, lengths.tolist(), strict=True)]).movedim(0, axis).contiguous()
