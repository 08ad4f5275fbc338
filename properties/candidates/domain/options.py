"""Other values of options: flags turned, numbers other than neutral ones, a tensor for None."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

Tensor = torch.Tensor
#: (shape,) of a tensor that takes the place of None; a number, a flag or None as it is.
Option = bool | int | float | None | tuple[int, ...]


def propose_options(leaf: Any, shapes: Sequence[tuple[int, ...]]) -> Iterator[Option]:
    """Other values of an argument that is no tensor; the spec may refuse them.

    Args:
        leaf: the given value. shapes: of the other arguments and of the outputs, for a tensor in place of None.
    """
    if isinstance(leaf, bool):
        yield not leaf
    elif isinstance(leaf, int):
        yield from (value for value in dict.fromkeys((leaf + 1, 2 * leaf, leaf // 2, 1, 2, 3)) if value != leaf)
    elif isinstance(leaf, float):
        # Not a negative number: what a square root is taken of may be nothing else.
        yield from (value for value in (1.7 * leaf or 1.7, 0.5 * leaf or 0.5, 1.0) if value != leaf)
    elif leaf is None:
        yield from sorted({*shapes, *((n,) for shape in shapes for n in shape)}, key=len)


def value_of(option: Option, leaves: Sequence[Any], fill: Callable[[Tensor], Tensor]) -> Any:
    """What a call is given for an option: itself, or for a shape a tensor of the dtype of the floating arguments.

    Args:
        option: see `propose_options`. leaves: of the given call. fill: gives values to a tensor of zeros.
    """
    if not isinstance(option, tuple):
        return option
    like = next((x for x in leaves if isinstance(x, Tensor) and x.is_floating_point()), torch.zeros(()))
    return fill(like.new_zeros(option))
