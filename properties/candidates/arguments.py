"""The arguments of a call as leaves: what of them are tensors, and how other values are put in their places."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

Tensor = torch.Tensor
#: Elements of a tensor that a card shows in full.
_SHORT = 8
State = Mapping[str, Tensor]


class OperandFacts(enum.Enum):
    """What is known of the operands of a call, for what a NaN or an infinity in the output may be."""

    FINITE = enum.auto()
    WITH_NANS = enum.auto()  # and no infinity
    WITH_INFINITIES = enum.auto()
    IN_ONE_ORDER = enum.auto()  # some are not finite, and there is one order only to compute with them


@dataclass(frozen=True)
class CallArguments:
    """The arguments of one call.

    Attributes:
        leaves: tensors, numbers, texts and None, in order.
        structure: the tuples, lists and dictionaries around them.
    """

    leaves: tuple[Any, ...]
    structure: pytree.TreeSpec

    @classmethod
    def of(cls, args: Sequence[Any]) -> CallArguments:
        leaves, structure = pytree.tree_flatten(tuple(args))
        return cls(tuple(leaves), structure)

    @property
    def args(self) -> tuple[Any, ...]:
        """As a function takes them."""
        arguments: tuple[Any, ...] = pytree.tree_unflatten(list(self.leaves), self.structure)
        return arguments

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(leaf for leaf in self.leaves if isinstance(leaf, Tensor))

    @property
    def dtype(self) -> str:
        """The name of the dtype of the first floating tensor; "none" where there is none."""
        floating = (str(t.dtype).removeprefix("torch.") for t in self.tensors if t.is_floating_point())
        return next(floating, "none")

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of the tensors."""
        return [tuple(t.shape) for t in self.tensors]

    def with_tensors(self, tensors: Sequence[Any]) -> CallArguments:
        """The same with other values in the places of the tensors."""
        rest = iter(tensors)
        return replace(self, leaves=tuple(next(rest) if isinstance(x, Tensor) else x for x in self.leaves))

    def changed(self, change: Callable[[Tensor], Tensor]) -> CallArguments:
        """The same with every tensor changed."""
        return self.with_tensors([change(t) for t in self.tensors])

    def copied(self) -> CallArguments:
        """The same values in memory of their own, without gradients."""
        return self.changed(lambda t: t.detach().clone())

    @property
    def finite(self) -> bool:
        """Whether no floating tensor has a NaN or an infinity."""
        return all(_is_finite(t) for t in self.tensors if t.dtype.is_floating_point)

    @property
    def infinite(self) -> bool:
        """Whether some floating tensor has an infinity."""
        return any(bool(t.isinf().any()) for t in self.tensors if t.dtype.is_floating_point)

    @property
    def text(self) -> str:
        """One line: the dtype and the shape of every tensor, the values of a short one, and other values."""
        return ", ".join(_describe_leaf(leaf) for leaf in self.leaves)

    def label(self, position: int) -> str:
        """What messages call the tensor at a position among the tensors."""
        return f"input {position}" if len(self.tensors) > 1 else "the input"


def _describe_leaf(leaf: Any) -> str:
    if not isinstance(leaf, Tensor):
        return repr(leaf)[:60]
    kind = f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}"
    return f"{kind} = {leaf.tolist()}" if 0 < leaf.numel() <= _SHORT else kind


def copied_state(state: State) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in state.items()}


def _is_finite(tensor: Tensor) -> bool:
    """Whether a floating tensor has neither a NaN nor an infinity."""
    if not tensor.numel() or tensor.element_size() == 1:  # torch finds no extremes of nothing, nor in eight bits
        return bool(torch.isfinite(tensor.float()).all())
    # Both extremes of what holds a NaN are NaN. One walk finds them; a mask of all elements takes 15 times as long.
    return all(math.isfinite(extreme) for extreme in torch.aminmax(tensor.detach()))
