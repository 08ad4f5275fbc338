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
from ..relations import GRADIENT, Ask, Leaves, Results, RowAxes
from .arguments import CallArguments
from .domain.domain import Domain
from .domain.symbols import Axis
from .inputs import are_offsets

#: A sequence in a table has at least so much room, so that there are long ones.
_ROOM = 65


@dataclass(frozen=True)
class Packing:
    """How a call has sequences.

    Attributes:
        name: what says where they begin, in words. of: by the place of a tensor of tokens among the leaves, its axis
            and the place of that which has its lengths. rising: of these, whether they are offsets; else lengths.
        longest: places of numbers that say how long the longest is. ndim: of the tensors of tokens.
        results: of results and gradients with an axis of tokens that axis, and whose lengths they have. floats: the
            names of floating outputs, in order.
    """

    name: str
    of: Mapping[int, tuple[int, int]]
    rising: Mapping[int, bool]
    longest: Sequence[int]
    ndim: Mapping[int, int]
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
        lengths = {i: (leaves[i].diff() if rises else leaves[i]).tolist() for i, rises in self.rising.items()}
        own = [torch.tensor(lengths[i]).to(x) if i in lengths else x for i, x in enumerate(leaves)]
        room = max(_ROOM, *itertools.chain(*lengths.values()))
        for i, (axis, by) in self.of.items():
            own[i] = _apart(leaves[i], axis, lengths[by], room)
        return own

    def call(self, leaves: Leaves) -> list[Any]:
        """The leaves of a table as those of a call."""
        own, most = list(leaves), max(int(leaves[i].max()) for i in self.rising)
        for i, (axis, by) in self.of.items():
            own[i] = _joined(leaves[i], axis, leaves[by].tolist())
        for i, rises in self.rising.items():
            if rises:
                own[i] = torch.cat([leaves[i].new_zeros(1), leaves[i].cumsum(0).to(leaves[i])])
        return [most if i in self.longest else x for i, x in enumerate(own)]

    def wrap(self, ask: Ask) -> Ask:
        """A function of the leaves of a call as one of those of a table, too."""

        def ask_table(leaves: Leaves, cotangents: Sequence[Tensor] = (), **how: Any) -> Results:
            if not self.is_table(leaves):
                return ask(leaves, cotangents, **how)
            lengths = {i: leaves[i].tolist() for i in self.rising}
            pulled = [
                _joined(g, self.results[name][0], lengths[self.results[name][1]]) if name in self.results else g
                for name, g in zip(self.floats, cotangents, strict=False)
            ]
            results, room = ask(self.call(leaves), pulled, **how), self.room(leaves)
            return {
                name: _apart(t, self.results[name][0], lengths[self.results[name][1]], room)
                if name in self.results
                else t
                for name, t in results.items()
            }

        return ask_table


def packing_of(arguments: CallArguments, domain: Domain) -> Packing | None:
    """How a call has sequences; None where its domain tells of none."""
    places = [i for i, x in enumerate(arguments.leaves) if isinstance(x, Tensor)]
    of, rising = dict[int, tuple[int, int]](), dict[int, bool]()
    for i, tensor in enumerate(arguments.tensors):
        role, offsets = domain.integers.get(i), are_offsets(tensor)
        into: Sequence[Axis] = () if role is None else role.into if offsets else role.sums_to
        if offsets and not into:  # what reads them by tiles shows no role, and rows are tried before they are asked
            every = [
                (j, t.shape.index(int(tensor[-1]))) for j, t in enumerate(arguments.tensors) if tensor[-1] in t.shape
            ]
            into = [(j, axis) for j, axis in every if is_float(arguments.tensors[j])]
        if into and tensor.ndim == 1:
            rising[places[i]] = offsets
            of = {places[j]: (axis, places[i]) for j, axis in into} | of
    if not of:
        return None
    leaves = arguments.leaves
    most = max(int((leaves[i].diff() if rises else leaves[i]).max()) for i, rises in rising.items())
    names = arguments.names or [f"input {i}" for i in range(len(leaves))]
    longest = [i for i, x in enumerate(leaves) if type(x) is int and x == most]
    name = f"sequences of {' = '.join(names[i] for i in rising)}"
    packing = Packing(name, of, rising, longest, {i: leaves[i].ndim for i in of})
    packing.results.update({f"{GRADIENT}{names[i]}": each for i, each in of.items()})
    return packing


def _apart(tokens: Tensor, axis: int, lengths: Sequence[int], room: int) -> Tensor:
    """A row for each sequence, with zeros behind it; of tokens beyond the last sequence none."""
    flat = tokens.detach().movedim(axis, 0)
    table = flat.new_zeros(len(lengths), room, *flat.shape[1:])
    for row, part in zip(table, flat[: sum(lengths)].split(list(lengths)), strict=True):
        row[: len(part)] = part
    return table


def _joined(table: Tensor, axis: int, lengths: Sequence[int]) -> Tensor:
    """The sequences of a table, one behind the other."""
    return torch.cat([row[:n] for row, n in zip(table, lengths, strict=True)]).movedim(0, axis).contiguous()
