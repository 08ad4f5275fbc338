"""How tensors lie over ranks, in the words of `torch.distributed.tensor`: cut into parts, and put together again."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...reference.missing import nearest_of
from .arguments import Tensor

#: Of the result; and what stands behind the name of an operand where its gradient lies otherwise than the operand.
RETURN, GRADIENT = "return", ".grad"
#: How parts are put together, of the reductions that `Partial` has; others have no gradient that all ranks know of.
_REDUCED: Mapping[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda parts: parts.sum(0), "avg": lambda parts: parts.mean(0),
}  # fmt: skip
#: One placement for each axis of the mesh.
Lying = tuple[Any, ...]
#: (rank that has other bits, what it has, what the first has) -> None
NoteReplica = Callable[[int, Tensor, Tensor], None]


class PartsError(ValueError):
    """What ranks have is no part of one tensor; the text says which."""


def _chunk(n: int, count: int, at: int) -> tuple[int, int]:
    """Where the part of a rank begins, and how long it is, as `torch.chunk` and `Shard` have it."""
    each = -(-n // count)
    start = min(each * at, n)
    return start, min(each, n - start)


@dataclass(frozen=True)
class Placements:
    """How the tensors of a call lie over a mesh of ranks.

    Attributes:
        mesh: how many ranks there are along each axis; the last axis moves first.
        by_name: of arguments, parameters, outputs ("return", "return[0]") and gradients ("x.grad"). What has no name
            here is on every rank; and a gradient lies as its operand.
    """

    mesh: tuple[int, ...]
    by_name: Mapping[str, Lying] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return math.prod(self.mesh)

    def of(self, name: str) -> Lying:
        """How an argument, a parameter or an output lies; of an output that has no name of its own as "return"."""
        whole = RETURN if name.startswith(RETURN) else name
        return self.by_name.get(name) or self.by_name.get(whole) or _everywhere(len(self.mesh))

    def of_gradient(self, name: str) -> Lying:
        """How a gradient lies. That of a partial sum is the same on every rank."""
        own = self.by_name.get(f"{name}{GRADIENT}")
        return own or tuple(_everywhere(1)[0] if each.is_partial() else each for each in self.of(name))

    def of_cotangent(self, name: str) -> Lying:
        """How the cotangent of an output lies: as "return.grad" says, or as the output; of a partial sum all of it."""
        own = self.by_name.get(f"{name}{GRADIENT}") or self.by_name.get(f"{RETURN}{GRADIENT}")
        return own or tuple(_everywhere(1)[0] if each.is_partial() else each for each in self.of(name))

    def share_of_cotangent(self, name: str) -> float:
        """What share of the cotangent of an output each rank gets: of a mean over n ranks the n-th part."""
        if f"{name}{GRADIENT}" in self.by_name or f"{RETURN}{GRADIENT}" in self.by_name:
            return 1.0
        pairs = zip(self.of(name), self.mesh, strict=True)
        return 1.0 / math.prod(n for each, n in pairs if each.is_partial() and each.reduce_op == "avg")

    def with_size(self, size: int) -> Placements:
        """The same over another number of ranks, where the mesh has one axis."""
        return Placements((size,), self.by_name)

    def require_names(self, names: Sequence[str]) -> Placements:
        """Require that all it places is there; ValueError for another name."""
        for name in self.by_name:
            plain = name.removesuffix(GRADIENT)
            if plain not in names and not plain.startswith(RETURN):
                known = [*dict.fromkeys(names), RETURN]
                raise ValueError(f"placements: got {name!r}{nearest_of(plain, known)}, need one of {', '.join(known)}")
        return self

    def _coordinates(self, rank: int) -> list[int]:
        places = []
        for size in reversed(self.mesh):
            rank, at = divmod(rank, size)
            places.append(at)
        return places[::-1]

    def cut(self, tensor: Tensor, lying: Lying, rank: int) -> Tensor:
        """The part of a tensor that a rank has."""
        for placement, size, at in zip(lying, self.mesh, self._coordinates(rank), strict=True):
            if placement.is_shard():
                axis = _axis_number(placement.dim, tensor.ndim)
                tensor = tensor.narrow(axis, *_chunk(tensor.shape[axis], size, at))
            elif placement.is_partial():
                tensor = _summand(tensor, size, at)
        return tensor

    def cut_shape(self, shape: Sequence[int], lying: Lying, rank: int) -> list[int]:
        """The shape of the part that a rank has."""
        return list(self.cut(torch.empty(tuple(shape), device="meta"), lying, rank).shape)

    def whole_shape(self, shapes: Sequence[Sequence[int]], lying: Lying) -> tuple[int, ...]:
        """The shape of what ranks have together."""
        parts = [torch.empty(tuple(shape), device="meta") for shape in shapes]
        return tuple(self.join(parts, lying, lambda *_: None).shape)

    def join(self, parts: Sequence[Tensor], lying: Lying, note: NoteReplica) -> Tensor:
        """What the parts of all ranks make together.

        Args:
            note: told of each rank that has other bits than the first of those that have the same.

        Raises:
            PartsError: they make nothing.
        """
        ranks, tensors = [[rank] for rank in range(self.size)], list(parts)
        for placement, size in reversed([*zip(lying, self.mesh, strict=True)]):
            groups = [range(i, i + size) for i in range(0, len(tensors), size)]
            tensors = [_join_parts(placement, [tensors[i] for i in g], [ranks[i][0] for i in g], note) for g in groups]
            ranks = [[r for i in g for r in ranks[i]] for g in groups]
        return tensors[0]


def _everywhere(axes: int) -> Lying:
    from torch.distributed.tensor import Replicate  # not at the top: it takes a second, and few judgements need it

    return (Replicate(),) * axes


def placements_of(words: Mapping[str, Any], mesh: Sequence[int]) -> Placements:
    """The placements that a spec's file declares, over a mesh.

    Args:
        words: name -> `Shard`, `Replicate` or `Partial` of torch.distributed.tensor, one for each axis of the mesh.

    Raises:
        ValueError: one is something else, or there are too few or too many.
    """
    from torch.distributed.tensor import Partial, Replicate, Shard

    by_name: dict[str, Lying] = {}
    for name, value in words.items():
        lying = tuple(value) if isinstance(value, (list, tuple)) else (value,)
        odd = next((each for each in lying if not isinstance(each, (Shard, Replicate, Partial))), None)
        if odd is not None:
            need = "need Shard(dim), Replicate() or Partial() of torch.distributed.tensor"
            raise ValueError(f"placements: got {name}={odd!r}, {need}")
        if len(lying) != len(mesh):
            need = f"need one for each of {len(mesh)} axes of the mesh {'x'.join(map(str, mesh))}"
            raise ValueError(f"placements: got {len(lying)} of {name}, {need}")
        # An operand comes in summands; what a caller makes of outputs and of gradients may be a mean.
        is_result = name.startswith(RETURN) != name.endswith(GRADIENT)
        kinds = tuple(_REDUCED) if is_result else ("sum",)
        wrong = next((each for each in lying if each.is_partial() and each.reduce_op not in kinds), None)
        if wrong is not None:
            raise ValueError(f"placements: got {name}={wrong!r}, need Partial of {', '.join(kinds)}")
        by_name[str(name)] = lying
    return Placements(tuple(mesh), by_name)


def _axis_number(dim: int, ndim: int) -> int:
    """An axis that is there; PartsError for none."""
    if not -ndim <= dim < ndim:
        raise PartsError(f"Shard({dim}): got a tensor of {ndim} axes")
    return dim % ndim


def _summand(tensor: Tensor, size: int, at: int) -> Tensor:
    """One of `size` tensors whose sum is exactly this one: each element is in one of them."""
    if not tensor.numel() or tensor.is_meta:
        return tensor
    own = torch.arange(tensor.numel(), device=tensor.device).reshape(tensor.shape) % size == at
    return torch.where(own, tensor, torch.zeros_like(tensor))


def _join_parts(placement: Any, parts: Sequence[Tensor], ranks: Sequence[int], note: NoteReplica) -> Tensor:
    first = parts[0]
    for rank, part in zip(ranks, parts, strict=True):
        axis = _axis_number(placement.dim, first.ndim) if placement.is_shard() and first.ndim == part.ndim else -1
        if _other_axes(part, axis) != _other_axes(first, axis) or part.dtype != first.dtype:
            kinds = [f"{str(t.dtype)[6:]}{list(t.shape)}" for t in (part, first)]
            raise PartsError(f"rank {rank} has {kinds[0]} and rank {ranks[0]} {kinds[1]}, no parts by {placement}")
    if placement.is_shard():
        return _join_rows(parts, ranks, _axis_number(placement.dim, first.ndim))
    if first.is_meta:
        return first
    if placement.is_partial():
        # In float64, so that putting together what a caller would adds no error but one rounding.
        wide = torch.stack([part.double() if part.is_floating_point() else part for part in parts])
        return _REDUCED[placement.reduce_op](wide).to(first.dtype)
    for rank, part in itertools.islice(zip(ranks, parts, strict=True), 1, None):
        note(rank, part, first)
    return first


def _other_axes(tensor: Tensor, axis: int) -> list[int]:
    return [n for i, n in enumerate(tensor.shape) if i != axis]


def _join_rows(parts: Sequence[Tensor], ranks: Sequence[int], axis: int) -> Tensor:
    total = sum(part.shape[axis] for part in parts)
    for at, (rank, part) in enumerate(zip(ranks, parts, strict=True)):
        need = _chunk(total, len(parts), at)[1]
        if part.shape[axis] != need:
            raise PartsError(
                f"rank {rank} has {part.shape[axis]} of {total} along axis {axis}, and by Shard({axis}) {need}"
            )
    return torch.cat([part.detach() for part in parts], axis)
