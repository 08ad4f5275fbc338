"""A problem: a spec that people write, its arguments, and implementations of it, right and wrong."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

Function = Callable[..., Any]
HALF_TYPES = ("bfloat16", "float16")
DTYPES = ("float32", *HALF_TYPES)


@dataclass(frozen=True)
class Implementation:
    """One implementation of a problem.

    Attributes:
        title: what it does otherwise. right: whether it is what the spec says.
        make: () -> the function or module; what it computes keeps to the dtype of its arguments, or does as `dtypes`
            says. A new one has a state of its own.
        dtypes: that it is judged in. stores: whether it runs in a half type as it stands, every intermediate stored;
            else it computes in float32 and rounds its results once.
        allows: what it needs beside the contract, as allowances are written ("exp2"). why: for what reason a right one
            loses digits by design, so that a rejection is no fault of the judge; or why a wrong one cannot be seen.
    """

    title: str
    right: bool
    make: Callable[[], Function]
    dtypes: tuple[str, ...] = DTYPES
    stores: bool = False
    allows: str = ""
    why: str = ""

    def build(self, dtype: str) -> Function:
        function = self.make()
        return rounded_once(function) if dtype in HALF_TYPES and not self.stores else function


@dataclass
class Problem:
    """A spec and its implementations.

    Attributes:
        name: for tables. spec: plain PyTorch. draw: () -> the arguments, of torch's generator, in float32.
        implementations: in the order in which they were entered.
    """

    name: str
    spec: Function
    draw: Callable[[], Sequence[Any]]
    implementations: list[Implementation] = field(default_factory=list)

    def right(self, title: str, function: Function, **more: Any) -> None:
        self.implementations.append(Implementation(title, True, lambda: function, **more))

    def wrong(self, title: str, function: Function, **more: Any) -> None:
        self.implementations.append(Implementation(title, False, lambda: function, **more))

    def right_module(self, title: str, make: Callable[[], Function], **more: Any) -> None:
        self.implementations.append(Implementation(title, True, make, **{"dtypes": ("float32",), **more}))

    def wrong_module(self, title: str, make: Callable[[], Function], **more: Any) -> None:
        self.implementations.append(Implementation(title, False, make, **{"dtypes": ("float32",), **more}))

    def arguments(self, seed: int, dtype: str) -> tuple[Any, ...]:
        """The arguments of a call, always the same for a seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(zlib.crc32(self.name.encode()) + seed)
            draws = tuple(self.draw())
        moved = pytree.tree_map(lambda leaf: _draw(leaf, getattr(torch, dtype)), draws)
        assert isinstance(moved, tuple)
        return moved


def cast(leaf: Any, dtype: torch.dtype) -> Any:
    """A floating tensor in another dtype, which autograd follows; anything else as it is."""
    return leaf.to(dtype) if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf


def _draw(leaf: Any, dtype: torch.dtype) -> Any:
    """An argument in a dtype, a leaf that requires a gradient where the drawn one does."""
    return cast(leaf.detach(), dtype).requires_grad_(leaf.requires_grad) if isinstance(leaf, Tensor) else leaf


def rounded_once(function: Function) -> Function:
    """The same in float32 inside, for arguments of a half type, with results that are rounded to it once."""

    def rounded(*args: Any) -> Any:
        floats = [
            leaf.dtype for leaf in pytree.tree_leaves(args) if isinstance(leaf, Tensor) and leaf.is_floating_point()
        ]
        wide = pytree.tree_map(lambda leaf: cast(leaf, torch.float32), args)
        results = function(*wide)
        for narrow, destination in zip(pytree.tree_leaves(args), pytree.tree_leaves(wide), strict=True):
            if isinstance(narrow, Tensor) and narrow is not destination and destination._version:
                narrow.copy_(destination)
        return pytree.tree_map(lambda leaf: cast(leaf, floats[0]), results)

    return rounded


def by_hand(forward: Function, backward: Function) -> Function:
    """A function with a backward of its own: forward(*args) -> (result, saved), backward(saved, g) -> gradients."""

    class ByHand(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            result, saved = forward(*args)
            ctx.save_for_backward(*saved)
            return result

        @staticmethod
        def backward(ctx: Any, *g: Any) -> Any:
            return backward(ctx.saved_tensors, *g)

    return lambda *args: ByHand.apply(*args)
