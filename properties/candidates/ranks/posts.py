"""What ranks and their judge hand to each other while a call runs: collectives that a rank makes, and their results.

A collective has one meaning, whatever torch calls it: each rank passes a tensor for all members of the group, or one
for each of them, and each gets what was meant for it, as a list or as a sum. `received` is that meaning.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import torch

Tensor = torch.Tensor
#: Where the process of a rank writes what it posts, in its own folder.
POSTED = "posted"
#: Names of reductions by torch's numbers of them (`torch.distributed.ReduceOp`).
REDUCTIONS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")
#: Of point to point: any rank.
ANY = -1
_PAIRWISE: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": torch.add, "avg": torch.add, "product": torch.mul, "min": torch.minimum, "max": torch.maximum,
    "band": torch.bitwise_and, "bor": torch.bitwise_or, "bxor": torch.bitwise_xor,
}  # fmt: skip
#: Collectives in which all members pass as much: else their numbers would be added to others.
_ALIKE = ("all_reduce", "reduce", "reduce_scatter", "broadcast", "all_gather_into_tensor")


class Post(msgspec.Struct, frozen=True):
    """One collective, or one side of a message from rank to rank.

    Attributes:
        number: of this rank's calls, in the order in which it makes them. op: see `received`; or "send", "recv".
        group, members: its name, and the numbers of its ranks in the world.
        tensors: what it passes: one for all members, or one for each.
        kind: dtype and number of elements, in which members must agree for some.
        root: the member that sends or receives alone; the other side of a message, or `ANY`.
        reduction: one of `REDUCTIONS`; empty for none. tag: of a message.
    """

    number: int
    op: str
    group: str
    members: list[int]
    tensors: list[Any] = []
    kind: str = ""
    root: int = ANY
    reduction: str = ""
    tag: int = 0

    @property
    def key(self) -> tuple[object, ...]:
        """In what all members must agree."""
        dtype = self.kind.partition("[")[0]
        return (self.op, self.members, self.root, self.reduction, self.kind if self.op in _ALIKE else dtype)

    def __str__(self) -> str:
        words = [self.kind] * bool(self.kind) + [self.reduction] * bool(self.reduction)
        if self.op in ("send", "recv"):
            side = "any rank" if self.root == ANY else f"rank {self.members[self.root]}"
            words += [f"{'to' if self.op == 'send' else 'from'} {side}"]
        elif self.root != ANY:
            words += [f"root {self.members[self.root]}"]
        return f"{self.op}({', '.join(words)})"


class Turn(msgspec.Struct, frozen=True):
    """What a rank says when it waits: its posts since the last time, and which of its calls it waits for.

    Attributes:
        awaited: number of that call; -1 where its call of the candidate has ended.
    """

    posts: list[Post]
    awaited: int = -1


class Delivery(msgspec.Struct, frozen=True):
    """What a rank gets: tensors in the order of its outputs, and the member that a message of any rank came from."""

    tensors: list[Any] = []
    source: int = ANY


def received(posts: Sequence[Post], index: int, order: Sequence[int]) -> list[Tensor]:
    """What a member of a group gets of a collective.

    Args:
        posts: of all members, in their order. index: of the member. order: members in the order of summation.
    """
    post = posts[index]
    others = [each.tensors for each in posts]
    mine = post.root in (ANY, index)
    match post.op:
        case "all_gather" | "all_gather_into_tensor" | "gather":
            return [tensors[0] for tensors in others] if mine else []
        case "broadcast":
            return list(others[post.root])
        case "scatter":
            return [others[post.root][index]]
        case "all_to_all":
            return [tensors[index] for tensors in others]
        case "all_reduce" | "reduce":
            return [_reduce([others[i][0] for i in order], post.reduction)] if mine else []
        case "reduce_scatter":
            return [_reduce([others[i][index] for i in order], post.reduction)]
    return []


def _reduce(tensors: Sequence[Tensor], reduction: str) -> Tensor:
    """The reduction of tensors, one after the other in their dtype, as a ring does it."""
    total = functools.reduce(_PAIRWISE[reduction], tensors)
    return total / len(tensors) if reduction == "avg" else total
