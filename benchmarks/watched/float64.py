"""The same step in float64, with which the loss of a program is compared."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from .program import Program

NARROW = (torch.float32, torch.bfloat16, torch.float16)


class Choices(TorchDispatchMode):
    """Remembers what a program chose: the integers and masks that its calls give, by operation and in order."""

    def __init__(self) -> None:
        super().__init__()
        self.of: defaultdict[Any, deque[list[Any]]] = defaultdict(deque)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if _is_choice(func, output):
            self.of[func].append([x.clone() if _is_whole(x) else None for x in tree_leaves(output)])
        return output


class Widening(TorchDispatchMode):
    """What a program casts to float32 or less, or makes in it, is float64; what it chose is as it was."""

    def __init__(self, choices: Choices) -> None:
        super().__init__()
        self._choices = choices

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") in NARROW:
            kwargs["dtype"] = torch.float64
        # The one product that has no kernel for float64.
        output = multiply_groups(*args) if "_grouped_mm" in str(func) else func(*args, **kwargs)
        if not _is_choice(func, output) or not self._choices.of[func]:
            return output
        leaves, structure = tree_flatten(output)
        choice = self._choices.of[func].popleft()
        return tree_unflatten([x if y is None else y for x, y in zip(leaves, choice, strict=True)], structure)


def _is_choice(func: Any, output: Any) -> bool:
    return not func._schema.is_mutable and not func.is_view and any(map(_is_whole, tree_leaves(output)))


def _is_whole(value: Any) -> bool:
    return isinstance(value, Tensor) and not value.is_floating_point() and not value.is_complex()


def multiply_groups(a: Tensor, b: Tensor, ends: Tensor, *_: Any) -> Tensor:
    """Products of groups of rows with a matrix each, or of groups of columns."""
    parts, start = [], 0
    for number, end in enumerate(ends.tolist()):
        parts.append(a[start:end] @ b[number] if b.dim() == 3 else a[:, start:end] @ b[start:end])
        start = end
    return torch.cat(parts) if b.dim() == 3 else torch.stack(parts)


def exact_loss(exact: Program, seed: int, choices: Choices) -> float:
    """The loss of the next step of a program that is in float64 (`Program.exact`)."""
    torch.manual_seed(seed)
    torch.set_default_dtype(torch.float64)
    try:
        with Widening(choices):
            return exact.step()
    finally:
        torch.set_default_dtype(torch.float32)
